"""Everything on this machine that belongs to one lab, as text: empty before `up` and after `down`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hulk_lab import cgroups
from hulk_lab.wan.addresses import netns_prefix


def of(lab: str, slot: int) -> dict[str, set[str]]:
    """Processes, namespaces, interfaces, mounts and control groups of a lab."""
    return {
        "processes": set(_processes(lab)),
        "namespaces": {path.name for path in Path("/run/netns").glob(f"{netns_prefix(slot)}*")},
        "interfaces": {path.name for path in Path("/sys/class/net").glob(f"hl{slot}*") if _is_of(path.name, slot)},
        "mounts": {line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f"/{lab}/" in line},
        "groups": {
            str(group) for folder in (".", "*") for group in cgroups.MOUNT.glob(f"{folder}/{cgroups.ROOT}/{lab}")
        },
    }


def _is_of(interface: str, slot: int) -> bool:
    rest = interface.removeprefix(f"hl{slot}")
    return rest == "" or rest.startswith("n")


def _processes(lab: str) -> Iterator[str]:
    """By command line (it names the lab's state folder or the lab) or by control group (pods); not what has ended."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            groups = (folder / "cgroup").read_text()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z" and any(f"/hulk-lab/{lab}/" in text for text in (*words, groups)):
            yield f"{folder.name} {' '.join(words)}"
