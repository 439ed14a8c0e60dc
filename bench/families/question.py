"""`python -m bench families`: the layout search beside the layouts that people draw, by the same closed form.

Predictions only, nothing is trained. Clusters are boxes in zones in regions (`bench.families.clusters`); floors are the
families of `bench.families.floors`, with layers and sequences split as well as the search splits them. Each cluster is
searched for the processor seconds that are the aim of its size.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from hulk_placement.cost.closed_form.setting import Ground, Option
from hulk_placement.layouts import portfolio
from hulk_placement.layouts.space import Space, space_of
from hulk_placement.layouts.trials import Shape, Trials
from rich.console import Console
from rich.table import Table

from bench.families.clusters import Cluster, drawn
from bench.families.floors import grids
from bench.raw import Raw
from bench.verdicts import verdict

SECONDS = ((64, 0.5), (640, 1.3), (1 << 30, 10.0))
"""Up to so many accelerators: the processor seconds that are the aim."""

ROUNDING = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Floor:
    """The cheapest layout of a published family, and which it is."""

    cost: float
    family: str
    degrees: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found and took; `cost` in seconds of a step."""

    cost: float
    degrees: tuple[int, ...]
    cpu_s: float
    num_evaluations: int


def run(short: bool = False) -> None:
    """Print the table and the worst ratio."""
    console, raw = Console(highlight=False, width=160), Raw("families")
    ratios = []
    headings = "best drawn by hand", "degrees", "s", "searched: s", "ratio", "degrees", "evaluations"
    table = Table("cluster", *headings)
    for cluster in drawn(short):
        floor, found = floor_of(cluster), searched(cluster)
        ratios.append(found.cost / floor.cost)
        raw.add(found, cluster=cluster.name, floor_s=floor.cost, family=floor.family)
        table.add_row(
            *(cluster.name, floor.family, _words(floor.degrees), f"{floor.cost:.3f}"),
            *(f"{found.cost:.3f}", f"{ratios[-1]:.3f}", _words(found.degrees), f"{found.num_evaluations:,}"),
        )
    console.print(table)
    console.print(f"worst ratio {max(ratios):.3f}, median {statistics.median(ratios):.3f}")
    console.print(verdict("worst ratio", max(ratios), "at most", ROUNDING))


def seconds_of(cluster: Cluster) -> float:
    """The processor seconds that are the aim of a cluster's size."""
    num = cluster.num_machines * cluster.accelerators
    return next(seconds for most, seconds in SECONDS if num <= most)


def searched(cluster: Cluster, most_evaluations: float = math.inf) -> Found:
    """One search, for the processor seconds of its size, or for so many evaluations where they are said."""
    cluster.workload  # noqa: B018 - drawn before the time counts
    start_s = time.process_time()
    seconds = seconds_of(cluster) if most_evaluations == math.inf else math.inf

    def going_on() -> bool:
        return trials.num_evaluations < most_evaluations and time.process_time() - start_s < seconds

    trials = Trials(Ground.of(cluster.workload, cluster.topology, cluster.topology.machines))
    portfolio.search(trials, space_of(trials.ground), going_on, cluster.seed)
    best = trials.cheapest
    cost, degrees = (math.inf, ()) if best is None else (best.cost, best.shape.degrees)
    return Found(cost, degrees, time.process_time() - start_s, trials.num_evaluations)


def floor_of(cluster: Cluster) -> Floor:
    """The cheapest layout of any family, of any degrees and options that the search may choose too."""
    trials = Trials(Ground.of(cluster.workload, cluster.topology, cluster.topology.machines))
    space = space_of(trials.ground)
    floors = [floor for option in _options(space) for floor in _floors(cluster, trials, space, option)]
    return min(floors, key=lambda floor: floor.cost)


def _options(space: Space) -> Iterator[Option]:
    """Those of the usual schedule without recomputation, with 1 to 8 sequences a micro-batch."""
    return (option for option in space.usual if not option.recompute and option.micro_batch <= 8)


def _floors(cluster: Cluster, trials: Trials, space: Space, option: Option) -> Iterator[Floor]:
    names = tuple(level.name for level in cluster.levels)
    slots = cluster.accelerators // option.tensor
    if not slots:
        return
    machine_N = np.repeat(np.arange(cluster.num_machines), slots)
    if slots > 1:
        names, group_LN = ("machine", *names), np.concatenate([machine_N[None], cluster.group_LM[:, machine_N]])
    else:
        group_LN = cluster.group_LM
    regions = [int(name[1:]) for name in trials.ground.regions]
    tour_W = np.argsort(regions)
    for pipeline in (num for num in space.pipelines if num.bit_count() == 1):
        for data in [space.data] if space.data else _halved(len(machine_N) // pipeline):
            shape = Shape(option, data, pipeline)
            if not space.admits(shape) or data > trials.num_batches(option):
                continue
            for family, grid in grids(names, group_LN, data, pipeline):
                cells_N = cluster.number_M[machine_N[grid.ravel()]]
                trial = trials.build(shape, cells_N, tour_W, by_rows=True)
                if trials.is_possible(trial):
                    yield Floor(trial.cost, family, shape.degrees)


def _halved(most: int) -> Iterator[int]:
    """So many, half as many, and so on."""
    while most:
        yield most
        most //= 2


def _words(degrees: tuple[int, ...]) -> str:
    return " x ".join(map(str, degrees))
