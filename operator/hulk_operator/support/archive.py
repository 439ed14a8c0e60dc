"""The bundle as a file: a tar.gz that stays below a bound, with an index of what is in it and what is not, and why."""

import io
import json
import os
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

MAX_BYTES: Final = 128 << 20  # of all files together, before they are compressed
MAX_FILE_BYTES: Final = 16 << 20
INDEX: Final = "index.json"
ADVICE: Final = (
    "Values of environment variables and what looks like a credential are left out, Secrets are never read. Programs "
    "print what they like: look at logs/ before you hand this on."
)


@dataclass(slots=True)
class Bundle:
    """Files are added until it is full. A context: at its end the file has its name, after an error none is left.

    `missing`: what could not be read or did not fit, with the reason.
    """

    path: Path
    made_at: datetime
    max_bytes: int = MAX_BYTES
    files: list[dict[str, Any]] = field(default_factory=list)
    missing: list[dict[str, str]] = field(default_factory=list)
    num_bytes: int = 0
    _file: IO[bytes] = field(init=False)
    _tar: tarfile.TarFile = field(init=False)

    def __enter__(self) -> "Bundle":
        # for its owner alone, as it tells of a cluster
        descriptor = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        self._tar = tarfile.open(fileobj=self._file, mode="w:gz")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._write_index()
        self._tar.close()
        self._file.close()
        if kind is None:
            self._partial.rename(self.path)
        else:
            self._partial.unlink()

    def add(self, name: str, content: str, **facts: Any) -> None:
        """One file; the end of one that is too long. `facts` are for the index."""
        data = content.encode("utf-8", errors="replace")
        if len(data) > MAX_FILE_BYTES:
            facts["truncated"] = f"the last {MAX_FILE_BYTES} of {len(data)} bytes"
            data = data[-MAX_FILE_BYTES:]
        if self.num_bytes + len(data) > self.max_bytes:
            self.lacks(name, f"the bundle is full: {self.max_bytes} bytes")
            return
        self.num_bytes += len(data)
        self.files.append({"name": name, "bytes": len(data), **facts})
        self._store(name, data)

    def add_list(self, name: str, items: Iterable[Any]) -> None:
        """One file of JSON, an object a line."""
        self.add(name, "[\n" + ",\n".join(json.dumps(item, ensure_ascii=False) for item in items) + "\n]\n")

    def lacks(self, what: str, reason: str) -> None:
        """Note what is not in the bundle."""
        self.missing.append({"what": what, "reason": reason})

    @property
    def _partial(self) -> Path:
        return self.path.with_name(f".{self.path.name}.partial")

    def _write_index(self) -> None:
        index = {"madeAt": self.made_at.isoformat(), "advice": ADVICE, "files": self.files, "missing": self.missing}
        self._store(INDEX, (json.dumps(index, indent=1, ensure_ascii=False) + "\n").encode())

    def _store(self, name: str, data: bytes) -> None:
        entry = tarfile.TarInfo(f"{self.path.name.removesuffix('.tar.gz')}/{name}")
        entry.size, entry.mtime, entry.mode = len(data), int(self.made_at.timestamp()), 0o600
        self._tar.addfile(entry, io.BytesIO(data))
