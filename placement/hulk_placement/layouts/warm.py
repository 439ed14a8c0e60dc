"""Compiles everything that planning calls: one small job on two small regions, planned and predicted."""

from __future__ import annotations

from hulk_placement.layouts.place import place
from hulk_placement.model import Model, Transformer
from hulk_placement.search.problem import Budget
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload

NUM_EVALUATIONS = 10_000
"""Enough to come to the annealing."""


def warm() -> None:
    """Plan the job; every compiled function is in the cache then."""
    machines = tuple(Machine(f"{region}-{n}", region, flops_per_s=1e12) for region in ("a", "b") for n in range(2))
    links = {(a, b): Link(0.01, 1e8) for a in ("a", "b") for b in ("a", "b")}
    model = Model.of(Transformer(layers=2, hidden=8, heads=2, sequence_length=8, vocabulary=16))
    job = Workload("warm/up", model, 8, {m.name: 1 for m in machines}, max_workers=4, pipeline=None, tensor=None)
    place(job, Topology(machines, region_links=links), Budget(NUM_EVALUATIONS), clock=lambda: 0.0)
