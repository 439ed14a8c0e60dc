"""`python -m bench pipelines`: a step of a pipeline by Hulk's runtime beside torch.distributed.pipelining.

The same model, cut and schedule on 4 processes of this machine over loopback, no emulated links: what carrying out a
list of actions costs, not what a better schedule is worth. Steps of both alternate; figures are medians.
"""

from __future__ import annotations

import multiprocessing
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from hulk_placement.schedule.operations import operations_of
from hulk_placement.schedule.shapes import v
from hulk_placement.schedule.timing import Turn, earliest
from hulk_placement.schedule.wire import document
from rich.console import Console
from rich.table import Table

from bench.raw import Raw
from bench.simulated import free_port
from bench.verdicts import verdict

NUM_RANKS = 4
NUM_MICRO_BATCHES = 8
NUM_ROUNDS = 15
MAX_RATIO = 1.05


@dataclass(frozen=True, slots=True)
class Steps:
    """Medians of rounds."""

    schedule: str
    hulk_s: float
    torch_s: float

    @property
    def ratio(self) -> float:
        """Of Hulk's step to torch's."""
        return self.hulk_s / self.torch_s


def run(short: bool) -> None:
    """Print one row per schedule."""
    console, raw = Console(highlight=False, width=120), Raw("pipelines")
    table = Table("schedule", "Hulk, s", "torch, s", "ratio")
    verdicts = []
    for steps in measure(NUM_ROUNDS // 3 if short else NUM_ROUNDS):
        raw.add(steps)
        table.add_row(steps.schedule, f"{steps.hulk_s:.3f}", f"{steps.torch_s:.3f}", f"{steps.ratio:.2f}")
        verdicts.append(verdict(f"{steps.schedule}, Hulk over torch", steps.ratio, "at most", MAX_RATIO))
    console.print(table)
    console.print("\n".join(verdicts))


def measure(num_rounds: int) -> list[Steps]:
    """Of every schedule."""
    from bench.pipelines import ranks

    schedules = {"GPipe": schedule(all_forward), "1F1B": schedule(one_by_one)}
    port = free_port()
    with ProcessPoolExecutor(NUM_RANKS, multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(ranks.run, rank, NUM_RANKS, port, schedules, num_rounds) for rank in range(NUM_RANKS)]
        first, *_ = (each.result() for each in running)
    return [
        Steps(name, statistics.median(seconds["hulk"]), statistics.median(seconds["torch"]))
        for name, seconds in first.items()
    ]


def schedule(order: Any) -> dict[str, Any]:
    """As ranks read it."""
    placement = v(NUM_RANKS)
    operations = operations_of(placement)
    blocks = {one.block: number for number, one in enumerate(operations.operations)}
    orders = [[(blocks[block], m) for block, m in order(device)] for device in range(NUM_RANKS)]
    return document(placement, earliest(operations, orders, NUM_MICRO_BATCHES))


def all_forward(device: int) -> list[Turn]:
    """All micro-batches forward, then all backward."""
    return [(block, m) for block in _blocks(device) for m in range(NUM_MICRO_BATCHES)]


def one_by_one(device: int) -> list[Turn]:
    """As many forward as there are stages from here on, then one backward and one forward in turns.

    >>> one_by_one(2)[:6]
    [(2, 0), (2, 1), (5, 0), (2, 2), (5, 1), (2, 3)]
    """
    forward, backward = _blocks(device)
    first = min(NUM_MICRO_BATCHES, NUM_RANKS - device)
    turns = [(forward, m) for m in range(first)]
    for m in range(NUM_MICRO_BATCHES):
        turns.append((backward, m))
        if first + m < NUM_MICRO_BATCHES:
            turns.append((forward, first + m))
    return turns


def _blocks(device: int) -> tuple[int, int]:
    """The forward and the backward block of a device in shape V."""
    return device, 2 * NUM_RANKS - 1 - device
