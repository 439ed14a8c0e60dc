"""A few verbs of the Kubernetes API over one kept connection per thread: what the lab itself asks its own API server.

Users and tests go through kubectl (`hulk_lab.kube`); this is for hundreds of nodes in a second and for waiting without
starting a process per look.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import ssl
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from hulk_lab.errors import LabError

_MERGE = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"


class ApiError(LabError):
    """The API server's refusal, with its own words."""

    def __init__(self, verb: str, path: str, status: int, message: str) -> None:
        super().__init__(f"{verb} {path}: {status} {message}")
        self.status = status


class _Connection(http.client.HTTPSConnection):
    """Closed when nobody holds it any more: with its thread, or with its `Api`."""

    def __del__(self) -> None:
        self.close()


class Api:
    """The API server that a kubeconfig of the lab names, as that kubeconfig's user."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._address = urlsplit(cluster["server"])
        self._tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        with _as_file(user["client-certificate-data"]) as certificate, _as_file(user["client-key-data"]) as key:
            self._tls.load_cert_chain(certificate, key)
        self._local = threading.local()

    def get(self, path: str, **query: str) -> Any:
        """The object or list at a path."""
        return self._call("GET", path, query=query)

    def find(self, path: str) -> Any | None:
        """As `get`, None when there is no such object."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise
            return None

    def create(self, path: str, manifest: dict[str, Any]) -> Any:
        """POST one object to its collection."""
        return self._call("POST", path, manifest)

    def ensure(self, manifest: dict[str, Any]) -> None:
        """Server-side apply: the object is as the manifest says, whether it was there or not."""
        target = f"{_collection(manifest)}/{manifest['metadata']['name']}"
        self._call("PATCH", target, manifest, _APPLY, {"fieldManager": "hulk-lab", "force": "true"})

    def patch(self, path: str, change: dict[str, Any]) -> Any:
        """Merge patch."""
        return self._call("PATCH", path, change, _MERGE)

    def delete(self, path: str) -> None:
        """Delete an object, or everything in a collection; nothing when it is not there."""
        try:
            self._call("DELETE", path)
        except ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise

    def ready(self) -> bool:
        """Whether the API server answers and says it is ready."""
        try:
            return bool(self._call("GET", "/readyz") == "ok")
        except (OSError, http.client.HTTPException, ApiError):
            return False

    def _call(
        self,
        verb: str,
        path: str,
        body: dict[str, Any] | None = None,
        content_type: str = "application/json",
        query: dict[str, str] | None = None,
    ) -> Any:
        target = f"{path}?{urlencode(query)}" if query else path
        content = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        try:
            connection = self._connection()
            connection.request(verb, target, content, headers)
            response = connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise ApiError(verb, path, response.status, _message(text))
        return json.loads(text) if text.startswith(("{", "[")) else text

    def close(self) -> None:
        """Drop this thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def _connection(self) -> _Connection:
        connection: _Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            assert self._address.hostname is not None
            connection = _Connection(self._address.hostname, self._address.port, timeout=30, context=self._tls)
            self._local.connection = connection
        return connection


def _collection(manifest: dict[str, Any]) -> str:
    """
    >>> _collection({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "a"}})
    '/apis/apps/v1/namespaces/a/deployments'
    """
    version = manifest["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = manifest["metadata"].get("namespace")
    return f"{root}/namespaces/{namespace}/{_plural(manifest)}" if namespace else f"{root}/{_plural(manifest)}"


def _plural(manifest: dict[str, Any]) -> str:
    return f"{manifest['kind'].lower()}s"  # true of every kind the lab itself writes


def _message(text: str) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(json.loads(text)["message"])
    return text[:500]


@contextlib.contextmanager
def _as_file(encoded: str) -> Iterator[str]:
    """ssl reads certificates only from files."""
    handle, path = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(base64.b64decode(encoded))
        yield path
    finally:
        os.unlink(path)
