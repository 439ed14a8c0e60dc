"""How many threads a rank may use: torch starts one per core of the machine, which a CPU quota then stalls."""

import os
from pathlib import Path

from hulk_runtime import names

CGROUP = Path("/sys/fs/cgroup")


def quota_cores(root: Path = CGROUP) -> float | None:
    """Cores' worth of CPU time this container may use (cgroup v2, then v1); None when it is unlimited."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except OSError:
        return _quota_cores_v1(root / "cpu")
    return None if quota == "max" else int(quota) / int(period)


def _quota_cores_v1(directory: Path) -> float | None:
    try:
        quota = int((directory / "cpu.cfs_quota_us").read_text())
        period = int((directory / "cpu.cfs_period_us").read_text())
    except OSError:
        return None
    return None if quota < 0 else quota / period


def limit_threads(root: Path = CGROUP) -> None:
    """Before torch is imported: one thread per whole core of the quota, unless the user chose OMP_NUM_THREADS."""
    cores = quota_cores(root)
    if cores is not None:
        os.environ.setdefault(names.ENV_OMP_THREADS, str(max(1, int(cores))))
