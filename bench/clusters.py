"""Clusters over measured cloud links, drawn by a seed: what searches are compared on, by benchmarks and tests alike.

Links are those of `bench/data/links.csv`: round trips and rates between cloud regions, measured with 64 connections
between large machines. A VPN between sites gets 4 to 8 times less; each cluster draws its own factor.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from hulk_placement.topology import Link, LinkKind, Machine, Pair, Topology

from bench.data import LINKS

TEST_SHARE = 1 / 3
"""Of all regions: only clusters of the test set may have them."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A machine that clusters are made of: accelerators, memory of each, speed that a training step reaches."""

    product: str
    num_accelerators: int
    memory_bytes: int
    flops_per_s: float
    price_per_hour: float


KINDS = (
    Kind("NVIDIA-H100-80GB-HBM3", 8, 80 << 30, 4.0e14, 4.0),
    Kind("NVIDIA-A100-SXM4-80GB", 8, 80 << 30, 1.4e14, 2.0),
    Kind("NVIDIA-A100-SXM4-40GB", 8, 40 << 30, 1.4e14, 1.6),
    Kind("NVIDIA-L40S", 4, 48 << 30, 1.2e14, 1.1),
    Kind("NVIDIA-A10G", 4, 24 << 30, 4.0e13, 0.6),
    Kind("Tesla-V100-SXM2-16GB", 8, 16 << 30, 4.5e13, 0.8),
    Kind("Tesla-T4", 4, 16 << 30, 2.2e13, 0.3),
)


@cache
def measured() -> Mapping[Pair, tuple[float, float]]:
    """Round trip (s) and rate (bytes/s) of every directed pair with both figures."""
    with LINKS.open() as lines:
        return {
            (row["src_region"], row["dst_region"]): (float(row["rtt_ms"]) / 1e3, float(row["gbps"]) * 1e9 / 8)
            for row in csv.DictReader(lines)
            if row["gbps"] and row["rtt_ms"] and float(row["gbps"]) > 0 and float(row["rtt_ms"]) > 0
        }


def regions(unseen: bool) -> list[str]:
    """The regions that clusters are drawn from; `unseen`: also those kept for testing."""
    names = sorted({name for pair in measured() for name in pair})
    shuffled = random.Random(0).sample(names, len(names))
    return shuffled if unseen else shuffled[int(len(shuffled) * TEST_SHARE) :]


def draw(
    seed: int, num_machines: int, num_regions: int, unseen: bool = True, kinds: tuple[Kind, ...] = KINDS
) -> Topology:
    """A cluster of so many machines, at least one in each of so many regions; each region has one to three kinds."""
    rng = random.Random(seed)
    chosen = rng.sample(regions(unseen), num_regions)
    slower = rng.uniform(4, 8)
    sizes = _sizes(rng, num_machines, num_regions)
    machines = []
    for region, size in zip(chosen, sizes, strict=True):
        own = rng.sample(kinds, min(len(kinds), rng.randint(1, 3)))
        for number in range(size):
            kind = own[number * len(own) // size]
            machines.append(
                Machine(
                    name=f"{region}-{number}",
                    region=region,
                    num_accelerators=kind.num_accelerators,
                    product=kind.product,
                    memory_bytes=kind.memory_bytes,
                    flops_per_s=kind.flops_per_s,
                )
            )
    return Topology(tuple(machines), region_links=_links(rng, chosen, slower))


def _sizes(rng: random.Random, num_machines: int, num_regions: int) -> list[int]:
    """Machines of each region: one at least, the rest as chance has it."""
    weights = [rng.uniform(0.2, 1.0) for _ in range(num_regions)]
    sizes = [1] * num_regions
    for region in rng.choices(range(num_regions), weights, k=num_machines - num_regions):
        sizes[region] += 1
    return sizes


def _links(rng: random.Random, chosen: list[str], slower: float) -> dict[Pair, Link]:
    found = {}
    for source in chosen:
        for target in chosen:
            if source == target:
                found[source, target] = Link(rng.uniform(1e-4, 5e-4), rng.choice((1.25e9, 3.1e9, 12.5e9)))
            elif (source, target) in measured():
                rtt_s, rate = measured()[source, target]
                found[source, target] = Link(rtt_s, rate / slower, num_streams=64, kind=LinkKind.MEASURED)
    return found
