"""Closed forms beside the event simulation, on rings over links that are drawn by a seed. Nothing here was measured."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from hulk_placement.cost.gloo_rings import ring_times
from hulk_placement.cost.groups import Group
from hulk_placement.topology import Link, Machine, Topology

from bench.gloo_model.buckets import Bucket, Gradients, ddp_seconds, ddp_simulated
from bench.gloo_model.events import Collective, simulate


@dataclass(frozen=True, slots=True)
class Errors:
    """Closed form against simulation: the mean of the absolute relative errors, and the extreme ones."""

    mean: float
    least: float
    most: float


def errors(found: Sequence[float]) -> Errors:
    """Of relative errors."""
    return Errors(statistics.mean(map(abs, found)), min(found), max(found))


def ring(draw: random.Random) -> tuple[Topology, tuple[str, ...]]:
    """Two to four regions of one to three machines, in region order or shuffled."""
    names, per_region = "PQRS"[: draw.randint(2, 4)], draw.randint(1, 3)
    machines = tuple(Machine(f"{a}{i}", a) for a in names for i in range(per_region))
    links = {
        (a, b): Link(draw.uniform(0.01, 0.3), 10 ** draw.uniform(5.8, 8.5)) for a in names for b in names if a != b
    }
    order = [machine.name for machine in machines]
    if draw.random() < 0.5:
        draw.shuffle(order)
    return Topology(machines, region_links=links | {(a, a): Link(0.0002, 1e9) for a in names}), tuple(order)


def rings(num_buckets: int, num: int, seed: int = 5) -> Errors:
    """Equal buckets of 128 KiB to 64 MiB that all begin at once."""
    draw, found = random.Random(seed), []
    for _ in range(num):
        (topology, order), num_bytes = ring(draw), int(2 ** draw.uniform(17, 26))
        closed_s = ring_times([Group(order, num_bytes * num_buckets, num_buckets)], topology)[0].seconds
        simulated_s = max(simulate([Collective(order, num_bytes)] * num_buckets, topology))
        found.append(closed_s / simulated_s - 1)
    return errors(found)


def buckets(equal: bool, num: int, seed: int = 5) -> Errors:
    """One to eight buckets of 128 KiB to 16 MiB that become ready evenly over a backward pass of 0 to 3 s.

    Errors are of what is waited after the pass.
    """
    draw, found = random.Random(seed), []
    for _ in range(num):
        (topology, order), num_buckets = ring(draw), draw.randint(1, 8)
        sizes = [int(2 ** draw.uniform(17, 24)) for _ in range(num_buckets)]
        backward_s = draw.choice((0.0, 0.3, 1.0, 3.0))
        gradients = Gradients(
            order,
            tuple(
                Bucket(sizes[0] if equal else sizes[i], -backward_s * (num_buckets - 1 - i) / num_buckets)
                for i in range(num_buckets)
            ),
        )
        closed_s, simulated_s = (seconds([gradients], topology)[0] for seconds in (ddp_seconds, ddp_simulated))
        found.append(closed_s / simulated_s - 1)
    return errors(found)
