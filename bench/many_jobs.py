"""How soon 100 jobs of two workers run on 100 simulated nodes that are alike, and how soon one does.

Seconds from the creation of the first job until the operator has planned the last one, and until that is Running, as
its status says; and the processor's seconds of the operator and of its planner's process until then, which other
programs on the machine lengthen less. All jobs come at once.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.api_server import Bare, connect
from bench.deployment import Shape, hulk_jobs
from bench.deployment import job as manifest_of
from bench.raw import Raw
from bench.simulated import NAMESPACE, Process, operator, simulated_lab, tree
from bench.verdicts import verdict

NUM_JOBS = 100
SHAPE = Shape(num_nodes=1, num_pods=2, accelerators_per_pod=1)
TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class Seconds:
    """From the creation of the first job until all were created, until the last had a plan, and until it ran."""

    created_s: float
    planned_s: float
    running_s: float
    operator_cpu_s: float
    planner_cpu_s: float


def main(num_runs: int = 5) -> None:
    """Measure and print."""
    console, raw = Console(highlight=False, width=130), Raw("many_jobs")
    with simulated_lab() as lab, operator(lab) as process:
        rows = asyncio.run(measured(lab.control.kubeconfig, process, num_runs, raw))
    table = Table("jobs of 2 workers", "created", "planned", "running", "operator CPU", "planner CPU")
    table.title = "seconds, medians; simulated nodes"
    for what, found in rows.items():
        medians = (statistics.median(getattr(one, name) for one in found) for name in Seconds.__slots__)
        table.add_row(what, *(f"{median_s:.2f}" for median_s in medians))
    console.print(table)
    slowest_s = statistics.median(one.running_s for one in rows[f"{NUM_JOBS}"])
    console.print(verdict(f"{NUM_JOBS} jobs running, s", slowest_s, "at most", 8))


async def measured(kubeconfig: Path, process: Process, num_runs: int, raw: Raw) -> dict[str, list[Seconds]]:
    """The first job after the operator's start, single jobs after that, and many at once."""
    found: dict[str, list[Seconds]] = {"1, no planner's process": [], "1": [], f"{NUM_JOBS}": []}
    async with connect(kubeconfig) as bare:
        for what, num, runs in zip(found, (1, 1, NUM_JOBS), (1, num_runs, num_runs), strict=True):
            for run in range(runs):
                found[what].append(await until_all_run(bare, process, f"jobs-{len(what)}-{run}", num))
                raw.add(found[what][-1], jobs=what)
    return found


async def until_all_run(bare: Bare, process: Process, prefix: str, num: int) -> Seconds:
    """Create so many jobs at once, wait until all run, and delete them."""
    planned: dict[str, float] = {}
    running: dict[str, float] = {}
    ready = asyncio.Event()

    async def watch() -> None:
        async for event in bare.watch(hulk_jobs(NAMESPACE), ready=ready):
            name, status = event["object"]["metadata"]["name"], event["object"].get("status", {})
            if name.startswith(prefix) and status.get("plan"):
                planned.setdefault(name, time.monotonic())
            if name.startswith(prefix) and status.get("phase") == "Running":
                running.setdefault(name, time.monotonic())
            if len(running) == num:
                return

    watching = asyncio.create_task(watch())
    await ready.wait()
    begun_s, used_s = time.monotonic(), cpu_s(process)
    created_s = await bare.create_all(hulk_jobs(NAMESPACE), [manifest(f"{prefix}-{n:03}") for n in range(num)])
    async with asyncio.timeout(TIMEOUT_S):
        await watching
    ended_s = cpu_s(process)
    await bare.delete_all(hulk_jobs(NAMESPACE), "")
    await bare.delete_all(f"/api/v1/namespaces/{NAMESPACE}/pods", "hulk.dev/job")
    seconds = (created_s, max(planned.values()) - begun_s, max(running.values()) - begun_s)
    return Seconds(*seconds, *(ended - used for ended, used in zip(ended_s, used_s, strict=True)))


def cpu_s(process: Process) -> tuple[float, float]:
    """Processor's seconds of a process until now, and of all that come from it."""
    used = {}
    for pid in tree(process):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used.pop(process.pid), sum(used.values())


def manifest(name: str) -> dict[str, Any]:
    """A job of two workers, 32 pods of which have room on a node by their cpu."""
    found = manifest_of(SHAPE)
    container = {"name": "worker", "image": "bench", "resources": {"requests": {"cpu": "2"}}}
    found["metadata"]["name"] = name
    found["spec"]["template"]["spec"]["containers"] = [container]
    return found


if __name__ == "__main__":
    main()
