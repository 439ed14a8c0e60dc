"""A folder of small keys behind a URL (`s3://bucket/path`, `file:///path`): read, list, delete, whole-object writes.

A write is seen whole or not at all: object stores promise it, on a file system it is a rename of what has reached the
disk. A writer that is killed before leaves an unfinished write, which is no key. Credentials and the endpoint of an
object store come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from hulk_runtime import names
from hulk_runtime.errors import CheckpointError, ConfigurationError

PACKAGES: Final[Mapping[str, str]] = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "oci": "ocifs",
    "oss": "ossfs",
    "hdfs": "pyarrow",
    "webhdfs": "requests",
}
"""The package that the worker's image must have for URLs of a scheme; Hulk's own has those of the extra `image`."""
_TEMPORARY: Final = ".tmp"
_TAGS: Final = ("ETag", "etag")


@dataclass(frozen=True, slots=True)
class Listed:
    """What a listing says of an object. `version`: another one for other content; empty where the store has none."""

    num_bytes: int
    version: tuple[object, ...]


class Store:
    """One folder. Keys have no slashes, and folders within are listed as keys, too.

    Every failure is a CheckpointError that names the URL.
    """

    def __init__(self, url: str, environ: Mapping[str, str] = os.environ) -> None:
        self.url = url.rstrip("/")
        protocol = url.partition("://")[0] if "://" in url else "file"
        self._renames = protocol in ("file", "local")
        try:  # of the URL also what only some stores have in it, such as a host
            from fsspec.core import url_to_fs  # up to a second of CPU: only the rank that needs it pays

            found = url_to_fs(self.url, skip_instance_cache=True, **_options(protocol, environ))
        except (ImportError, TypeError, ValueError) as error:
            raise ConfigurationError(f"checkpoint URL {url}: {_cause(protocol, error)}") from error
        except Exception as error:  # some connect at once; every store has its own exceptions
            raise CheckpointError(f"cannot open {url}: {type(error).__name__}: {error}") from error
        self._files: Any = found[0]
        self._root: str = found[1]

    def folder(self, name: str) -> "Store":
        """A folder in this one, by the same connections."""
        found = copy(self)
        found.url, found._root = f"{self.url}/{name}", self._path(name)
        return found

    def write(self, key: str, content: bytes) -> None:
        """Create or replace one object."""
        if self._renames:
            with self.writing(key) as file:
                file.write(content)
            return
        with self._failures("write", key):
            self._files.pipe_file(self._path(key), content)

    @contextlib.contextmanager
    def writing(self, key: str) -> Iterator[Any]:
        """A file to write one object into, piece by piece; what a caller raises leaves none, or an incomplete one."""
        with self._failures("write", key):
            path = self._path(key + _TEMPORARY if self._renames else key)
            with self._files.open(path, "wb") as file:
                yield file
                if self._renames:
                    file.flush()
                    os.fsync(file.fileno())  # or a loss of power may leave the new name on an empty file
            if self._renames:
                os.replace(path, self._path(key))

    def read(self, key: str) -> bytes | None:
        """One object, None when it does not exist."""
        with self._failures("read", key):
            try:
                content = self._files.cat_file(self._path(key))
            except FileNotFoundError:
                return None
        return bytes(content)

    def read_range(self, key: str, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end`, fewer where the object is shorter."""
        with self._failures("read", key):
            return bytes(self._files.cat_file(self._path(key), start=start, end=end))

    def delete_folder(self, name: str) -> None:
        """Remove a folder and the objects in it; it may be gone already."""
        folder = self.folder(name)
        for key in folder._listing():
            folder.delete(key)
        if self._renames:
            with self._failures("delete", name), contextlib.suppress(FileNotFoundError):
                self._files.rmdir(folder._root)

    def list_keys(self) -> list[str]:
        """Every object's key, sorted."""
        return list(self.list_objects())

    def list_objects(self) -> dict[str, Listed]:
        """Every object by its key, sorted."""
        return {name: listed for name, listed in self._listing().items() if not name.endswith(_TEMPORARY)}

    def list_unfinished(self) -> list[str]:
        """What unfinished writes have left, sorted: the key and more; `delete` takes it. Only file systems have any."""
        return [name for name in self._listing() if name.endswith(_TEMPORARY)] if self._renames else []

    def delete(self, key: str) -> None:
        """Remove one object; it may be gone already."""
        with self._failures("delete", key), contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._path(key))

    def _listing(self) -> dict[str, Listed]:
        with self._failures("list", ""):
            self._files.invalidate_cache()
            try:
                found = self._files.ls(self._root, detail=True)
            except FileNotFoundError:
                return {}
            found = [
                row for row in found if row["name"].rstrip("/") != self._root
            ]  # some stores list the folder itself
            listed = {row["name"].rstrip("/").rpartition("/")[2]: _listed(row) for row in found}
        return dict(sorted(listed.items()))

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    @contextlib.contextmanager
    def _failures(self, verb: str, key: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # Every store has its own exceptions and no common base; all of them mean the same to a training run.
            raise CheckpointError(f"cannot {verb} {self.url}/{key}: {type(error).__name__}: {error}") from error


def _listed(row: Mapping[str, Any]) -> Listed:
    size = row.get("size") or 0
    tag = next((row[name] for name in _TAGS if row.get(name)), None)
    if tag is not None:
        return Listed(size, (size, tag))
    times = tuple(row.get(name) for name in ("ino", "mtime", "created"))  # of a file system
    return Listed(size, (size, *times) if all(times) else ())


def _cause(protocol: str, error: Exception) -> str:
    """Why there is no store: the package that the image lacks and how to add it, or the package's own words."""
    package = "fsspec" if find_spec("fsspec") is None else PACKAGES.get(protocol)
    if package is None or find_spec(package) is not None:
        return f"{type(error).__name__}: {error}"
    return (
        f"the worker's image lacks the Python package {package}, which {protocol}:// needs; add it to the image, with "
        f'"pip install {package}" where Hulk is installed, or use a store whose package is there'
    )


def _options(protocol: str, environ: Mapping[str, str]) -> dict[str, Any]:
    if protocol in ("file", "local"):
        return {"auto_mkdir": True}
    if protocol not in ("s3", "s3a"):
        return {}
    # Stores other than Amazon's have no bucket sub-domains, and few know the newer trailing checksums.
    settings: dict[str, Any] = {
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
    }
    options: dict[str, Any] = {"use_listings_cache": False, "config_kwargs": settings}
    endpoint = environ.get(names.ENV_S3_ENDPOINT)
    if endpoint:
        settings["s3"] = {"addressing_style": "path"}
        options["endpoint_url"] = endpoint
    return options
