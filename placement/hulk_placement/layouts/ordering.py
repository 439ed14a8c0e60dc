"""The order of blocks in a plan's pipelines, searched for its own links: 1F1B and GPipe know none.

A pipeline becomes a placement of the room `schedule`: a stage's forward and backward block with their seconds,
transfers that keep the links between machines busy, and room for as many activations as the machine's memory holds
beside the rest. What is found is predicted like any other plan, and taken where that is better.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from hulk_placement.cost.closed_form.arrays import Floats, Layout, Setting
from hulk_placement.cost.closed_form.evaluate import memory_bytes
from hulk_placement.cost.closed_form.shares import num_batches
from hulk_placement.cost.money import judged
from hulk_placement.cost.pipelines import arrays_of, time_pipelines
from hulk_placement.cost.predict import predict
from hulk_placement.cost.simulation.replicas import replica_of
from hulk_placement.cost.simulation.step import Replica, Resource, Way
from hulk_placement.cost.simulation.ways import Ways
from hulk_placement.layouts.trials import Trial
from hulk_placement.plan import Block, Plan
from hulk_placement.schedule.found import Found
from hulk_placement.schedule.links import DeviceLink, with_links
from hulk_placement.schedule.placement import Block as Part
from hulk_placement.schedule.placement import Kind, Placement
from hulk_placement.schedule.search import scheduled
from hulk_placement.schedule.timing import Schedule
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

LEAST_BUBBLE = 0.005
"""Of a step: what waits less is left as it is."""

LEAST_GAIN = 0.001
"""Of a step: for less no order is written block by block."""

MOST_BLOCKS = 50_000
"""Of all stages and micro-batches together: a longer order is not written block by block."""


def timing_s(num_cells: int, num_batches: int) -> float:
    """About how many seconds it takes to find and time an order of blocks of so many cells, each with so many
    micro-batches: every event settles the rates of all transfers.

    6 us a block with 8 cells, 10 with 50, 20 with 128, measured.
    """
    return 2 * num_cells * num_batches * (5e-6 + 1.3e-7 * num_cells)


def plan_timing_s(plan: Plan) -> float:
    """As `timing_s`, of a plan's order."""
    return timing_s(plan.layout.data * plan.layout.pipeline, max(_nums_batches(plan)))


def trial_timing_s(trial: Trial, workload: Workload) -> float:
    """As `timing_s`, of the order that a single pipeline is open to; 0 where it is to none.

    Several share links, and how long that takes is not foreseen well: they get an order as far as there is time left.
    """
    num_stages, num = trial.shape.pipeline, math.ceil(workload.global_batch / trial.shape.option.cell_batch)
    is_open = workload.schedule is None and trial.shape.data == 1 < num_stages
    return timing_s(num_stages, num) if is_open and 2 * num_stages * num <= MOST_BLOCKS else 0.0


def reordered(plan: Plan, workload: Workload, topology: Topology, seconds: float | None = None, seed: int = 0) -> Plan:
    """The plan with the best order of blocks that a search finds, where a step is better with it.

    Without `seconds` a greedy one, found at once. One order serves all replicas, made for the one that takes longest,
    so they need as many micro-batches each. A workload that asks for a schedule keeps it.
    """
    numbers = _nums_batches(plan)
    num_blocks = 2 * plan.layout.pipeline * max(numbers)
    waits = plan.prediction.bubble_s > LEAST_BUBBLE * plan.prediction.step_s
    is_open = workload.schedule is None and plan.layout.pipeline > 1 and len(numbers) == 1 and plan.overlap
    if not is_open or num_blocks > MOST_BLOCKS or not waits:
        return plan
    try:
        found = searched(plan, workload, topology, seconds, seed)
    except ValueError:  # none keeps the memory, or none was found in time
        return plan
    other = replace(plan, schedule="explicit", blocks=blocks_of(found.schedule, plan.layout.pipeline))
    other = replace(other, prediction=predict(other, workload, topology))
    is_better = judged(other, workload) < judged(plan, workload)
    return other if is_better and other.prediction.step_s < plan.prediction.step_s * (1 - LEAST_GAIN) else plan


def _nums_batches(plan: Plan) -> set[int]:
    """How many micro-batches replicas have."""
    return {math.ceil(share / plan.cell_batch) for share in plan.shares}


def searched(plan: Plan, workload: Workload, topology: Topology, seconds: float | None, seed: int) -> Found:
    """The schedule found for the plan's slowest replica. ValueError where none keeps the memory."""
    setting, layout = arrays_of(plan, workload, topology)
    slowest = int(time_pipelines(plan, workload, topology).ends_DP.max(axis=1).argmax())
    ways = Ways(topology)
    replica = replica_of(plan, slowest, setting, layout, ways)
    placement = placement_of(replica, ways.resources)
    num = int(num_batches(setting, layout, slowest))
    memory = tuple(float(room) for room in rooms(setting, layout, num))
    return _kept(placement, num, memory, seconds, seed)


@lru_cache(maxsize=256)
def _kept(placement: Placement, num: int, memory: tuple[float, ...], seconds: float | None, seed: int) -> Found:
    """As `scheduled`; the same placement is not searched twice, such as that of layouts whose machines are alike."""
    if seconds is None:
        return scheduled(placement, num, memory, mode="fast")
    return scheduled(placement, num, memory, seconds, seed=seed)


def placement_of(replica: Replica, resources: tuple[Resource, ...]) -> Placement:
    """A replica as a placement, seconds as spans; each block holds one micro-batch's activations of its stage."""
    stages = range(len(replica.schedule.orders))
    forward = [Part(f"F{s}", (s,), float(replica.forward_s[s, 0]), 1.0, (s - 1,) if s else ()) for s in stages]
    backward = [
        Part(f"B{s}", (s,), float(replica.backward_s[s, 0]), -1.0, (len(stages) + k - 1,), Kind.BACKWARD)
        for k, s in enumerate(reversed(stages))
    ]
    names, links = _names(resources), dict[tuple[int, int], DeviceLink]()
    for s, (there, back) in enumerate(replica.ways):
        num_bytes = float(replica.boundary_bytes[s, 0])
        for way, ends in ((there, (s, s + 1)), (back, (s + 1, s))):
            shared = (names[number] for number in way.resources if _is_full(way, resources[number]))
            links[ends] = DeviceLink(*ends, num_bytes / way.bytes_per_s, way.latency_s, tuple(dict.fromkeys(shared)))
    return with_links(Placement(len(stages), (*forward, *backward)), links)


def _names(resources: tuple[Resource, ...]) -> list[str]:
    """What each is called: by its place; inside a region each pair of machines has a link of its own there."""
    places = [str(resource.place) for resource in resources]
    return [
        place if places.count(place) == 1 else f"{place}, pair {places[:n].count(place)}"
        for n, place in enumerate(places)
    ]


def _is_full(way: Way, resource: Resource) -> bool:
    """Whether two transfers at once would slow each other there."""
    return resource.bytes_per_s < 2 * way.bytes_per_s


def rooms(setting: Setting, layout: Layout, num: int) -> Floats:
    """Of each stage how many of `num` micro-batches its machines hold at once, the least of all replicas; (P,)."""
    num_replicas, num_stages = layout.machine_DP.shape
    everything = setting._replace(schedule=0)
    found = np.full(num_stages, float(num))
    for s in range(num_stages):
        low, high = layout.first_P[s], layout.first_P[s + 1]
        none, one = (memory_bytes(everything, low, high, s, num_stages, held) for held in (0, 1))
        for replica in range(num_replicas):
            left = float(setting.memory_K[setting.kind_M[layout.machine_DP[replica, s]]]) - none
            if one > none:
                found[s] = min(found[s], left // (one - none))
    return found


def blocks_of(schedule: Schedule, num_stages: int) -> tuple[tuple[Block, ...], ...]:
    """The order of each stage's blocks, as plans have it."""
    operations = schedule.operations.operations
    return tuple(
        tuple((operations[number].name[0], m) for number, m in schedule.order(stage)) for stage in range(num_stages)
    )
