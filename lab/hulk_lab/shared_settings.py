"""Settings of the whole machine that labs change: kept while any user of them is left, put back with the last one.

What was there before is recorded in /run (gone after a reboot, as the settings are) before anything changes, so that it
comes back whatever happens in between.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

from hulk_lab.paths import RUN_DIR

Change = Callable[[str], str]
"""A setting as it is -> as it must be; the same text changes nothing."""


def hold(name: str, user: str, changes: Mapping[Path, Change], run_dir: Path = RUN_DIR) -> None:
    """Change the settings for `user`; `name` is the record that all its users share."""
    with _locked(name, run_dir) as path:
        now = {setting: setting.read_text().strip() for setting in changes}
        record = _read(path) or _Record(before={str(setting): value for setting, value in now.items()}, users=[])
        record["users"] = sorted({*record["users"], user})
        _write(path, record)
        for setting, change in changes.items():
            wanted = change(now[setting])
            if wanted != now[setting]:
                setting.write_text(wanted)


def release(name: str, user: str, run_dir: Path = RUN_DIR) -> None:
    """Forget a user; with the last one the machine has its own values again."""
    with _locked(name, run_dir) as path:
        record = _read(path)
        if record is None:
            return
        record["users"] = [other for other in record["users"] if other != user]
        if record["users"]:
            _write(path, record)
            return
        for setting, value in record["before"].items():
            Path(setting).write_text(value)
        path.unlink()


class _Record(TypedDict):
    before: dict[str, str]
    """Each setting's path and its text before the first user came."""
    users: list[str]


def _read(path: Path) -> _Record | None:
    """The record, None when there is none or another version of the lab wrote it: then its values are unknown."""
    try:
        record = json.loads(path.read_text())
        return _Record(before=dict(record["before"]), users=list(record["users"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, record: _Record) -> None:
    """In one step: a lab killed while writing leaves the record as it was."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(record))
    new.replace(path)


@contextmanager
def _locked(name: str, run_dir: Path) -> Iterator[Path]:
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield run_dir / f"{name}.json"
