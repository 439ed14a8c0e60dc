"""Raise the machine-wide inotify limits while labs are up.

Every kubelet, containerd and API client holds inotify instances; the usual limit of 128 ends at the third node.
"""

from __future__ import annotations

from pathlib import Path

from hulk_lab import shared_settings
from hulk_lab.paths import RUN_DIR
from hulk_lab.shared_settings import Change

LIMITS = {
    Path("/proc/sys/fs/inotify/max_user_instances"): 8192,
    Path("/proc/sys/fs/inotify/max_user_watches"): 524288,
}
_RECORD = "sysctls"


def raise_limits(lab: str, *, run_dir: Path = RUN_DIR, limits: dict[Path, int] = LIMITS) -> None:
    """Raise what is lower, for this lab."""
    shared_settings.hold(_RECORD, lab, {limit: _at_least(wanted) for limit, wanted in limits.items()}, run_dir)


def restore(lab: str, *, run_dir: Path = RUN_DIR) -> None:
    """This lab needs the limits no longer."""
    shared_settings.release(_RECORD, lab, run_dir)


def _at_least(wanted: int) -> Change:
    return lambda now: now if int(now) >= wanted else str(wanted)
