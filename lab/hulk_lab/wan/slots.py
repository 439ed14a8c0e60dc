"""Lab name -> slot: which of the machine's 32 places for labs a name holds.

Recorded in /run (gone after a reboot, as are the namespaces) before anything else of a lab exists, so that `down` can
find what to remove whatever happened in between.
"""

from __future__ import annotations

import fcntl
import ipaddress
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from hulk_lab.paths import RUN_DIR
from hulk_lab.wan.addresses import NUM_SLOTS, slot_network


@contextmanager
def _locked(run_dir: Path) -> Iterator[dict[str, int]]:
    """The recorded slots; what the caller changes in them is written back atomically."""
    run_dir.mkdir(parents=True, exist_ok=True)
    record = run_dir / "slots.json"
    with (run_dir / "slots.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        slots: dict[str, int] = json.loads(record.read_text()) if record.exists() else {}
        before = dict(slots)
        yield slots
        if slots != before:
            fresh = record.with_suffix(".new")
            fresh.write_text(json.dumps(slots))
            os.replace(fresh, record)


def _routed_networks() -> list[ipaddress.IPv4Network]:
    """What this machine already routes somewhere, labs included."""
    routes = json.loads(subprocess.run(["ip", "-j", "-4", "route"], check=True, capture_output=True).stdout or b"[]")
    return [ipaddress.IPv4Network(route["dst"]) for route in routes if route["dst"] != "default"]


def lowest_free(held: Mapping[str, int], routed: Sequence[ipaddress.IPv4Network]) -> int:
    """The lowest slot that no lab holds and whose addresses the machine routes nowhere; ValueError if none."""
    for slot in range(NUM_SLOTS):
        network = slot_network(slot)
        if slot not in held.values() and not any(network.overlaps(other) for other in routed):
            return slot
    raise ValueError(
        f"none of {NUM_SLOTS} slots is free: held by {', '.join(sorted(held)) or 'no lab'}, "
        f"and this machine routes {', '.join(map(str, routed)) or 'nothing'}"
    )


def acquire(name: str, run_dir: Path = RUN_DIR) -> int:
    """The slot of lab `name`: the one it has, or the lowest free one."""
    with _locked(run_dir) as slots:
        if name not in slots:
            slots[name] = lowest_free(slots, _routed_networks())
        return slots[name]


def find(name: str, run_dir: Path = RUN_DIR) -> int | None:
    """The slot that `name` holds, if any."""
    with _locked(run_dir) as slots:
        return slots.get(name)


def names(run_dir: Path = RUN_DIR) -> set[str]:
    """Every lab that holds a slot."""
    with _locked(run_dir) as slots:
        return set(slots)


def release(name: str, run_dir: Path = RUN_DIR) -> None:
    """Give the slot back; nothing if `name` holds none."""
    with _locked(run_dir) as slots:
        slots.pop(name, None)
