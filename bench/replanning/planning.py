"""A machine of a drawn cluster is lost -> how long the next plan of the job on it takes; nothing is run.

Question and budget are the operator's: workers that are left wait on their machines, and the job may have any number.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from hulk_operator.planning.process import budget_for
from hulk_placement.plan import Plan
from hulk_placement.solution import Budget
from hulk_placement.topology import Topology
from rich.table import Table

from bench.bench_solve import planned, workload, world
from bench.replanning.loss import MAX_PLAN_S

SIZES = ((6, 3), (32, 4), (100, 5), (300, 8), (1000, 15))
"""Machines, regions."""
NUM_LOSSES = 5


def table(sizes: Sequence[tuple[int, int]], seed: int = 1) -> Table:
    """One row per size: the median and the worst of some losses, each of another machine."""
    title = (
        f"simulated clusters, seed {seed}: seconds of the next plan after the loss of a machine (limit {MAX_PLAN_S:g})"
    )
    view = Table("machines", "regions", "first plan s", "next plan s", "worst", "step, next / first", title=title)
    for num_machines, num_regions in sizes:
        view.add_row(*_row(num_machines, num_regions, random.Random(f"{seed} {num_machines} {num_regions}")))
    return view


def _row(num_machines: int, num_regions: int, draw: random.Random) -> list[str]:
    topology = world(num_machines, num_regions, draw)
    first, first_s = planned(workload(topology), topology)
    members = sorted(first.accelerators())
    after = [next_plan(first, topology, lost) for lost in draw.sample(members, min(NUM_LOSSES, len(members)))]
    seconds = [each_s for _, each_s in after]
    ratio = median(plan.prediction.step_s for plan, _ in after) / first.prediction.step_s
    figures = (first_s, median(seconds), max(seconds), ratio)
    return [str(num_machines), str(num_regions), *(f"{figure:.2f}" for figure in figures)]


def next_plan(plan: Plan, topology: Topology, lost: str) -> tuple[Plan, float]:
    """The plan without a machine that the plan uses, and the seconds it took; its other workers wait where they are."""
    held = {machine: count for machine, count in plan.accelerators().items() if machine != lost}
    left = (machine for machine in topology.machines if machine.name != lost)
    free = tuple(replace(m, num_accelerators=m.num_accelerators - held.get(m.name, 0)) for m in left)
    links = {pair: link for pair, link in topology.node_links.items() if lost not in pair}
    asked = workload(topology)
    candidates = {name: num for name, num in asked.candidates.items() if name != lost}
    asked = replace(asked, candidates=candidates, kept=held)
    return planned(asked, replace(topology, machines=free, node_links=links), budget_for([asked], Budget()))
