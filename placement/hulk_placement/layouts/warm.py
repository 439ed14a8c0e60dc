"""Compiles what planning one job calls: a small job on two small regions, planned, predicted and simulated."""

from __future__ import annotations

import numpy as np

from hulk_placement.cost.simulate import simulate
from hulk_placement.layouts.cycles import MOST_EXACT, shortest_cycle
from hulk_placement.layouts.place import place
from hulk_placement.model import Model, Transformer
from hulk_placement.plan import Plan
from hulk_placement.solution import Budget
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload

NUM_EVALUATIONS = 10_000
"""Enough to come to the annealing."""


def warm() -> None:
    """Plan the job; every compiled function that it needs is in the cache then."""
    job, topology = small()
    plan = place(job, topology, Budget(NUM_EVALUATIONS), clock=lambda: 0.0)
    assert isinstance(plan, Plan), plan
    simulate(plan, job, topology)
    for num_regions in (3, MOST_EXACT + 1):
        shortest_cycle(np.ones((num_regions, num_regions)), tuple(range(num_regions)))


def small() -> tuple[Workload, Topology]:
    """The job and the regions."""
    machines = tuple(Machine(f"{region}-{n}", region, flops_per_s=1e12) for region in ("a", "b") for n in range(2))
    links = {(a, b): Link(0.01, 1e8) for a in ("a", "b") for b in ("a", "b")}
    model = Model.of(Transformer(layers=2, hidden=8, heads=2, sequence_length=8, vocabulary=16))
    job = Workload("warm/up", model, 8, {m.name: 1 for m in machines}, max_workers=4, pipeline=None, tensor=None)
    return job, Topology(machines, region_links=links)
