"""Allow the lab's TCP congestion control inside namespaces, and take the permission back with the last lab.

A namespace may only choose an algorithm that `net.ipv4.tcp_allowed_congestion_control` of the machine lists; many
machines list fewer than they have. Nothing else of the machine's own TCP settings is touched.
"""

from __future__ import annotations

from pathlib import Path

from hulk_lab import shared_settings
from hulk_lab.paths import RUN_DIR

ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
_RECORD = "congestion"


def allow(algorithm: str, slot: int, *, run_dir: Path = RUN_DIR, allowed: Path = ALLOWED) -> None:
    """List `algorithm` for the lab in this slot."""

    def listed(now: str) -> str:
        return now if algorithm in now.split() else f"{now} {algorithm}"

    shared_settings.hold(_RECORD, str(slot), {allowed: listed}, run_dir)


def restore(slot: int, *, run_dir: Path = RUN_DIR) -> None:
    """The lab in this slot needs its algorithm no longer."""
    shared_settings.release(_RECORD, str(slot), run_dir)
