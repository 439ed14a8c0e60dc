"""What one client asks of an API server: requests and bytes by verb and kind, and when it renews its lease."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web
from hulk_operator import names

OPERATOR: Final = "operator"
"""The common name of the operator's certificate: other clients are not counted."""
_VERBS: Final = {"POST": "create", "PUT": "update"}
METER_PATH: Final = "/bench/meter"
"""Where a server tells what it has counted."""
Key = tuple[str, str]


@dataclass(slots=True)
class Meter:
    """Counts from its making on. Bytes are of bodies as they are sent: compressed lists count compressed.

    Of requests of other clients than `user` nothing is counted.
    """

    user: str = OPERATOR
    requests: Counter[Key] = field(default_factory=Counter)
    num_bytes: Counter[Key] = field(default_factory=Counter)
    renewals_s: list[float] = field(default_factory=list)

    def add(self, request: web.Request, num_bytes: int, requests: int = 1) -> None:
        """A request, or more bytes of one."""
        if user_of(request) != self.user:
            return
        key = verb_of(request), kind_of(request.path, request.query.get("labelSelector", ""))
        self.requests[key] += requests
        self.num_bytes[key] += num_bytes
        if requests and key in (("patch", "leases"), ("update", "leases")):
            self.renewals_s.append(time.monotonic())

    def snapshot(self) -> dict[str, Any]:
        """As JSON; times are of the machine's monotonic clock."""
        rows = [[*key, count, self.num_bytes[key]] for key, count in sorted(self.requests.items())]
        return {"rows": rows, "renewals_s": self.renewals_s}


def user_of(request: web.Request) -> str:
    """The common name in the client's certificate; empty without one."""
    certificate = request.transport.get_extra_info("peercert") if request.transport else None
    subject = {key: value for part in (certificate or {}).get("subject", ()) for key, value in part}
    return str(subject.get("commonName", ""))


def verb_of(request: web.Request) -> str:
    """The verb in Kubernetes' words."""
    is_one = _parts(request.path)[1]
    if request.method == "GET" and not is_one:
        return "watch" if request.query.get("watch") in ("1", "true") else "list"
    if request.method == "DELETE":
        return "delete" if is_one else "deletecollection"
    if request.method == "PATCH":
        return "apply" if "apply-patch" in request.content_type else "patch"
    dry = "dry-run " if request.query.get("dryRun") else ""
    return dry + _VERBS.get(request.method, request.method.lower())


def kind_of(path: str, selector: str = "") -> str:
    """The kind of a path; pods that are selected by Hulk's labels are told apart.

    >>> kind_of("/api/v1/namespaces/a/pods/b"), kind_of("/apis/hulk.dev/v1alpha1/nodeprofiles/x/status")
    ('pods', 'nodeprofiles/status')
    >>> kind_of("/apis"), kind_of("/api/v1/namespaces/a"), kind_of("/api/v1/pods", "hulk.dev/job")
    ('discovery', 'namespaces', 'pods of jobs')
    """
    kind = _parts(path)[0]
    if kind == "pods" and names.LABEL_JOB in selector:
        return "pods of jobs"
    return "pods of agents" if kind == "pods" and selector == names.AGENT_SELECTOR else kind


def _parts(path: str) -> tuple[str, bool]:
    """The kind with its subresource, and whether one object is meant; documents of discovery are one each."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    if not rest:
        return "discovery", True
    return "/".join((rest[0], *rest[2:])), len(rest) > 1
