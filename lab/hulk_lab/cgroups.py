"""The lab's processes in control groups of its own, on cgroup v1 and v2 alike.

    /hulk-lab/NAME/NODE/system     the node's containerd and kubelet
    /hulk-lab/NAME/NODE/kubepods   pods, made by the kubelet

Whatever was started below a lab's group can be found and ended there, also what no record names: shims and pods.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hulk_lab.errors import LabError
from hulk_lab.processes import wait_until
from hulk_lab.spec import checked_name

MOUNT = Path("/sys/fs/cgroup")
ROOT = "hulk-lab"
OTHERS = "hulk-lab-others"
"""Where the machine's own processes wait on v2 if they sat in the root that a container sees: see `_step_aside`."""
PERIOD_US = 10_000
"""A longer period stalls a throttled process for tens of milliseconds and spoils round trips and step times. The
kernel's least quota is 1 ms: `hulk_lab.spec.MIN_SPEED`."""

_CONTROLLERS = "+cpu +cpuset +memory +pids +io +hugetlb"


@dataclass(frozen=True, slots=True)
class Quota:
    """CPU time per period, in microseconds."""

    quota_us: int
    period_us: int

    @classmethod
    def of(cls, cores: float) -> Quota:
        """
        >>> Quota.of(0.16)
        Quota(quota_us=1600, period_us=10000)
        """
        return cls(round(cores * PERIOD_US), PERIOD_US)


def is_v2(mount: Path = MOUNT) -> bool:
    """Whether the machine has one unified hierarchy."""
    return (mount / "cgroup.controllers").exists()


def hierarchies(mount: Path = MOUNT) -> list[Path]:
    """The mounted hierarchies that hold the lab's groups: one on v2, one per controller on v1.

    Also the `unified` one that many v1 machines have beside them: containerd and the kubelet make groups there too.
    """
    if is_v2(mount):
        return [mount]
    return sorted(path for path in mount.iterdir() if path.is_dir() and not path.is_symlink())


def node_group(lab: str, node: str) -> str:
    """A node's group; the kubelet's cgroupRoot."""
    return f"/{ROOT}/{lab}/{node}"


def create_node(lab: str, node: str, mount: Path = MOUNT) -> list[Path]:
    """Make a node's groups; returns the process lists to join for its system processes."""
    lists = []
    for hierarchy in hierarchies(mount):
        group = hierarchy
        for name in (ROOT, lab, node, "system"):
            if is_v2(mount):
                _delegate(group)
            group = group / name
            group.mkdir(exist_ok=True)
            _inherit_cpuset(group)
        lists.append(group / "cgroup.procs")
    return lists


def destroy(lab: str, node: str = "", mount: Path = MOUNT) -> None:
    """End every process in the groups of a lab, or of one of its nodes, with SIGKILL, and remove the groups.

    ValueError for what is no lab's name: `..` would be every process of the machine.
    """
    checked_name("lab", lab)
    for hierarchy in hierarchies(mount):
        group = hierarchy / ROOT / lab / node
        if group.is_dir():
            wait_until(lambda group=group: _kill_all(group), f"end of all processes in {group}", timeout_s=20)  # type: ignore[misc]
            _remove(group)
            if not node:
                with contextlib.suppress(OSError):  # another lab is up
                    (hierarchy / ROOT).rmdir()
                    _step_back(hierarchy)


def processes(lab: str, node: str = "", mount: Path = MOUNT) -> set[int]:
    """Every pid below the group of a lab or of one of its nodes."""
    groups = (hierarchy / ROOT / lab / node for hierarchy in hierarchies(mount))
    return {pid for group in groups if group.is_dir() for pid in _pids(group)}


def pod_groups(lab: str, node: str, mount: Path = MOUNT) -> dict[str, Path]:
    """Pod uid -> the group that limits its CPU time."""
    cpu = mount if is_v2(mount) else mount / "cpu"
    kubepods = cpu / ROOT / lab / node / "kubepods"
    found: dict[str, Path] = {}
    for folder in (kubepods, kubepods / "burstable", kubepods / "besteffort"):
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            found |= {entry.name[3:]: Path(entry.path) for entry in entries if entry.name.startswith("pod")}
    return found


def limit_cpu(group: Path, quota: Quota) -> bool:
    """Hold a group to a quota; False when it had it already. FileNotFoundError when the group is gone."""
    v2 = group / "cpu.max"
    if v2.exists():
        wanted = f"{quota.quota_us} {quota.period_us}"
        if v2.read_text().strip() == wanted:
            return False
        v2.write_text(wanted)
        return True
    period, limit = group / "cpu.cfs_period_us", group / "cpu.cfs_quota_us"
    if (int(limit.read_text()), int(period.read_text())) == (quota.quota_us, quota.period_us):
        return False
    limit.write_text("-1")  # no moment in which old quota and new period make an unlawful pair
    period.write_text(str(quota.period_us))
    limit.write_text(str(quota.quota_us))
    return True


def _delegate(group: Path) -> None:
    available = (group / "cgroup.controllers").read_text().split()
    wanted = " ".join(name for name in _CONTROLLERS.split() if name[1:] in available)
    try:
        (group / "cgroup.subtree_control").write_text(wanted)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        _step_aside(group)
        (group / "cgroup.subtree_control").write_text(wanted)


def _step_aside(group: Path) -> None:
    """Move a group's processes into a leaf: a group that hands controllers down may hold none.

    The machine's own root is free of that rule; the root that a container sees in its own cgroup namespace is not.
    """
    leaf = group / OTHERS
    leaf.mkdir(exist_ok=True)
    try:
        wait_until(lambda: not _move_all(group, leaf), f"{group} without processes", timeout_s=10)
    except (OSError, ValueError) as error:
        raise LabError(
            f"{group} holds processes that cannot be moved ({error}), so it can hand no controllers to the lab's"
            " groups: run the lab on the machine itself, or in a container with --cgroupns=host"
        ) from error


def _step_back(mount: Path) -> None:
    """Undo `_step_aside` with the last lab, unless somebody else relies on the controllers by now: then OSError."""
    leaf = mount / OTHERS
    if leaf.is_dir():
        enabled = (mount / "cgroup.subtree_control").read_text().split()
        (mount / "cgroup.subtree_control").write_text(" ".join(f"-{name}" for name in enabled))
        wait_until(lambda: not _move_all(leaf, mount), f"{leaf} without processes", timeout_s=10)
        leaf.rmdir()


def _move_all(source: Path, target: Path) -> list[int]:
    """Move every process that is there now; those that were."""
    pids = [int(line) for line in (source / "cgroup.procs").read_text().split()]
    if 0 in pids:
        raise ValueError("some belong to another pid namespace")
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            (target / "cgroup.procs").write_text(str(pid))
    return pids


def _inherit_cpuset(group: Path) -> None:
    """On v1 a new cpuset allows nothing until it is told."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = group / name
        if not is_v2(group.parent) and file.exists() and not file.read_text().strip():
            file.write_text((group.parent / name).read_text())


def _kill_all(group: Path) -> bool:
    pids = set(_pids(group))
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return not pids


def _pids(group: Path) -> Iterator[int]:
    for folder in _below(group):
        with contextlib.suppress(FileNotFoundError, OSError):
            yield from map(int, (folder / "cgroup.procs").read_text().split())


def _remove(group: Path) -> None:
    for folder in _below(group):
        wait_until(lambda folder=folder: _rmdir(folder), f"removal of {folder}", timeout_s=10)  # type: ignore[misc]


def _rmdir(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # a process that has just ended still counts for a moment
        return False
    return True


def _below(group: Path) -> list[Path]:
    """The group and all groups below it, innermost first."""
    return [Path(folder) for folder, _, _ in os.walk(group, topdown=False)]
