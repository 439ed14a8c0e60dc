"""How a search grows with the cluster: every row in a process of its own, whose memory is then that row's alone."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.planner.cases import Case, searched

SECONDS, AT_ONCE_S = 1.0, 1e-3


@dataclass(frozen=True, slots=True)
class Grown:
    """A second's search, the time that tables and a plan take alone, and memory: without a cluster, and in the end."""

    num_evaluations: int
    least_cpu_s: float
    empty_bytes: int
    peak_bytes: int


def growth(console: Console, sizes: Sequence[int]) -> None:
    """A second's search on growing clusters."""
    headings = ("evaluations in 1 s", "CPU s of one without search", "MiB at most", "MiB without a cluster")
    table = Table("machines", "regions", *headings)
    spawn = multiprocessing.get_context("spawn")
    for num_machines in sizes:
        case = Case(0, num_machines, max(1, min(20, num_machines // 4)), "llama-3-8b")
        with spawn.Pool(1) as own:
            row = own.apply(grown, (case,))
        memory = (f"{num_bytes / 2**20:.0f}" for num_bytes in (row.peak_bytes, row.empty_bytes))
        figures = (f"{row.num_evaluations:,}", f"{row.least_cpu_s:.2f}", *memory)
        table.add_row(str(num_machines), str(case.num_regions), *figures)
    console.print("Growth, llama-3-8b", table)


def grown(case: Case) -> Grown:
    """One row, in a process that has done nothing else."""
    empty = peak_bytes()
    topology = case.topology()
    workload = case.workload(topology)
    least, second = searched(workload, topology, AT_ONCE_S), searched(workload, topology, SECONDS)
    return Grown(second.num_evaluations, least.cpu_s, empty, peak_bytes())


def peak_bytes() -> int:
    """The most memory that this process has held at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
