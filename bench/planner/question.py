"""`python -m bench planner`: how good and how quick searches over layouts are. Predictions only, nothing is trained.

Clusters are drawn over measured cloud links by printed seeds. Seconds are processor time of the one process that
searches, so that other programs on the machine do not count.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench import clusters
from bench.layout_searches import SEARCHES
from bench.layout_searches.compare import Comparison, compare
from bench.planner.cases import SINGLE, Case, Outcome, free_workload, searched, small_model
from bench.planner.growth import growth
from bench.raw import Raw
from bench.verdicts import verdict

SIZES = {"64 accelerators, 8 regions": (8, 8, 0.5), "640, 5": (80, 5, 1.3), "8000, 20": (1000, 20, 10.0)}
"""Machines of eight accelerators, regions, and the seconds that are the aim."""

MODELS = ("gpt2-xl", "llama-3-8b", "llama-3-70b", "t5-11b")
LONGER = 10
NUM_CLUSTERS = 32
"""Of each size; each is searched for one model, the models in turn."""

NUM_SMALL = 36
EXACT_S, SMALL_S = 120.0, 0.5

GROWTH = (4, 16, 64, 256, 1000)


def run(short: bool = False) -> None:
    """Print every table."""
    console, raw = Console(highlight=False, width=160), Raw("planner")
    gaps(console, raw, 9 if short else NUM_SMALL)
    for name, (num_machines, num_regions, aim_s) in SIZES.items():
        if not (short and num_machines == 1000):
            speed(console, raw, name, _cases(num_machines, num_regions, 4 if short else NUM_CLUSTERS), aim_s)
    growth(console, GROWTH[:3] if short else GROWTH)


def _cases(num_machines: int, num_regions: int, num: int) -> list[Case]:
    return [Case(seed, num_machines, num_regions, MODELS[seed % len(MODELS)]) for seed in range(num)]


def gaps(console: Console, raw: Raw, num: int) -> None:
    """Small cases, whose optimum the exact search proves: how far every search stays from it."""
    names = [name for name in SEARCHES if name != "exact"]
    found: dict[str, list[float]] = {name: [] for name in names}
    evaluations: dict[str, list[int]] = {name: [] for name in names}
    for seed in range(num):
        topology = clusters.draw(seed, 3 + seed % 2, 1 + seed % 3, kinds=SINGLE)
        model = small_model(3 + seed % 3, (1 << 20) << seed % 9, 1e11)
        workload = free_workload(topology, model, 6)
        proof = compare(workload, topology, EXACT_S, time.process_time, ["exact"])
        assert isinstance(proof, Comparison)
        if not proof.rows[0].is_proven:
            console.print(f"seed {seed}: not proven within {EXACT_S:g} s, left out")
            continue
        others = compare(workload, topology, SMALL_S, time.process_time, names)
        assert isinstance(others, Comparison)
        for row in others.rows:
            raw.add(row, question="gaps", seed=seed, optimum_s=proof.rows[0].cost)
            found[row.search].append(row.cost / proof.rows[0].cost - 1)
            evaluations[row.search].append(row.num_evaluations)
    table = Table("search", "cases", "at the optimum", "median gap", "worst gap", "evaluations")
    for name, values in found.items():
        at = sum(value < 1e-9 for value in values)
        table.add_row(
            *(name, str(len(values)), str(at), f"{statistics.median(values):.2%}", f"{max(values):.2%}"),
            f"{statistics.median(evaluations[name]):,.0f}",
        )
    console.print(f"Beside proven optima, {SMALL_S:g} s each", table)
    console.print(verdict("median gap of portfolio", statistics.median(found["portfolio"]), "at most", 1e-9))
    console.print(verdict("worst gap of portfolio", max(found["portfolio"]), "at most", 0.02))


def speed(console: Console, raw: Raw, name: str, cases: Sequence[Case], aim_s: float) -> None:
    """What the aim's seconds find beside ten times as many."""
    table = Table(
        "model", "clusters", "median excess", "95th percentile", "worst", "within 1 %", "evaluations", "CPU s"
    )
    everything: list[float] = []
    for model in MODELS:
        excesses, outcomes = [], []
        for case in (case for case in cases if case.model == model):
            topology = case.topology()
            workload = case.workload(topology)
            quick, long = (searched(workload, topology, seconds) for seconds in (aim_s, LONGER * aim_s))
            for outcome, seconds in ((quick, aim_s), (long, LONGER * aim_s)):
                raw.add(outcome, question=name, seed=case.seed, model=model, seconds=seconds)
            if math.isfinite(long.step_s):
                excesses.append(max(0.0, quick.step_s / min(quick.step_s, long.step_s) - 1))
                outcomes.append(quick)
        if excesses:
            table.add_row(model, *_row(excesses, outcomes))
            everything += excesses
    console.print(f"{name}: {aim_s:g} s beside {LONGER * aim_s:g} s", table)
    console.print(verdict("median excess", statistics.median(everything), "at most", 0.01))
    console.print(verdict("share within 1 %", sum(e <= 0.01 for e in everything) / len(everything), "at least", 0.95))


def _row(excesses: Sequence[float], outcomes: Sequence[Outcome]) -> list[str]:
    ranked = sorted(excesses)
    return [
        str(len(ranked)),
        f"{statistics.median(ranked):.2%}",
        f"{ranked[math.ceil(0.95 * len(ranked)) - 1]:.2%}",
        f"{ranked[-1]:.2%}",
        str(sum(excess <= 0.01 for excess in ranked)),
        f"{statistics.median(outcome.num_evaluations for outcome in outcomes):,.0f}",
        f"{max(outcome.cpu_s for outcome in outcomes):.2f}",
    ]
