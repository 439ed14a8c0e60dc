"""CPU quotas on both versions of control groups, on folders that look like them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hulk_lab import cgroups
from hulk_lab.cgroups import Quota


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        pytest.param(0.16, Quota(1_600, 10_000), id="a share of a core"),
        pytest.param(2.0, Quota(20_000, 10_000), id="two cores"),
        pytest.param(0.1, Quota(1_000, 10_000), id="the least quota"),
    ],
)
def test_quota_of_a_number_of_cores(cores: float, expected: Quota) -> None:
    assert Quota.of(cores) == expected


def test_limit_on_version_1(tmp_path: Path) -> None:
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "cpu.cfs_quota_us").write_text("-1\n")

    assert cgroups.limit_cpu(tmp_path, Quota(1_600, 10_000))
    assert (tmp_path / "cpu.cfs_period_us").read_text() == "10000"
    assert (tmp_path / "cpu.cfs_quota_us").read_text() == "1600"
    assert not cgroups.limit_cpu(tmp_path, Quota(1_600, 10_000))


def test_limit_on_version_2(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("max 100000\n")

    assert cgroups.limit_cpu(tmp_path, Quota(1_600, 10_000))
    assert (tmp_path / "cpu.max").read_text() == "1600 10000"
    assert not cgroups.limit_cpu(tmp_path, Quota(1_600, 10_000))


def test_version_2_delegates_what_there_is_on_the_way_to_a_node(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    for folder in ("", "hulk-lab", "hulk-lab/x", "hulk-lab/x/n"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "cgroup.controllers").write_text("cpu memory pids\n")

    lists = cgroups.create_node("x", "n", tmp_path)

    assert lists == [tmp_path / "hulk-lab/x/n/system/cgroup.procs"]
    assert (tmp_path / "hulk-lab/x/n/cgroup.subtree_control").read_text() == "+cpu +memory +pids"


ASIDE_AND_BACK = """
import os, sys
from pathlib import Path
from hulk_lab import cgroups
root = Path(sys.argv[1]) / f"hulk-test-{os.getpid()}"  # takes the place of the root that a container sees
root.mkdir()
(root / "cgroup.procs").write_text(str(os.getpid()))
try:
    cgroups._step_aside(root)
    aside = [(group / "cgroup.procs").read_text().split() for group in (root, root / cgroups.OTHERS)]
    cgroups._step_back(root)
    back = (root / "cgroup.procs").read_text().split()
    print(aside == [[], [str(os.getpid())]], back == [str(os.getpid())], (root / cgroups.OTHERS).exists())
finally:
    (Path(sys.argv[1]) / "cgroup.procs").write_text(str(os.getpid()))
    root.rmdir()
"""


def test_a_containers_own_processes_step_aside_and_come_back(tmp_path: Path) -> None:
    """On a real version 2 hierarchy, which every current kernel has beside version 1."""
    mounted = 'mount -t cgroup2 none "$0" && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mounted, str(tmp_path), sys.executable, "-c", ASIDE_AND_BACK]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "True", "False"], done.stderr


def test_version_1_gives_a_new_cpuset_its_parents_cpus(tmp_path: Path) -> None:
    for name in ("hulk-lab", "hulk-lab/x", "hulk-lab/x/n", "hulk-lab/x/n/system"):
        (tmp_path / "cpuset" / name).mkdir(parents=True)
        (tmp_path / "cpuset" / name / "cpuset.cpus").write_text("\n")
    (tmp_path / "cpuset" / "cpuset.cpus").write_text("0-1\n")

    cgroups.create_node("x", "n", tmp_path)

    assert (tmp_path / "cpuset/hulk-lab/x/n/system/cpuset.cpus").read_text() == "0-1\n"


@pytest.mark.parametrize("cpu", ["", "cpu"], ids=["version 2", "version 1"])
def test_pod_groups_of_every_quality_of_service(tmp_path: Path, cpu: str) -> None:
    if not cpu:
        (tmp_path / "cgroup.controllers").touch()
    kubepods = tmp_path / cpu / "hulk-lab/x/n/kubepods"
    for folder in ("poda-1", "burstable/podb-2", "besteffort/podc-3", "burstable/other"):
        (kubepods / folder).mkdir(parents=True)

    found = cgroups.pod_groups("x", "n", tmp_path)

    assert found == {
        "a-1": kubepods / "poda-1",
        "b-2": kubepods / "burstable/podb-2",
        "c-3": kubepods / "besteffort/podc-3",
    }


def test_a_lab_that_never_was_is_destroyed_without_error() -> None:
    cgroups.destroy("no-such-lab")
    assert cgroups.processes("no-such-lab") == set()
