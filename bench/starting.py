"""The phases that simulated nodes cannot show: real pods that start and ranks that find each other.

In the geo lab, a job of one pod per node: split (the job is created -> its plan is committed), create (-> the last pod
is there), bind (-> the last pod has a node), start (-> the last container runs), connect (-> every rank is in the
group, which includes importing torch on a sixth of a core).

On this machine, one worker of many ranks: hulk-launch starts its slice in parallel; how long until the last rank runs.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from bench.api_server import connect
from bench.deployment import deployed
from bench.geo import NAMESPACE, TIMEOUT_S, Geo, geo_lab
from bench.raw import Raw
from bench.training import Size, job, rank0

SIZE = Size(layers=2, hidden=64, global_batch=6)
SLICES = (1, 10, 20, 64)
"""Ranks of one worker: 1,000 ranks as one pod per node on 100 and 50 nodes are slices of 10 and 20; 64 is the most."""
RANK = "import os, time; os.write(1, f'{time.monotonic()}\\n'.encode())"


@dataclass(frozen=True, slots=True)
class Phases:
    """Seconds that each phase of one job took after the one before it."""

    split_s: float
    create_s: float
    bind_s: float
    start_s: float
    connect_s: float


@dataclass(frozen=True, slots=True)
class Slice:
    """Seconds from the start of hulk-launch until the last of its ranks ran its first line."""

    num_ranks: int
    last_s: float


def run(num_runs: int) -> None:
    """Measure both and print a table of each."""
    console, raw = Console(highlight=False, width=120), Raw("start")
    slices = [start_slice(num_ranks) for _ in range(num_runs) for num_ranks in SLICES]
    for one in slices:
        raw.add(one, kind="slice")
    console.print(slices_table(slices))
    with geo_lab("A") as geo:
        geo.use_links("A")
        phases = [asyncio.run(measure(geo, f"start-{number + 1}")) for number in range(num_runs)]
    for found in phases:
        raw.add(found, kind="job")
    console.print(phases_table(phases))


async def measure(geo: Geo, name: str) -> Phases:
    """Run one job of one step, and look at it from outside."""
    selector = f"hulk.dev/job={name}"
    try:
        async with connect(geo.lab.control.kubeconfig) as bare:
            manifest = job(name, SIZE, 1, len(geo.node_names))
            timeline, asked, planned = await deployed(bare, NAMESPACE, manifest, TIMEOUT_S)
        connected = await asyncio.to_thread(_connected, geo, selector)
    finally:
        geo.delete("hulkjob", name, selector)
    created, bound, running = (max(at.values()) for at in (timeline.seen, timeline.bound, timeline.running))
    return Phases(planned - asked, created - planned, bound - created, running - bound, connected - running)


def _connected(geo: Geo, selector: str) -> float:
    """When rank 0 introduced the group, which it does once every rank has joined."""
    for line in geo.log_lines(rank0(geo, selector)):
        if line.startswith("job="):
            return time.monotonic()
    raise RuntimeError(f"rank 0 of {selector} ended before its group was connected")


def start_slice(num_ranks: int) -> Slice:
    """hulk-launch with ranks that only say when they run."""
    environment = {**os.environ, "PET_NNODES": "1", "PET_NPROC_PER_NODE": str(num_ranks), "PET_NODE_RANK": "0"}
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(RANK)
        script.flush()
        command = [sys.executable, "-m", "hulk_runtime.job.launcher", script.name]
        begun = time.monotonic()
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    moments = [float(line) for line in done.stdout.split()]
    if len(moments) != num_ranks:
        raise RuntimeError(f"{len(moments)} of {num_ranks} ranks said when they ran")
    return Slice(num_ranks, max(moments) - begun)


def phases_table(phases: list[Phases]) -> Table:
    """One column per phase."""
    table = Table("", *(name.removesuffix("_s") for name in asdict(phases[0])))
    table.title = f"geo lab, links A, one pod per node, {len(phases)} jobs (seconds, measured)"
    columns = [[asdict(found)[name] for found in phases] for name in asdict(phases[0])]
    for label, figure in (("median", statistics.median), ("largest", max)):
        table.add_row(label, *(f"{figure(column):.2f}" for column in columns))
    return table


def slices_table(slices: list[Slice]) -> Table:
    """One row per size of a slice."""
    table = Table("ranks of one worker", "last rank runs after s", "s per rank")
    table.title = f"hulk-launch on {os.cpu_count()} cores (medians, measured)"
    for num_ranks in SLICES:
        last_s = statistics.median(one.last_s for one in slices if one.num_ranks == num_ranks)
        table.add_row(str(num_ranks), f"{last_s:.2f}", f"{last_s / num_ranks:.3f}")
    return table
