"""What Hulk takes before it does anything: CPU of commands, memory of the operator's processes.

CPU: user and system time of a whole process, compiled bytecode and files in the page cache, on a simulated cluster of
100 nodes with a job of 10 pods, then of 1,000: what is read of those comes on top. Memory: resident, of the operator
and all its children (shared pages count in each), in turn at rest, while the process that plans is there, and after
that has ended, with those pods.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from hulk_lab.processes import wait_until
from rich.console import Console
from rich.table import Table

from bench.api_server import connect
from bench.deployment import TIMEOUT_S, Shape, deployed, job, removed
from bench.raw import Raw
from bench.simulated import NAMESPACE, Process, operator, resident_mib, simulated_lab, tree
from bench.verdicts import verdict

FEW, MANY = Shape(10, 10, 1), Shape(100, 1000, 1)
IDLE_S = 20
"""After so long the process that plans ends; an installation keeps it for minutes (`operator.plannerIdleSeconds`)."""

MOST_START_S, MOST_READ_S = 0.3, 0.6
MOST_MIB_AT_REST, MOST_MIB_WITH_PODS = 200, 300
READS = (f"status bench -n {NAMESPACE}", "topology", f"logs bench -n {NAMESPACE}")
COMPLETION = "completion of s"
STARTS = ("--help", "--version", COMPLETION)
ASKING_TO_COMPLETE = {"_HULK_COMPLETE": "complete_bash", "COMP_WORDS": "hulk s", "COMP_CWORD": "1"}


@dataclass(frozen=True, slots=True)
class Command:
    """CPU seconds of each run, with so many pods in the cluster."""

    arguments: str
    num_pods: int
    runs_s: list[float]


@dataclass(frozen=True, slots=True)
class Memory:
    """Of the operator, in MiB, with so many processes."""

    when: str
    mib: float
    num_processes: int


def cpu_s(arguments: str, kubeconfig: Path) -> float:
    """User and system time of `hulk` with some arguments. RuntimeError where it fails: simulated pods write no logs."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONDONTWRITEBYTECODE": ""}
    command = [str(Path(sys.executable).with_name("hulk"))]
    if arguments == COMPLETION:
        environment |= ASKING_TO_COMPLETE
    else:
        command += arguments.split()
    done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=60)
    if done.returncode and not arguments.startswith("logs"):
        raise RuntimeError(f"hulk {arguments}: code {done.returncode}: {done.stderr.decode()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def commands(kubeconfig: Path, num_pods: int, num_runs: int) -> list[Command]:
    """All of them in turn; a first round is not counted."""
    runs: dict[str, list[float]] = {arguments: [] for arguments in (*STARTS, *READS)}
    for _ in range(num_runs + 1):
        for arguments, found in runs.items():
            found.append(cpu_s(arguments, kubeconfig))
    return [Command(arguments, num_pods, found[1:]) for arguments, found in runs.items()]


def memory(when: str, process: Process) -> Memory:
    """Now."""
    return Memory(when, resident_mib(process), len(tree(process)))


async def deploy(kubeconfig: Path, shape: Shape) -> None:
    """The job, until all its pods run."""
    async with connect(kubeconfig) as bare:
        await deployed(bare, NAMESPACE, job(shape), TIMEOUT_S)


async def remove(kubeconfig: Path) -> None:
    """The job and its pods."""
    async with connect(kubeconfig) as bare:
        await removed(bare)


def run(short: bool) -> None:
    """Measure, print two tables and the verdicts."""
    console, raw = Console(highlight=False, width=130), Raw("light")
    found: list[Command] = []
    with simulated_lab() as lab, operator(lab, HULK_PLANNER_IDLE_SECONDS=str(IDLE_S)) as process:
        rows = [memory("at rest", process)]
        for shape in (FEW, MANY):
            asyncio.run(deploy(lab.control.kubeconfig, shape))
            rows.append(memory(f"{shape.num_pods} pods, planner's process", process))
            wait_until(lambda: len(tree(process)) <= rows[0].num_processes + 1, "planner's process gone", timeout_s=120)
            rows.append(memory(f"{shape.num_pods} pods", process))
            found += commands(lab.control.kubeconfig, shape.num_pods, 3 if short else 9)
            asyncio.run(remove(lab.control.kubeconfig))
    for row in rows:
        raw.add(row)
    for one in found:
        raw.add(one)
    console.print(memory_table(rows))
    console.print(command_table(found))
    console.print("\n".join(verdicts(rows, found)))


def memory_table(rows: list[Memory]) -> Table:
    """By moment."""
    view = Table("the operator", "processes", "MiB resident")
    for row in rows:
        view.add_row(row.when, str(row.num_processes), f"{row.mib:.0f}")
    return view


def command_table(found: list[Command]) -> Table:
    """By command."""
    view = Table("hulk", "pods", "CPU s, median", "least", "most")
    for one in found:
        view.add_row(one.arguments, str(one.num_pods), *(f"{f(one.runs_s):.2f}" for f in (statistics.median, min, max)))
    return view


def verdicts(rows: list[Memory], found: list[Command]) -> list[str]:
    """Beside the aims."""
    lines = [
        verdict(f"operator MiB, {rows[0].when}", rows[0].mib, "at most", MOST_MIB_AT_REST),
        verdict(f"operator MiB, {rows[-1].when}", rows[-1].mib, "at most", MOST_MIB_WITH_PODS),
    ]
    for one in found:
        aim = MOST_START_S if one.arguments in STARTS else MOST_READ_S
        lines.append(
            verdict(f"hulk {one.arguments}, {one.num_pods} pods, CPU s", statistics.median(one.runs_s), "at most", aim)
        )
    return lines
