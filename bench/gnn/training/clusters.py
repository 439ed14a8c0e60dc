"""Synthetic problems for training: clusters of regions anywhere on the globe, and mixes of jobs, drawn by a seed.

Round trips follow the distance over fibre with detours; rates fall with the round trip, as measured ones do (a median
of 5 Gbit/s below 20 ms, 3 beyond 100 ms), and are lower by what a VPN takes. Nothing is read from files.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from hulk_placement.model import Model, Transformer
from hulk_placement.topology import Link, Machine, Pair, Topology
from hulk_placement.workload import Workload

DATA_VERSION = "synthetic-1"

EARTH_RADIUS_M, FIBRE_M_PER_S = 6.371e6, 2.0e8
UNKNOWN_CHANCE = 0.03


@dataclass(frozen=True, slots=True)
class Kind:
    """Accelerators of a machine, memory of each, the speed that a step reaches."""

    num_accelerators: int
    memory_gib: int
    flops_per_s: float


KINDS = (
    Kind(8, 80, 4.0e14),
    Kind(8, 80, 1.4e14),
    Kind(8, 40, 1.4e14),
    Kind(4, 48, 1.2e14),
    Kind(4, 24, 4.0e13),
    Kind(8, 16, 4.5e13),
    Kind(4, 16, 2.2e13),
    Kind(1, 24, 3.0e13),
)

LAYERS, HIDDEN = (12, 24, 32, 48), (768, 1024, 1600, 2048, 2560, 4096)


def draw(rng: random.Random) -> tuple[Topology, list[Workload]]:
    """A cluster of 16 to 1,000 machines in 2 to 20 regions, and 2 to 6 jobs."""
    num_machines = round(math.exp(rng.uniform(math.log(16), math.log(1000))))
    num_regions = rng.randint(2, min(20, max(3, num_machines // 8)))
    topology = _cluster(rng, num_machines, num_regions)
    return topology, _jobs(rng, topology, rng.randint(2, 6))


def _cluster(rng: random.Random, num_machines: int, num_regions: int) -> Topology:
    places = [(math.asin(rng.uniform(-0.7, 0.9)), rng.uniform(-math.pi, math.pi)) for _ in range(num_regions)]
    own = [rng.sample(KINDS, rng.randint(1, 3)) for _ in places]
    machines = []
    for n in range(num_machines):
        region = n if n < num_regions else min(rng.randrange(num_regions) for _ in range(rng.randint(1, 2)))
        kind = rng.choice(own[region])
        machines.append(
            Machine(
                name=f"r{region}-{n}",
                region=f"r{region}",
                num_accelerators=kind.num_accelerators,
                memory_bytes=kind.memory_gib << 30,
                product=f"kind-{KINDS.index(kind)}",
                flops_per_s=kind.flops_per_s,
            )
        )
    return Topology(tuple(machines), region_links=_links(rng, places))


def _links(rng: random.Random, places: list[tuple[float, float]]) -> dict[Pair, Link]:
    slower = rng.uniform(3, 10)
    found: dict[Pair, Link] = {}
    for a, here in enumerate(places):
        for b, there in enumerate(places):
            if a == b:
                found[f"r{a}", f"r{a}"] = Link(rng.uniform(1e-4, 5e-4), rng.choice((1.25e9, 3.1e9, 12.5e9)))
            elif rng.random() >= UNKNOWN_CHANCE:
                rtt_s = 0.001 + 2 * _distance_m(here, there) * rng.uniform(1.2, 2.0) / FIBRE_M_PER_S
                gigabits = 5.0 * math.exp(rng.gauss(0, 0.35)) / (1 + rtt_s / 0.2)
                found[f"r{a}", f"r{b}"] = Link(rtt_s, gigabits * 1e9 / 8 / slower)
    return found


def _distance_m(here: tuple[float, float], there: tuple[float, float]) -> float:
    """Along the great circle."""
    (latitude, longitude), (other, away) = here, there
    between = math.sin(latitude) * math.sin(other) + math.cos(latitude) * math.cos(other) * math.cos(longitude - away)
    return EARTH_RADIUS_M * math.acos(max(-1.0, min(1.0, between)))


def _jobs(rng: random.Random, topology: Topology, num_jobs: int) -> list[Workload]:
    """Models of which the states of all together need a quarter of the memory at most."""
    candidates = {machine.name: machine.num_accelerators for machine in topology.machines}
    room = sum(machine.memory_bytes * machine.num_accelerators for machine in topology.machines) / num_jobs / 4
    jobs = []
    for number in range(num_jobs):
        shape = _shape(rng)
        while 20 * Model.of(shape).num_parameters > room and shape.hidden > HIDDEN[0]:
            shape = _shape(rng)
        jobs.append(
            Workload(
                key=f"train/{number}",
                model=Model.of(shape),
                global_batch=rng.choice((32, 64, 128, 256, 512, 1024)),
                candidates=candidates,
                max_workers=sum(candidates.values()),
                pipeline=None,
                tensor=None,
            )
        )
    return jobs


def _shape(rng: random.Random) -> Transformer:
    hidden = rng.choice(HIDDEN)
    return Transformer(rng.choice(LAYERS), hidden, hidden // 64, rng.choice((512, 1024, 2048)), vocabulary=50257)
