"""How quick and how good planning Hulk's own all-reduce is: `python -m bench flows`.

All figures are predictions by the chunk simulation, none measured; CPU seconds are of this machine. Networks are drawn
by a printed seed: measured cloud links where that table is beside the checkout (divided by a printed factor), else at
random. One row per number of regions, medians over sizes from 64 KiB to 64 MiB: planning one size, and the predicted
time over the physical bound of the planned flows and of the plain ways (one hop, a hub, equal direct exchange, the
pipelined ring).
"""

from __future__ import annotations

import random
import statistics
import time

from hulk_placement.collective.candidates import plain
from hulk_placement.collective.classes import DEFAULT_SIZES, Planner
from hulk_placement.collective.network import Network, build_network
from hulk_placement.collective.simulation import simulate
from hulk_placement.collective.transport import TRANSPORT
from hulk_placement.topology import Link, Machine, Topology
from rich.console import Console
from rich.table import Table

from bench.bench_solve import LINKS, cloud_links, random_links

SLOWER_FACTOR = 16
"""A job's part of a measured cloud link, so that bandwidth and latency both count at these sizes."""

NUM_REGIONS = (3, 4, 6, 10, 20)
AIMS_S = {6: 0.1, 20: 2.0}
WAYS = ("one hop", "hub", "direct exchange", "ring")


def run(seed: int = 1, num_regions: tuple[int, ...] = NUM_REGIONS) -> None:
    """Print one row per number of regions."""
    console = Console(highlight=False)
    source = f"measured cloud links / {SLOWER_FACTOR}" if LINKS.exists() else "random links (no table of measured ones)"
    console.print(f"seed {seed}; {source}; 64 KiB to 64 MiB; predicted, not measured; x is over the physical bound")
    table = Table("regions", "plan one size, CPU s", "aim", "flows", "planned x", *[f"{way} x" for way in WAYS])
    for num in num_regions:
        table.add_row(*row(network(num, random.Random(f"{seed} {num}"))))
    console.print(table)


def row(net: Network) -> list[str]:
    """Medians over the sizes."""
    planner = Planner(net)
    seconds, flows, ratios = [], [], []
    others: dict[str, list[float]] = {way: [] for way in WAYS}
    for size in DEFAULT_SIZES:
        start_s = time.process_time()
        found = planner.size_class(size)
        seconds.append(time.process_time() - start_s)
        flows.append(len(found.flows))
        ratios.append(found.predicted_s / found.bound_s)
        for way, (_, plainly) in plain(net, size, TRANSPORT, found.chunk_bytes).items():
            others[way].append(simulate(net, plainly, size).seconds / found.bound_s)
    middle_s, aim_s = statistics.median(seconds), AIMS_S.get(len(net.regions))
    verdict = "" if aim_s is None else f"<= {aim_s:g}: {'met' if middle_s <= aim_s else 'missed'}"
    return [
        *(str(len(net.regions)), f"{middle_s:.3f}", verdict, str(round(statistics.median(flows)))),
        f"{statistics.median(ratios):.2f}",
        *(f"{statistics.median(found):.2f}" if found else "" for found in others.values()),
    ]


def network(num_regions: int, draw: random.Random) -> Network:
    """One machine in each of some regions."""
    links = cloud_links(num_regions, draw) if LINKS.exists() else random_links(num_regions, draw)
    slower = {pair: Link(link.rtt_s, link.bandwidth_bytes_per_s / SLOWER_FACTOR) for pair, link in links.items()}
    names = sorted({region for pair in slower for region in pair})
    return build_network(Topology(tuple(Machine(name, name) for name in names), region_links=slower), names)
