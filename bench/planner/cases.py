"""What layouts are searched for: drawn clusters (`bench.clusters`) and published models; and one search, timed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from hulk_placement.layouts import portfolio
from hulk_placement.layouts.place import Search, place
from hulk_placement.model import Layer, Model
from hulk_placement.model.presets import preset
from hulk_placement.plan import Plan
from hulk_placement.solution import Budget
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

from bench import clusters

GLOBAL_BATCH = 1024
EIGHT = tuple(kind for kind in clusters.KINDS if kind.num_accelerators == 8)
SINGLE = tuple(
    clusters.Kind(kind.product, 1, kind.memory_bytes, kind.flops_per_s, kind.price_per_hour) for kind in clusters.KINDS
)


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster and a model, by what they are drawn from."""

    seed: int
    num_machines: int
    num_regions: int
    model: str

    def topology(self) -> Topology:
        """Machines of eight accelerators over regions that no part of Hulk was tuned on."""
        return clusters.draw(self.seed, self.num_machines, self.num_regions, kinds=EIGHT)

    def workload(self, topology: Topology) -> Workload:
        """Any layout of the model on any of the machines."""
        return free_workload(topology, Model.of(preset(self.model), "bf16"), GLOBAL_BATCH)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A plan's predicted step, and what finding it took; infinite where nothing was found."""

    step_s: float
    gap: float
    cpu_s: float
    num_evaluations: int
    layout: str


def free_workload(topology: Topology, model: Model, global_batch: int) -> Workload:
    """A job that leaves everything to the planner."""
    candidates = {machine.name: machine.num_accelerators for machine in topology.machines}
    return Workload(
        "bench/job", model, global_batch, candidates, max_workers=sum(candidates.values()), pipeline=None, tensor=None
    )


def small_model(num_layers: int, parameters: int, flops: float) -> Model:
    """A few equal layers."""
    name = partial("layer.{}".format)
    return Model(tuple(Layer(name(n), parameters, flops, 2 * flops, 1 << 20, 1 << 21) for n in range(num_layers)))


def searched(workload: Workload, topology: Topology, seconds: float, search: Search = portfolio.search) -> Outcome:
    """One search for so many seconds of this process's processor time, tables and plans made in them too."""
    started_s = time.process_time()
    budget = Budget(iterations=1 << 62, seconds=seconds)
    plan = place(workload, topology, budget, time.process_time, search)
    cpu_s = time.process_time() - started_s
    if not isinstance(plan, Plan):
        return Outcome(float("inf"), 0.0, cpu_s, 0, plan.reason)
    layout = f"{plan.layout.data} x {plan.layout.pipeline} x {plan.layout.tensor}"
    return Outcome(plan.prediction.step_s, plan.optimality_gap, cpu_s, plan.iterations, layout)
