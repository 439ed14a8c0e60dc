"""Clusters of boxes in zones in regions, and layouts on them, by chance: what the closed form is compared on.

A cluster has 2 to 4 levels. What two machines have between them goes by the lowest level that they share, with noise:
each level up its rate is a few times less and its round trip a few times more. Regions' links are shared by all their
machines; in some clusters each machine is a region of its own, as a search sees a cluster whose links are known one by
one, and has an uplink.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from hulk_placement.layouts.place import place
from hulk_placement.model import Layer, Model
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.solution import Budget
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Pair, Topology
from hulk_placement.workload import Workload

EVALUATIONS = 20_000
"""Of a search: layouts are good by then, and a machine's speed does not decide which they are."""

Address = tuple[int, ...]
"""Of a machine: its region, zone, box and place there, as far as the cluster has these levels."""


@dataclass(frozen=True, slots=True)
class Case:
    """A plan, and what it is for."""

    plan: Plan
    workload: Workload
    topology: Topology


def cluster(rng: random.Random, most: int = 64) -> Topology:
    """8 to `most` accelerators in 2 to 4 levels."""
    addresses = _addresses(rng, most)
    rates, trips_s = _levels(rng, len(addresses[0]))
    form = rng.choice(("regions", "machines", "own links"))
    speed, is_mixed = rng.choice((2e13, 1e14)), rng.random() < 0.4
    each = 4 if form == "regions" and rng.random() < 0.5 else 1
    machines = tuple(
        Machine(
            name="m" + "-".join(map(str, address)),
            region="r" + ("-".join(map(str, address)) if form == "machines" else str(address[0])),
            num_accelerators=each,
            flops_per_s=speed * (rng.choice((0.5, 1.0)) if is_mixed else 1.0),
        )
        for address in addresses
    )
    links: dict[Pair, Link] = {}
    for here, there in ((a, b) for a in range(len(machines)) for b in range(len(machines))):
        if here != there:
            level = _shared_levels(addresses[here], addresses[there])
            noise = rng.lognormvariate(0.0, 0.15)
            links[machines[here].name, machines[there].name] = Link(trips_s[level] * noise, rates[level] / noise)
    if form == "own links":
        regions = {machine.region for machine in machines}
        between = {(a, b): Link(trips_s[int(a == b)], rates[int(a == b)]) for a in regions for b in regions}
        return Topology(machines, links, between)
    regions_of = {machine.name: machine.region for machine in machines}
    between = {(regions_of[a], regions_of[b]): link for (a, b), link in links.items()}
    for region in regions_of.values():
        between.setdefault((region, region), Link(trips_s[-1], rates[-1]))
    uplinks = {region: rng.uniform(0.5, 2.0) * rates[rng.randrange(2)] for region in regions_of.values()}
    return Topology(machines, region_links=between, uplinks=uplinks if rng.random() < 0.5 else {})


def _addresses(rng: random.Random, most: int) -> list[Address]:
    num_levels = rng.randint(2, 4)
    while True:
        widths = [rng.choice((2, 2, 3, 4, 8)) for _ in range(num_levels)]
        if 8 <= math.prod(widths) <= most:
            break
    found: list[Address] = [()]
    for width in widths:
        found = [(*address, number) for address in found for number in range(width)]
    return found


def _levels(rng: random.Random, num_levels: int) -> tuple[list[float], list[float]]:
    """Bytes a second and round trips of pairs that share 0, 1, ... levels of their addresses."""
    rate, trip_s = 10 ** rng.uniform(9.5, 10.5), 10 ** rng.uniform(-5, -4)
    rates, trips_s = [rate], [trip_s]
    for _ in range(num_levels):
        rates.insert(0, rates[0] / rng.choice((2.0, 5.0, 10.0, 20.0)))
        trips_s.insert(0, trips_s[0] * rng.choice((2.0, 5.0, 20.0)))
    return rates, trips_s


def _shared_levels(one: Address, other: Address) -> int:
    num = 0
    while num < len(one) and one[num] == other[num]:
        num += 1
    return num


def model(rng: random.Random) -> Model:
    """Equal layers, from much computing for what they send to little."""
    num_layers = rng.choice((8, 16, 24))
    output = 2 ** rng.randint(18, 24)
    parameters, flops = 2 ** rng.randint(20, 26), 10 ** rng.uniform(10.5, 13)
    return Model(
        tuple(Layer(f"layer.{n}", parameters, flops, 2 * flops, output, 2 * output) for n in range(num_layers))
    )


def by_chance(seed: int) -> Case:
    """Any layout: machines level by level, across them, or in any order; replicas side by side or one by one."""
    rng = random.Random(seed)
    topology, trained = cluster(rng), model(rng)
    slots = [machine for machine in topology.machines for _ in range(machine.num_accelerators)]
    num_stages = rng.choice([num for num in (1, 2, 2, 4, 4, 8) if num <= min(len(slots), trained.num_layers)])
    num_replicas = rng.choice([num for num in (1, 2, 4, 4, 8, 8, 16) if num * num_stages <= len(slots)])
    layout = Layout(num_replicas, num_stages, 1)
    order = slots[:: len(slots) // (num_replicas * num_stages)] if rng.random() < 0.5 else slots
    if rng.random() < 0.3:
        rng.shuffle(order)
    cells = order[: num_replicas * num_stages]
    if rng.random() < 0.5:
        cells = [
            cells[stage * num_replicas + replica] for replica in range(num_replicas) for stage in range(num_stages)
        ]
    share = 2 ** rng.randint(1, 6)
    workload = _workload(trained, share * num_replicas, topology)
    plan = Plan(
        key=workload.key,
        attempt=1,
        workers=tuple(WorkerSlot(machine.name, machine.region, 1) for machine in cells),
        shares=(share,) * num_replicas,
        micro_batch=1,
        num_buckets=1,
        prediction=NOT_PREDICTED,
        layout=layout,
        stages=tuple(stage * trained.num_layers // num_stages for stage in range(num_stages)),
        schedule=rng.choice(("1f1b", "1f1b", "gpipe")),
        overlap=rng.random() < 0.8,
    )
    return Case(plan, workload, topology)


def found(seed: int, evaluations: int = EVALUATIONS) -> Case:
    """What the planner's own search comes to; most are asked for stages, which it would else often do without."""
    rng = random.Random(seed)
    topology, trained = cluster(rng), model(rng)
    num = sum(machine.num_accelerators for machine in topology.machines)
    pipeline = rng.choice([None, *(each for each in (2, 4, 4, 8) if each <= min(num, trained.num_layers))])
    workload = _workload(trained, num * 2 ** rng.randint(1, 4), topology)
    workload = replace(
        workload, pipeline=pipeline, min_workers=num - num % (pipeline or 1) if rng.random() < 0.5 else 1
    )
    plan = place(workload, topology, Budget(iterations=evaluations, seed=seed))
    assert isinstance(plan, Plan), plan
    return Case(plan, workload, topology)


def _workload(trained: Model, global_batch: int, topology: Topology) -> Workload:
    candidates = {machine.name: machine.num_accelerators for machine in topology.machines}
    num = sum(candidates.values())
    sync = Sync("ring")
    return Workload(
        "bench/job", trained, global_batch, candidates, max_workers=num, pipeline=None, micro_batch=1, sync=sync
    )
