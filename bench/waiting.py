"""What planning time earns: the search for one job by how long it runs, and for 100 jobs that are alike.

Predictions only. Seconds of searches are processor time of the one process that searches.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hulk_operator.planning.process import MAX_SEARCH_S, Problem, Search
from hulk_placement.model import Model, Transformer
from hulk_placement.solution import Budget
from hulk_placement.solve import solve
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from rich.console import Console
from rich.table import Table

from bench.planner.cases import Case
from bench.raw import Raw
from bench.verdicts import verdict

RUNS_S = {"1 minute": 60.0, "10 minutes": 600.0, "1 day": 86_400.0, "30 days": 30 * 86_400.0}
CASES = tuple(
    Case(seed, *size, model)
    for size in ((8, 8), (80, 5), (1000, 20))
    for seed, model in enumerate(("gpt2-xl", "llama-3-8b", "llama-3-70b", "t5-11b"))
)
NUM_SHORT = 8
"""Of the cases, where few minutes are asked for."""

NUM_JOBS = 100
SMALL = Transformer(layers=4, hidden=256, heads=4, sequence_length=128, vocabulary=256)
NUM_STEPS = 1000


@dataclass(frozen=True, slots=True)
class Row:
    """A run of so many seconds by the plan of all the work: what the search took, and what its step is."""

    case: str
    run_s: float
    search_s: float
    step_s: float
    whole_step_s: float


def long_and_short(console: Console, raw: Raw, cases: Sequence[Case] = CASES) -> None:
    """One job that any layout is allowed, as the operator plans it: the same job with more and with fewer steps."""
    rows = [row for case in cases for row in _rows(case)]
    table = Table("cluster, model", "all the work, s", *(f"{name}: s, longer step" for name in RUNS_S))
    table.title = f"one job alone, by how long it runs (searches of at most {MAX_SEARCH_S:g} s)"
    for row in rows:
        raw.add(row, question="long and short")
    for case in dict.fromkeys(row.case for row in rows):
        whole, *others = [row for row in rows if row.case == case]
        cells = (f"{row.search_s:.2f}, {row.step_s / row.whole_step_s - 1:.2%}" for row in others)
        table.add_row(case, f"{whole.search_s:.2f}", *cells)
    console.print(table)
    long = max(row.step_s / row.whole_step_s - 1 for row in rows if row.run_s >= RUNS_S["1 day"])
    console.print(verdict("longer step of runs of a day or more", long, "at most", 0.005))


def _rows(case: Case) -> Iterator[Row]:
    topology = case.topology()
    workload = case.workload(topology)
    name = f"{8 * case.num_machines}, {case.num_regions}: {case.model}"
    whole_s, whole_step_s = _searched(workload, topology, Budget())
    yield Row(name, float("inf"), whole_s, whole_step_s, whole_step_s)
    for run_s in RUNS_S.values():
        job = replace(workload, num_steps=run_s / whole_step_s)
        yield Row(name, run_s, *_searched(job, topology, Budget(seconds=MAX_SEARCH_S)), whole_step_s)


def _searched(job: Workload, topology: Topology, budget: Budget) -> tuple[float, float]:
    """Seconds that planning took, and those of a step."""
    started_s = time.process_time()
    plan = solve([job], [], topology, budget, time.process_time).plans[job.key]
    return time.process_time() - started_s, plan.prediction.step_s


def alike(console: Console, raw: Raw) -> None:
    """Jobs of two workers on 100 machines that are alike: searches in this process, then through the operator's own."""
    topology = equal_machines()
    table = Table("jobs of 2 workers", "CPU s", "searches", "step, ms", title="100 machines of 8 in 4 regions")
    for num in (1, NUM_JOBS):
        started_s = time.process_time()
        solution = solve(jobs(topology, num), [], topology, Budget(seconds=MAX_SEARCH_S), time.process_time)
        took_s = time.process_time() - started_s
        steps = sorted({f"{1e3 * plan.prediction.step_s:.3f}" for plan in solution.plans.values()})
        table.add_row(str(num), f"{took_s:.2f}", str(len(solution.readings)), ", ".join(steps))
    console.print(table)
    cold_s, *warm_s = asyncio.run(_through_a_process(topology))
    raw.add(Row("one job, cold process", 0.0, cold_s, 0.0, 0.0), question="alike")
    raw.add(Row("one job, warm process", 0.0, min(warm_s), 0.0, 0.0), question="alike")
    console.print(f"one job through the planner's process: {cold_s:.2f} s where it has to start (wall time)")
    console.print(verdict("one job through the planner's process, warm, s", min(warm_s), "at most", 0.3))


async def _through_a_process(topology: Topology) -> list[float]:
    """Wall seconds of the first search, which the process begins with, and of some more."""
    search, found = Search(Budget(), lambda: None), []
    try:
        for _ in range(6):
            started_s = time.perf_counter()
            await search.solve(Problem(tuple(jobs(topology, 1)), topology))
            found.append(time.perf_counter() - started_s)
    finally:
        search.close()
    return found


def equal_machines(num: int = 100, num_regions: int = 4) -> Topology:
    """Machines of 8 accelerators, as in the simulated clusters: nothing of their speed is known."""
    names = [f"region-{number}" for number in range(num_regions)]
    machines = tuple(Machine(f"node-{n:03}", names[n % num_regions], num_accelerators=8) for n in range(num))
    links = {(a, b): Link(0.02 if a != b else 2e-4, 1e9) for a in names for b in names}
    return Topology(machines, region_links=links)


def jobs(topology: Topology, num: int) -> list[Workload]:
    """Jobs that are alike."""
    candidates = {machine.name: machine.num_accelerators for machine in topology.machines}
    model = Model.of(SMALL)
    wish: dict[str, Any] = {"min_workers": 2, "max_workers": 2, "shares": "equal", "num_steps": NUM_STEPS}
    return [Workload(f"bench/{n:03}", model, 2, candidates, created_s=float(n), **wish) for n in range(num)]
