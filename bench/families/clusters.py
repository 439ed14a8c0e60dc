"""Clusters whose machines are joined level by level: pairs in boxes in zones in regions, drawn by a seed.

Only this file knows the levels. A search sees links between whatever the topology calls a region: machines, boxes or
zones, with noise on every figure.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np
from hulk_placement.cost.closed_form.arrays import Ints
from hulk_placement.model import Model
from hulk_placement.model.presets import preset
from hulk_placement.topology import Link, Machine, Pair, Topology
from hulk_placement.workload import Workload

LINKS = {
    "pair": (2e-5, 12.5e9),
    "box": (1e-4, 3.1e9),
    "zone": (5e-4, 6e8),
    "region": (4e-3, 1.5e8),
    "world": (6e-2, 3e7),
}
"""Round trip in seconds and bytes a second between two machines that first meet at a level."""

SPEEDS = (1.4e14, 4e14, 6e13)
"""FLOP/s of the accelerators that mixed clusters are made of."""

MEMORY_BYTES = 80 << 30


@dataclass(frozen=True, slots=True)
class Level:
    """A level of the link hierarchy; each of its groups has so many of the level below, at first machines."""

    name: str
    num: int


@dataclass(frozen=True)
class Cluster:
    """Levels from the innermost on. `labels`: of how many of them the topology's regions are groups; 0: machines.

    `noise`: standard deviation of the logarithm of every figure. `mixed`: the level whose groups differ in speed.
    `degrees`: replicas and stages where they are asked for.
    """

    name: str
    levels: tuple[Level, ...]
    labels: int = 0
    accelerators: int = 1
    noise: float = 0.1
    mixed: str | None = None
    degrees: tuple[int, int] | None = None
    model: str = "gpt2-xl"
    global_batch: int = 512
    seed: int = 0

    @property
    def num_machines(self) -> int:
        """Of all groups."""
        return prod(level.num for level in self.levels)

    @cached_property
    def group_LM(self) -> Ints:
        """The group of each machine at each level, the innermost first; the last level has one group."""
        sizes = np.cumprod([level.num for level in self.levels])
        return np.arange(self.num_machines) // sizes[:, None]

    @cached_property
    def number_M(self) -> Ints:
        """The number of each machine in the topology, which has them in a drawn order."""
        order = list(range(self.num_machines))
        random.Random(self.seed).shuffle(order)
        return np.argsort(order)

    @cached_property
    def topology(self) -> Topology:
        """The machines, and the links between regions."""
        rng = random.Random(self.seed)
        group_LM, num = self.group_LM, self.num_machines
        region_M = np.arange(num) if self.labels == 0 else group_LM[self.labels - 1]
        first_R = np.unique(region_M, return_index=True)[1]
        kind_M = self._kinds(rng)
        machines = [
            Machine(f"m{m}", f"r{region_M[m]}", "", self.accelerators, "", MEMORY_BYTES, SPEEDS[kind_M[m]])
            for m in np.argsort(self.number_M).tolist()
        ]
        links: dict[Pair, Link] = {}
        for a, b in product(range(len(first_R)), repeat=2):
            links[f"r{a}", f"r{b}"] = self._link(rng, int(first_R[a]), int(first_R[b]))
        return Topology(tuple(machines), region_links=links)

    def _kinds(self, rng: random.Random) -> Ints:
        """Of each machine: which of the speeds."""
        if self.mixed is None:
            return np.zeros(self.num_machines, np.int64)
        (level,) = (number for number, level in enumerate(self.levels) if level.name == self.mixed)
        group_M = self.group_LM[level]
        kind_G: Ints = np.array([rng.randrange(len(SPEEDS)) for _ in range(group_M.max() + 1)])
        kind_M: Ints = kind_G[group_M]
        return kind_M

    def _link(self, rng: random.Random, a: int, b: int) -> Link:
        """Between two machines, or between those of one region."""
        meets = int((self.group_LM[:, a] == self.group_LM[:, b]).argmax()) if a != b else max(0, self.labels - 1)
        rtt_s, rate = LINKS[self.levels[meets].name]
        return Link(rtt_s * rng.lognormvariate(0, self.noise), rate * rng.lognormvariate(0, self.noise))

    @cached_property
    def workload(self) -> Workload:
        """One model on any of the machines."""
        data, pipeline = self.degrees or (None, None)
        candidates = {machine.name: machine.num_accelerators for machine in self.topology.machines}
        return Workload(
            "bench/job",
            Model.of(preset(self.model), "bf16"),
            self.global_batch,
            candidates,
            max_workers=sum(candidates.values()),
            data=data,
            pipeline=pipeline,
            tensor=1 if self.accelerators == 1 else None,
        )


def levels(**nums: int) -> tuple[Level, ...]:
    """Levels by their names, the innermost first."""
    return tuple(Level(name, num) for name, num in nums.items())


def drawn(short: bool = False) -> Iterator[Cluster]:
    """All clusters of the bench, or the few small ones."""
    yield Cluster("16 in boxes, 4 x 4", levels(box=4, zone=4), degrees=(4, 4), seed=1)
    yield Cluster("16 in boxes, 2 x 8", levels(box=4, zone=4), degrees=(2, 8), seed=2)
    yield Cluster("32 in zones, free", levels(box=4, zone=4, region=2), seed=3)
    yield Cluster("32, mixed boxes, 4 x 8", levels(box=4, zone=4, region=2), mixed="box", degrees=(4, 8), seed=4)
    near, far = levels(region=2), levels(world=2)
    yield Cluster("2 of 8, 4 x 4", near, accelerators=8, degrees=(4, 4), model="gpt2", global_batch=64, seed=23)
    yield Cluster("2 of 8, far, 4 x 4", far, accelerators=8, degrees=(4, 4), global_batch=64, seed=24)
    if short:
        return
    pairs = levels(pair=2, box=4, zone=2, world=4)
    yield Cluster("64 in pairs, 8 x 8", pairs, degrees=(8, 8), seed=5)
    yield Cluster("64 in pairs, 8 x 8, noisy", pairs, degrees=(8, 8), noise=0.3, seed=6)
    yield Cluster("64 in pairs, 16 x 4", pairs, degrees=(16, 4), seed=7)
    yield Cluster("64 in pairs, 4 x 16", pairs, degrees=(4, 16), seed=8)
    yield Cluster("64 in pairs, free", pairs, seed=9)
    yield Cluster("64 in pairs, mixed boxes, 8 x 8", pairs, mixed="box", degrees=(8, 8), seed=10)
    yield Cluster("64 in pairs, mixed zones, 8 x 8", pairs, mixed="zone", degrees=(8, 8), seed=11)
    yield Cluster("64, 4 of 8 in use, 4 x 8", levels(box=8, region=4, world=2), degrees=(4, 8), seed=12)
    zones = levels(box=8, zone=4, region=4)
    yield Cluster("128 in zones, 16 x 8", zones, degrees=(16, 8), seed=13)
    yield Cluster("128 in zones, 8 x 16", zones, degrees=(8, 16), noise=0.3, seed=14)
    yield Cluster("128 in zones, boxes known, free", zones, labels=1, seed=15)
    eight = levels(box=4, zone=4, region=2, world=2)
    yield Cluster("64 of 8, boxes known, free", eight, labels=1, accelerators=8, model="llama-3-8b", seed=16)
    yield Cluster(
        "64 of 8, mixed boxes, free", eight, labels=1, accelerators=8, mixed="box", model="llama-3-70b", seed=17
    )
    large = levels(box=8, zone=8, region=4)
    yield Cluster("256, boxes known, 32 x 8", large, labels=1, degrees=(32, 8), seed=18)
    yield Cluster("256, boxes known, 16 x 16, mixed", large, labels=1, degrees=(16, 16), mixed="box", seed=19)
    yield Cluster("256, boxes known, free", large, labels=1, seed=20)
    huge = levels(box=8, zone=8, region=4, world=4)
    yield Cluster("1,024, boxes known, 64 x 16", huge, labels=1, degrees=(64, 16), global_batch=1024, seed=21)
    yield Cluster("1,024, zones known, free", huge, labels=2, global_batch=1024, seed=22)
