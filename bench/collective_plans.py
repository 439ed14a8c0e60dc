"""How quick and how good planning Hulk's own all-reduce is: `python -m bench flows`.

All figures are predictions by the chunk simulation, none measured; CPU seconds are of this machine. Networks are drawn
by a printed seed: measured cloud links where that table is beside the checkout (divided by a printed factor), else at
random. One row per number of regions: medians over networks of planning all sizes from 64 KiB to 64 MiB, and of a whole
plan, with other flows for links at half their rate; medians over networks and sizes of planning one size, and of the
predicted time over the physical bound, of the planned flows and of the plain ways (one hop, a hub, equal direct
exchange, the pipelined ring).
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence

import numpy as np
from hulk_placement.collective.candidates import plain
from hulk_placement.collective.classes import DEFAULT_SIZES, Planner, plan_collective
from hulk_placement.collective.network import Network, build_network
from hulk_placement.collective.simulation import simulate
from hulk_placement.collective.transport import TRANSPORT
from hulk_placement.topology import Link, Machine, Topology
from rich.console import Console
from rich.table import Table

from bench.bench_solve import cloud_links

SLOWER_FACTOR = 16
"""A job's part of a measured cloud link, so that bandwidth and latency both count at these sizes."""

NUM_REGIONS = (3, 4, 6, 10, 20)
NUM_NETWORKS = 3
AIMS_S = {6: 0.1, 20: 2.0}
WAYS = ("one hop", "hub", "direct exchange", "ring")


def run(seed: int = 1, num_regions: tuple[int, ...] = NUM_REGIONS) -> None:
    """Print one row per number of regions."""
    console = Console(highlight=False)
    source = f"measured cloud links / {SLOWER_FACTOR}"
    console.print(f"seed {seed}; {source}; 64 KiB to 64 MiB; predicted, not measured; x is over the physical bound")
    spent = ("whole plan, CPU s", "all sizes", "one size", "aim")
    table = Table("regions", *spent, "flows", "planned x", *[f"{way} x" for way in WAYS])
    for num in num_regions:
        table.add_row(*row([network(num, random.Random(f"{seed} {num} {n}")) for n in range(NUM_NETWORKS)]))
    console.print(table)


def row(networks: Sequence[Network]) -> list[str]:
    """Medians over the networks and sizes."""
    whole, seconds, flows, ratios = [], [], [], []
    others: dict[str, list[float]] = {way: [] for way in WAYS}
    for net in networks:
        start_s = time.process_time()
        plan_collective(net)
        whole.append(time.process_time() - start_s)
        planner = Planner(net)
        for size in reversed(DEFAULT_SIZES):  # as `plan_collective` does: each begins with the patterns of the last
            start_s = time.process_time()
            found = planner.size_class(size)
            seconds.append(time.process_time() - start_s)
            flows.append(len(found.flows))
            ratios.append(found.predicted_s / found.bound_s)
            for way, (_, plainly) in plain(net, size, TRANSPORT, found.chunk_bytes).items():
                others[way].append(simulate(net, plainly, size).seconds / found.bound_s)
    num = len(networks[0].regions)
    all_s = statistics.median(np.reshape(seconds, (len(networks), -1)).sum(axis=1).tolist())
    one_s = statistics.median(seconds)
    return [
        *(str(num), f"{statistics.median(whole):.2f}", f"{all_s:.2f}", f"{one_s:.3f}"),
        verdict(AIMS_S.get(num), all_s, one_s),
        *(str(round(statistics.median(flows))), f"{statistics.median(ratios):.2f}"),
        *(f"{statistics.median(found):.2f}" if found else "" for found in others.values()),
    ]


def verdict(aim_s: float | None, all_s: float, one_s: float) -> str:
    """Whether all sizes together, or one, take no longer than the aim."""
    if aim_s is None:
        return ""
    met = "met by all" if all_s <= aim_s else "met by one" if one_s <= aim_s else "missed"
    return f"<= {aim_s:g}: {met}"


def network(num_regions: int, draw: random.Random) -> Network:
    """One machine in each of some regions."""
    links = cloud_links(num_regions, draw)
    slower = {pair: Link(link.rtt_s, link.bandwidth_bytes_per_s / SLOWER_FACTOR) for pair, link in links.items()}
    names = sorted({region for pair in slower for region in pair})
    return build_network(Topology(tuple(Machine(name, name) for name in names), region_links=slower), names)
