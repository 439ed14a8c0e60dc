"""How short plans for sweeps are: SPASE beside simpler ways on drawn times. Predictions only, nothing is run.

Trials take log-normal times on one device; each doubling of devices makes them 1.7 times as fast. Ratios are makespan /
the lower bound that CP-SAT proves, medians over draws with the worst one. `one device`: longest trial first, one device
each. `greedy`: longest first, each in the way in which it ends soonest. `orders`: the best of so many random orders,
placed as greedy does, that they take about as long as SPASE. `SPASE`: CP-SAT.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from hulk_placement.sweep import Option, Plan, Problem, Trial, Worker
from hulk_placement.sweep.greedy import greedy, in_order
from hulk_placement.sweep.spase import solve
from rich.console import Console
from rich.table import Table

from bench.raw import Raw
from bench.verdicts import verdict

WORKERS: Mapping[str, tuple[int, int]] = {"2 x 4": (2, 4), "4 x 8": (4, 8)}
NUM_TRIALS = (12, 40, 100)
SPEED_UP = 1.7
SPREAD = 1.0
WORK = 2.0
NUM_PLACINGS = 600_000
"""Tries of a trial in one way at one worker that `orders` makes in all."""

AIM = 1.05


@dataclass(frozen=True, slots=True)
class Row:
    """One draw: makespan / bound, and the seconds it took to plan."""

    workers: str
    num_trials: int
    seed: int
    ratios: Mapping[str, float]
    seconds: Mapping[str, float]


def run(console: Console, raw: Raw, short: bool) -> None:
    """Print one row per setting."""
    seeds = range(2 if short else 20)
    console.print(f"Plans of sweeps for drawn times, not run: makespan / bound, median (worst) of {len(seeds)} draws")
    table: Table | None = None
    rows: list[Row] = []
    for workers in WORKERS:
        for num_trials in NUM_TRIALS:
            here = [draw(workers, num_trials, seed) for seed in seeds]
            table = table or Table("workers x devices", "trials", *here[0].ratios, "s: greedy, orders, SPASE")
            table.add_row(workers, str(num_trials), *_cells(here))
            rows += here
    for row in rows:
        raw.add(row)
    console.print(table)
    console.print(verdict("SPASE / bound, median", median(row.ratios["SPASE"] for row in rows), "at most", AIM))
    longer = max(row.ratios["SPASE"] / row.ratios[way] for row in rows for way in ("greedy", "orders"))
    console.print(verdict("SPASE / the better of greedy and orders, worst", longer, "at most", 1.0))


def _cells(rows: list[Row]) -> list[str]:
    ratios = {way: [row.ratios[way] for row in rows] for way in rows[0].ratios}
    took = (f"{median(row.seconds[way] for row in rows):.2g}" for way in ("greedy", "orders", "SPASE"))
    return [*(f"{median(each):.3f} ({max(each):.3f})" for each in ratios.values()), ", ".join(took)]


def draw(workers: str, num_trials: int, seed: int) -> Row:
    """One draw, planned in every way."""
    count, devices = WORKERS[workers]
    generator = random.Random(f"{workers} {num_trials} {seed}")
    seconds = {f"t{n}": 100 * math.exp(generator.gauss(0, SPREAD)) for n in range(num_trials)}
    room = tuple(Worker(f"w{n}", devices) for n in range(count))
    problem = Problem(trials(seconds, devices), room)
    single = Problem(trials(seconds, 1), room)
    ways: dict[str, Callable[[], Plan]] = {
        "one device": lambda: greedy(single),
        "greedy": lambda: greedy(problem),
        "orders": lambda: best_order(problem, generator),
        "SPASE": lambda: solve(problem, WORK, seed),
    }
    plans, took = {}, {}
    for way, plan in ways.items():
        begin_s = time.perf_counter()
        plans[way] = plan()
        took[way] = time.perf_counter() - begin_s
    bound_s = plans["SPASE"].bound_s
    return Row(workers, num_trials, seed, {way: plan.makespan_s / bound_s for way, plan in plans.items()}, took)


def trials(seconds: Mapping[str, float], max_devices: int) -> tuple[Trial, ...]:
    """Every way that a worker has devices for."""
    counts = [2**n for n in range(int(math.log2(max_devices)) + 1)]
    return tuple(
        Trial(name, tuple(Option(f"over {k}", k, taken / SPEED_UP ** math.log2(k)) for k in counts))
        for name, taken in seconds.items()
    )


def best_order(problem: Problem, generator: random.Random) -> Plan:
    """The shortest of many random orders."""
    placings = sum(len(problem.places(trial, option)) for trial in problem.trials for option in trial.options)
    drawn = (generator.sample(problem.trials, len(problem.trials)) for _ in range(NUM_PLACINGS // placings))
    return min((in_order(problem, order) for order in drawn), key=lambda plan: plan.makespan_s)
