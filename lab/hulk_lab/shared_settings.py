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

RUN_DIR = Path("/run/hulk-lab")

Change = Callable[[str], str]
"""A setting as it is -> as it must be; the same text changes nothing."""


def hold(name: str, user: str, changes: Mapping[Path, Change], run_dir: Path = RUN_DIR) -> None:
    """Change the settings for `user`; `name` is the record that all its users share."""
    with _locked(name, run_dir) as path:
        now = {setting: setting.read_text().strip() for setting in changes}
        before = {str(setting): value for setting, value in now.items()}
        record = json.loads(path.read_text()) if path.exists() else {"before": before, "users": []}
        record["users"] = sorted({*record["users"], user})
        path.write_text(json.dumps(record))
        for setting, change in changes.items():
            wanted = change(now[setting])
            if wanted != now[setting]:
                setting.write_text(wanted)


def release(name: str, user: str, run_dir: Path = RUN_DIR) -> None:
    """Forget a user; with the last one the machine has its own values again."""
    with _locked(name, run_dir) as path:
        if not path.exists():
            return
        record = json.loads(path.read_text())
        record["users"] = [other for other in record["users"] if other != user]
        if record["users"]:
            path.write_text(json.dumps(record))
            return
        for setting, value in record["before"].items():
            Path(setting).write_text(value)
        path.unlink()


@contextmanager
def _locked(name: str, run_dir: Path) -> Iterator[Path]:
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield run_dir / f"{name}.json"
