"""`python -m bench shapes`: what a searched schedule on a placement of its own is worth, on real ranks.

Tessel (Lin et al., HPCA 2024, arXiv 2311.15269) divides what is too large for a stage over all devices, and searches an
order for that. Here 4 processes of this machine compute, each as slow as an emulated accelerator
(`bench.shapes.accelerator`); what they say to each other goes over loopback, without emulated links. All ways compute
the same losses or results, which is checked against one process before anything is timed.
"""

from __future__ import annotations

import multiprocessing
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from hulk_runtime.plan.wire import Model
from rich.console import Console
from rich.table import Table

from bench.raw import Raw
from bench.shapes import ranks
from bench.shapes.costs import BLOCK, HEAD, Costs
from bench.shapes.ranks import Timed
from bench.shapes.ways import NUM_DEVICES, RIVALS, inference, training
from bench.simulated import free_port

GPT: Final = Model(layers=8, hidden=64, heads=4, sequence_length=32, vocabulary=4096)
"""The head costs five blocks, of eight: as a vocabulary of a million beside 32 blocks of hidden size 4,096."""

NUM_TOWER: Final = 4
TOWERS: Final = Model(layers=3 * NUM_TOWER, hidden=64, heads=4, sequence_length=32, vocabulary=256)
"""Two towers and what joins them, of as many blocks each."""

FLOPS_PER_S: Final = 0.25e9
"""Of an emulated accelerator: so few that four processes on two cores keep pace."""

NUM_ROUNDS: Final = 9
SEARCH_S: Final = 2.0
PUBLISHED_SPEEDUP, PUBLISHED_LATENCY = 5.5, 0.62
"""Tessel's best: training 5.5 times as fast, latency 38 % less."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run."""

    num_samples: int
    batches: tuple[int, ...]
    num_rounds: int
    search_s: float


SHORT: Final = Size(num_samples=8, batches=(1, 4), num_rounds=3, search_s=1.0)
FULL: Final = Size(num_samples=16, batches=(1, 4, 16), num_rounds=NUM_ROUNDS, search_s=SEARCH_S)


@dataclass(frozen=True, slots=True)
class Row:
    """One step of a training, or one inference of a batch."""

    what: str
    way: str
    round: int
    predicted_s: float
    observed_s: float
    late_s: float
    num_parameters: int
    counts: bool
    sum_s: float
    """What a sum of one sample's activations took before, of which predictions know."""


def run(short: bool = False) -> None:
    """Print both tables."""
    console, size = Console(highlight=False, width=120), SHORT if short else FULL
    rows = measure(size)
    raw = Raw("shapes")
    for row in rows:
        raw.add(row)
    for what in dict.fromkeys(row.what for row in rows):
        console.print(table([row for row in rows if row.what == what]))
    console.print("\n".join(verdicts(rows)))


def measure(size: Size) -> list[Row]:
    """All rows."""
    found: list[Row] = []
    with all_ranks() as ask:
        costs = costs_of(GPT, ask(ranks.sums_s, GPT, (1, size.num_samples)))
        ways = training(costs, GPT.layers, size.num_samples, size.search_s)
        timed = ask(ranks.train, GPT, ways, size.num_samples, FLOPS_PER_S, size.num_rounds)
        found += rows_of(f"training, {size.num_samples} samples", timed, costs)
        costs = costs_of(TOWERS, ask(ranks.sums_s, TOWERS, range(1, max(size.batches) + 1)))
        for batch in size.batches:
            ways = inference(costs, NUM_TOWER, NUM_TOWER, batch, size.search_s)
            timed = ask(ranks.infer, TOWERS, NUM_TOWER, ways, batch, FLOPS_PER_S, size.num_rounds)
            found += rows_of(f"inference, batch {batch}", timed, costs)
    return found


@contextmanager
def all_ranks() -> Iterator[Callable[..., Any]]:
    """Processes that are ranks; what is given runs on all of them, and rank 0's answer counts."""
    with ProcessPoolExecutor(NUM_DEVICES, multiprocessing.get_context("spawn")) as pool:
        port = free_port()
        for each in [pool.submit(ranks.start, rank, NUM_DEVICES, port) for rank in range(NUM_DEVICES)]:
            each.result()

        def ask(do: Callable[..., Any], *about: Any) -> Any:
            answers = [each.result() for each in [pool.submit(ranks.told, do, *about) for _ in range(NUM_DEVICES)]]
            return dict(answers)[0]

        yield ask


def costs_of(model: Model, sum_s: dict[int, float]) -> Costs:
    """On the emulated accelerators."""
    return Costs(model, FLOPS_PER_S, sum_s)


def rows_of(what: str, timed: Sequence[Timed], costs: Costs) -> Iterator[Row]:
    """As they are kept."""
    for one in timed:
        seconds = one.predicted_s, one.observed_s, one.late_s
        yield Row(what, one.way, one.round, *seconds, one.num_parameters, one.counts, costs.sum_s[1])


def table(rows: Sequence[Row]) -> Table:
    """Medians of what counts, ratios to the first way, and the parameters of the rank that has most."""
    shown = Table(rows[0].what, "predicted, s", "observed, s", "off", "ratio to the first", "count", "most parameters")
    first_s = median_s(rows, rows[0].way)
    for way in dict.fromkeys(row.way for row in rows):
        own = [row for row in rows if row.way == way]
        observed_s, num = median_s(rows, way), sum(row.counts for row in own)
        predicted, parameters = f"{own[0].predicted_s:.3f}", f"{own[0].num_parameters / 1000:.0f},000"
        if observed_s is None:
            shown.add_row(way, predicted, "none counts", "", "", f"0 of {len(own)}", parameters)
            continue
        ratio = "" if first_s is None else f"{observed_s / first_s:.2f}"
        off = f"{own[0].predicted_s / observed_s - 1:+.1%}"
        shown.add_row(way, predicted, f"{observed_s:.3f}", off, ratio, f"{num} of {len(own)}", parameters)
    return shown


def median_s(rows: Sequence[Row], way: str) -> float | None:
    """Of a way's rows that count."""
    return (
        statistics.median(counted) if (counted := [r.observed_s for r in rows if r.way == way and r.counts]) else None
    )


def verdicts(rows: Sequence[Row]) -> list[str]:
    """What ours are, beside what was published."""
    costs = Costs(GPT, FLOPS_PER_S, {})
    share = costs.flops(HEAD) / costs.flops(BLOCK)
    sums = " and ".join(f"{sum_s * 1000:.1f}" for sum_s in dict.fromkeys(row.sum_s for row in rows))
    lines = [
        f"a sum of one sample's activations over the 4 ranks took {sums} ms, before the training and the inferences",
        f"the head costs {share:.1f} of {GPT.layers} blocks; sums and messages go over loopback, no emulated links",
    ]
    for what in dict.fromkeys(row.what for row in rows):
        same = [row for row in rows if row.what == what]
        found = {way: median_s(same, way) for way in dict.fromkeys(row.way for row in same)}
        pairs = [(own, other) for own, others in RIVALS.items() if own in found for other in others]
        lines += [verdict(what, (own, found[own]), (other, found[other])) for own, other in pairs]
    return lines


def verdict(what: str, own: tuple[str, float | None], other: tuple[str, float | None]) -> str:
    """One ratio in words.

    >>> verdict("training", ("M", 2.0), ("X", 3.0))
    'training: M has 1.50 times the throughput of X (published: up to 5.5)'
    >>> verdict("inference", ("K", 2.0), ("Y", 1.0))
    'inference: K has 100 % more latency than Y: it loses (published: up to 38 % less)'
    """
    (name, own_s), (other_name, other_s) = own, other
    if own_s is None or other_s is None:
        return f"{what}: {name} against {other_name}: none of the rows counts"
    loses = ": it loses" if own_s > other_s else ""
    if what.startswith("training"):
        ratio = f"{other_s / own_s:.2f} times the throughput of {other_name}"
        return f"{what}: {name} has {ratio}{loses} (published: up to {PUBLISHED_SPEEDUP:g})"
    less = f"{abs(own_s / other_s - 1):.0%}".replace("%", " %") + (" more" if loses else " less")
    published = f"{1 - PUBLISHED_LATENCY:.0%}".replace("%", " %")
    return f"{what}: {name} has {less} latency than {other_name}{loses} (published: up to {published} less)"
