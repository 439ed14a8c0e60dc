"""Plans by chance on clusters by chance: what the evaluator's two speeds are compared on, here and in tests."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hulk_placement.collective.classes import plan_collective
from hulk_placement.collective.network import build_network
from hulk_placement.model import Model
from hulk_placement.model.presets import preset
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload

MODELS = ("gpt2", "gpt2", "gpt2-xl", "bert-large", "opt-350m", "llama-3-8b")
ALGORITHMS = ("ring", "ring", "ring", "wan", "hierarchical", "nccl", "parameter-server")
SPEEDS = (2e13, 4e13, 1.4e14, 4e14)

Cluster = Callable[[int, int, int], Topology]
"""Seed, machines, regions."""


@dataclass(frozen=True, slots=True)
class Case:
    """One plan, and what it is for."""

    seed: int
    plan: Plan
    workload: Workload
    topology: Topology


def draw(seed: int, cluster: Cluster | None = None) -> Case:
    """A case: 2 to 32 machines in 1 to 5 regions, any algorithm and options, up to 8 replicas of up to 6 stages."""
    rng = random.Random(seed)
    num_regions = rng.randint(1, 5)
    topology = (cluster or made_up)(seed, rng.randint(max(2, num_regions), 32), num_regions)
    topology = _limited(rng, topology)
    model = Model.of(preset(rng.choice(MODELS), sequence_length=512), rng.choice(("fp32", "bf16")))
    algorithm = rng.choice(ALGORITHMS)
    num_machines = len(topology.machines)
    num_stages = 1 if algorithm == "wan" else rng.randint(1, min(6, num_machines))
    num_replicas = rng.randint(1 if num_stages > 1 else 2, max(2, min(8, num_machines // num_stages)))
    micro_batch = rng.choice((1, 2, 4))
    share = 2 ** rng.randint(0, 9)
    shares = [math.ceil(share * rng.uniform(0.5, 1.0)) for _ in range(num_replicas)]
    workload = Workload("drawn", model, sum(shares), {}, allow_unknown_links=True)
    plan = _plan(rng, topology, workload, Layout(num_replicas, num_stages, rng.choice((1, 1, 1, 4))))
    plan = replace(plan, shares=tuple(shares), micro_batch=micro_batch)
    return Case(seed, _reducing(rng, plan, algorithm, workload, topology), workload, topology)


def made_up(seed: int, num_machines: int, num_regions: int) -> Topology:
    """Regions on a map, as far as 250 ms from each other and back; 20 MB/s to 2 GB/s between them, each way its own."""
    rng = random.Random(seed)
    places = [(rng.random(), rng.random()) for _ in range(num_regions)]
    names = [f"region-{number}" for number in range(num_regions)]
    homes = names + rng.choices(names, k=num_machines - num_regions)
    machines = tuple(
        Machine(f"m{n}", home, num_accelerators=8, flops_per_s=rng.choice(SPEEDS))
        for n, home in enumerate(sorted(homes))
    )
    links = {}
    for a, here in zip(names, places, strict=True):
        for b, there in zip(names, places, strict=True):
            far = Link(0.002 + 0.175 * math.dist(here, there), 2e7 * 100 ** rng.random())
            links[a, b] = Link(rng.uniform(1e-4, 5e-4), rng.choice((1.25e9, 3.1e9, 1.25e10))) if a == b else far
    return Topology(machines, region_links=links)


def _limited(rng: random.Random, topology: Topology) -> Topology:
    """One flow gets a part of a link; half of all clusters have uplinks, around what the region's widest link does."""
    part, uplinks = rng.choice((None, 0.3, 0.1)), {}
    between = {pair: link for pair, link in topology.region_links.items() if pair[0] != pair[1]}
    if rng.random() < 0.5:
        for region in sorted({source for source, _ in between}):
            widest = max(link.bandwidth_bytes_per_s for (a, _), link in between.items() if a == region)
            uplinks[region] = widest * rng.uniform(0.5, 2.0)
    if part is not None:
        between = {p: replace(link, flow_bytes_per_s=part * link.bandwidth_bytes_per_s) for p, link in between.items()}
    return replace(topology, region_links={**topology.region_links, **between}, uplinks=uplinks)


def _plan(rng: random.Random, topology: Topology, workload: Workload, layout: Layout) -> Plan:
    """Machines region after region, replica after replica or stage after stage, or in any order; stages of any size."""
    order = sorted(topology.machines, key=lambda machine: (machine.region, machine.name))
    if rng.random() < 0.4:
        rng.shuffle(order)
    num_cells = layout.data * layout.pipeline
    cells = [order[number % len(order)] for number in range(num_cells)]
    if rng.random() < 0.5:
        cells = [
            cells[stage * layout.data + replica] for replica in range(layout.data) for stage in range(layout.pipeline)
        ]
    num_layers = workload.model.num_layers
    rings = [rng.sample(range(layout.data), layout.data) for _ in range(layout.pipeline)]
    return Plan(
        key=workload.key,
        attempt=0,
        workers=tuple(WorkerSlot(machine.name, machine.region, layout.tensor) for machine in cells),
        shares=(1,) * layout.data,
        micro_batch=1,
        num_buckets=rng.choice((1, 1, 2, 2, 5, 8)),
        prediction=NOT_PREDICTED,
        layout=layout,
        stages=(0, *sorted(rng.sample(range(1, num_layers), layout.pipeline - 1))),
        schedule=rng.choice(("1f1b", "gpipe")),
        rings=_tuples(rings) if rng.random() < 0.5 else (),
        overlap=rng.random() < 0.7,
        recompute=rng.random() < 0.25,
    )


def _tuples(rows: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in rows)


def _reducing(rng: random.Random, plan: Plan, algorithm: str, workload: Workload, topology: Topology) -> Plan:
    """The plan with an algorithm; sometimes the replicas come together only after some steps."""
    inner_steps = rng.choice((None, None, None, None, 8))
    if algorithm != "wan" or plan.layout.tensor > 1:
        return replace(plan, algorithm="ring" if algorithm == "wan" else algorithm, inner_steps=inner_steps)
    network = build_network(topology, plan.rank_machines, allow_unknown=True)
    if len(network.regions) < 2:
        return plan
    size = math.ceil(workload.model.gradient_bytes / plan.num_buckets)
    collective = plan_collective(network, (size,), with_alternatives=False)
    return replace(plan, algorithm="wan", collective=collective, inner_steps=inner_steps)
