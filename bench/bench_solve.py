"""How good and how quick planning is: `python -m bench.bench_solve [--seed N]`.

All figures are predictions by the planner's own evaluator, none measured. Worlds are drawn by a printed seed. Regions
and links are measured cloud links, divided by a printed factor, as a ring sees a fraction of 64 connections. Every row
compares orders of all machines, so that only the order differs; the last columns say what leaving machines out adds.
"""

from __future__ import annotations

import argparse
import csv
import random
import time
from collections.abc import Mapping
from dataclasses import replace

from hulk_placement.model import Model, Transformer
from hulk_placement.plan import Plan
from hulk_placement.search.baselines import BASELINES, name_order
from hulk_placement.search.evaluate import Order, evaluate
from hulk_placement.search.problem import Problem, build
from hulk_placement.search.sizes import NUM_BUCKETS
from hulk_placement.solution import Budget
from hulk_placement.solve import solve
from hulk_placement.topology import Link, Machine, Pair, Topology
from hulk_placement.workload import Workload
from rich.console import Console
from rich.table import Table

from bench import waiting
from bench.data import LINKS
from bench.raw import Raw

CONNECTIONS_FACTOR = 6
OWN_PAIRS = 2  # measured machine pairs per region pair, as elected pairs are
SIZES = ((6, 3), (9, 3), (32, 4), (100, 5), (300, 8), (1000, 5), (1000, 20))  # machines, regions
NUM_SHORT = 4
"""Of the sizes, where few minutes are asked for."""
NUM_RANDOM_ORDERS = 100
ORDERS = {**BASELINES, "name": name_order}
GPT = Transformer(layers=12, hidden=768, heads=12, sequence_length=1024, vocabulary=50257)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    run(seed=parser.parse_args().seed)


def run(short: bool = False, seed: int = 1) -> None:
    """Print what planning time earns, then one row per size of the worlds of a seed."""
    console, raw = Console(highlight=False, width=160), Raw("solve")
    waiting.alike(console, raw)
    waiting.long_and_short(console, raw, waiting.CASES[: waiting.NUM_SHORT] if short else waiting.CASES)
    source = f"measured cloud links / {CONNECTIONS_FACTOR}"
    console.print(f"seed {seed}; {source}; GPT-2 small, 8 sequences a machine; predicted seconds, not measured")
    table = Table("machines", "regions", "planned s", *[f"{name} x" for name in ORDERS], "random x", "gap", "solve s")
    for column in ("workers kept", "step s", "gap", "solve s", "iterations"):
        table.add_column(column)
    for num_machines, num_regions in SIZES[: NUM_SHORT if short else len(SIZES)]:
        table.add_row(*row(num_machines, num_regions, random.Random(f"{seed} {num_machines} {num_regions}")))
    console.print(table)


def row(num_machines: int, num_regions: int, draw: random.Random) -> list[str]:
    """All machines in the planned order against the other orders; then the planner's own choice of machines."""
    topology = world(num_machines, num_regions, draw)
    free = workload(topology)
    fixed = replace(free, min_workers=num_machines)
    problem = build(fixed, topology)
    assert isinstance(problem, Problem)
    whole, whole_s = planned(fixed, topology)
    ratios = [best_s(problem, order(problem)) / whole.prediction.step_s for order in ORDERS.values()]
    ratios.append(best_random_s(problem, draw) / whole.prediction.step_s)
    chosen, chosen_s = planned(free, topology)
    return [
        *(str(num_machines), str(num_regions), f"{whole.prediction.step_s:.2f}"),
        *(f"{ratio:.2f}" for ratio in ratios),
        *(f"{whole.optimality_gap:.1%}", f"{whole_s:.2f}"),
        *(str(len(chosen.workers)), f"{chosen.prediction.step_s:.2f}", f"{chosen.optimality_gap:.1%}"),
        *(f"{chosen_s:.2f}", str(chosen.iterations)),
    ]


def planned(job: Workload, topology: Topology, budget: Budget | None = None) -> tuple[Plan, float]:
    """The job's plan and the seconds it took to make."""
    start = time.perf_counter()
    plan = solve([job], [], topology, budget).plans[job.key]
    return plan, time.perf_counter() - start


def best_s(problem: Problem, order: Order) -> float:
    """Predicted step of an order with the better number of buckets."""
    return min(evaluate(problem, order, buckets) for buckets in NUM_BUCKETS)


def best_random_s(problem: Problem, draw: random.Random) -> float:
    """The best of some random orders of all machines."""
    machines = range(len(problem.names))
    return min(best_s(problem, tuple(draw.sample(machines, len(machines)))) for _ in range(NUM_RANDOM_ORDERS))


def workload(topology: Topology) -> Workload:
    """GPT-2 small on any number of the machines."""
    names = {machine.name: 1 for machine in topology.machines}
    return Workload("bench/gpt", Model.of(GPT), 8 * len(names), names, max_workers=len(names))


def world(num_machines: int, num_regions: int, draw: random.Random) -> Topology:
    """Machines of different speeds spread over regions; a few machine pairs measured for each region pair."""
    between = cloud_links(num_regions, draw)
    regions = sorted({region for pair in between for region in pair})
    machines = tuple(
        Machine(f"node-{number:04d}", regions[number % num_regions], flops_per_s=draw.choice((1e13, 2e13, 3e13)))
        for number in range(num_machines)
    )
    members = {region: [m.name for m in machines if m.region == region] for region in regions}
    own: dict[Pair, Link] = {}
    for (source, target), link in between.items():
        for _ in range(OWN_PAIRS):
            pair = (draw.choice(members[source]), draw.choice(members[target]))
            own[pair] = Link(link.rtt_s * draw.uniform(1, 1.05), link.bandwidth_bytes_per_s * draw.uniform(0.9, 1))
    inside = {(region, region): Link(0.0005, 1.2e9) for region in regions}
    return Topology(machines, node_links=own, region_links=inside)


def cloud_links(num_regions: int, draw: random.Random) -> Mapping[Pair, Link]:
    """Links between some regions of the measured table, both directions of every pair known."""
    rows = [row for row in csv.DictReader(LINKS.open()) if row["gbps"] and row["rtt_ms"]]
    table = {
        (row["src_region"], row["dst_region"]): Link(
            float(row["rtt_ms"]) / 1e3, float(row["gbps"]) * 1e9 / 8 / CONNECTIONS_FACTOR
        )
        for row in rows
    }
    names = sorted({source for source, _ in table})
    chosen: list[str] = []
    for region in draw.sample(names, len(names)):
        if len(chosen) < num_regions and all({(region, old), (old, region)} <= table.keys() for old in chosen):
            chosen.append(region)
    return {(a, b): table[a, b] for a in chosen for b in chosen if a != b}


if __name__ == "__main__":
    main()
