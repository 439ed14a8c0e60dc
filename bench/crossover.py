"""From which link speed on a synchronous step pays, and local SGD below it: `python -m bench crossover`.

All figures are predictions of the planner, none measured. The links of each profile, two nodes a region, all
bandwidths multiplied by a factor; every node trains GPT-2 small at 1e13 FLOP/s on 64 sequences a step. Local SGD has 50
inner steps between two all-reduces. It always takes less time per step, as it sends less; `from` is where a synchronous
step no longer waits for more than a tenth of its computation. What local SGD does to the loss is another question:
`convergence` measures it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hulk_placement.collective.network import build_network
from hulk_placement.model import Model
from hulk_placement.plan import Plan
from hulk_placement.search.problem import Problem, build
from hulk_placement.search.why_wan import crossover
from hulk_placement.solve import solve
from hulk_placement.sync import Sync
from hulk_placement.topology import Machine, Topology
from hulk_placement.workload import Workload
from rich.console import Console
from rich.table import Table

from bench.allreduce.case import Case
from bench.allreduce.job import links
from bench.bench_solve import GPT

FACTORS = (1.0, 4.0, 16.0, 64.0, 256.0)
INNER_STEPS = 50
FLOPS_PER_S = 1e13
SEQUENCES_PER_NODE = 64
CASES = (*(Case(profile, (2, 2, 2)) for profile in "ABCD"), Case("E", (2, 2, 2, 2)))


@dataclass(frozen=True, slots=True)
class Steps:
    """Predicted seconds of a step over links of one speed."""

    compute_s: float
    synchronous_s: float
    local_s: float

    @property
    def waits(self) -> float:
        """What a synchronous step waits, in computations."""
        return self.synchronous_s / self.compute_s - 1


def run(cases: Sequence[Case] = CASES, factors: Sequence[float] = FACTORS) -> None:
    """Print one row per profile."""
    console = Console(highlight=False, width=160)
    console.print(
        f"GPT-2 small, {SEQUENCES_PER_NODE} sequences a node and step, {FLOPS_PER_S:.0e} FLOP/s a node; predicted, not "
        f"measured; seconds a step: synchronous / local with {INNER_STEPS} inner steps"
    )
    table = Table("links", "computes", *(f"x {factor:g}" for factor in factors), "from", "slowest link there, Mbit/s")
    for case in cases:
        table.add_row(*row(case, factors))
    console.print(table)


def row(case: Case, factors: Sequence[float]) -> list[str]:
    """One profile."""
    found = [steps(case, factor) for factor in factors]
    cells = [f"{each.synchronous_s:.2f} / {each.local_s:.2f}" for each in found]
    factor = from_factor(case)
    slowest = min(rate for rate, _ in case.links.values()) * 8 / 1e6
    there = ("never", "-") if factor is None else (f"x {factor:.3g}", f"{slowest * factor:.0f}")
    return [str(case), f"{found[0].compute_s:.2f}", *cells, *there]


def steps(case: Case, factor: float) -> Steps:
    """Both ways over the case's links at a factor."""
    synchronous, local = (plan(case, factor, mode).prediction for mode in ("wan", "local"))
    return Steps(synchronous.compute_s, synchronous.step_s, local.step_s)


def from_factor(case: Case) -> float | None:
    """The factor that plans name; None where latency alone is too much."""
    topology = world(case, 1.0)
    problem = build(job(topology, "wan"), topology)
    assert isinstance(problem, Problem)
    found = plan(case, 1.0, "wan")
    return crossover(problem, found, build_network(topology, found.rank_machines))


def plan(case: Case, factor: float, mode: str) -> Plan:
    """Of the job on all nodes."""
    topology = world(case, factor)
    asked = job(topology, mode)
    return solve([asked], [], topology).plans[asked.key]


def job(topology: Topology, mode: str) -> Workload:
    """GPT-2 small on every machine."""
    names = {machine.name: 1 for machine in topology.machines}
    asked = Workload("bench/gpt", Model.of(GPT), SEQUENCES_PER_NODE * len(names), names, max_workers=len(names))
    return replace(asked, min_workers=len(names), sync=Sync(mode, INNER_STEPS))


def world(case: Case, factor: float) -> Topology:
    """The case's nodes and links."""
    names = case.region_names
    machines = tuple(
        Machine(f"{region}-{number}", region, flops_per_s=FLOPS_PER_S)
        for region, count in zip(names, case.counts, strict=True)
        for number in range(count)
    )
    scaled = {
        (a, b): replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * (1.0 if a == b else factor))
        for (a, b), link in links(case).items()
    }
    return Topology(machines, region_links=scaled)
