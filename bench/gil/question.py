"""`python -m bench gil`: a training beside all-reduces at rising rates, and what the all-reduces themselves cost.

One process computes passes of the bundled GPT on one thread, while vectors are all-reduced between it and another
process over loopback, at a rate that pacing sets:

    thread      by Hulk's engine in a thread of the computing process, as in training
    elsewhere   the same between two other processes: what processors and memory cost, without Python's lock
    gloo        by gloo in the computing process, as many bytes in the same time, in bursts

A pass beside traffic is compared with passes without any in the same round. Rounds are interleaved; figures are medians
of rounds. `thread` over `elsewhere` is what sharing a Python interpreter costs, and that is judged, at the rates that
both reached. A rate is what the partner process took for all the bytes, whoever computes beside it. Without passes the
all-reduces then run as fast as they can, in chunks of several sizes: at that rate Python is the limit.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from hulk_runtime.examples.gpt_model import initialized
from hulk_runtime.plan import wire
from rich.console import Console
from rich.table import Table

from bench import conditions
from bench.gil.loads import Load, stream
from bench.gil.partner import Partner, partners
from bench.processor import cpu_s
from bench.raw import Raw
from bench.simulated import free_port
from bench.verdicts import verdict

MODEL = wire.Model(layers=6, hidden=256, heads=4, sequence_length=128, vocabulary=256)
BATCH = 4
RATES_MB_PER_S = (12, 25, 50, 100, 200)
VECTOR_BYTES = 4 << 20
SECONDS = 2.5
"""Of traffic beside passes."""
FAST_BYTES = 10**9
CHUNKS = (16 << 10, 64 << 10, 128 << 10)
WAYS = ("thread", "elsewhere", "gloo")
NUM_ROUNDS = 5
MAX_SLOWING = 1.05
REACHED = 0.9
"""Of a rate: less is another rate, and not compared."""


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes beside one load: medians, the rate that the load really had, and what others took of the processors."""

    way: str
    mb_per_s: float
    reached_mb_per_s: float
    forward_s: float
    backward_s: float
    stolen_share: float

    @property
    def valid(self) -> bool:
        """Judged before anybody looks at the times."""
        return self.stolen_share <= conditions.MAX_STOLEN_SHARE


@dataclass(frozen=True, slots=True)
class Fast:
    """All-reduces as fast as they go: bytes that a rank sends and receives a second, and its processor seconds."""

    kind: str
    chunk_bytes: int
    bytes_per_s: float
    cpu_s_per_gb: float
    stolen_share: float


class Bench:
    """The computing process and its partners: its own, and two that have nothing to do with it."""

    def __init__(self, own: Partner, others: tuple[Partner, Partner]) -> None:
        torch.manual_seed(1)
        self._own, self._others = own, others
        self._model = initialized(MODEL)
        self._tokens_BS = torch.randint(0, 256, (BATCH, MODEL.sequence_length))

    def passes(self, way: str, mb_per_s: float) -> Passes:
        """Beside traffic of a way at a rate; with none, alone."""
        ticks = conditions.ticks()
        if way == "none":
            times = [self._pass() for _ in range(4)]
            reached = 0.0
        else:
            times, reached = self._beside(way, mb_per_s * 1e6)
        forward_s, backward_s = (statistics.median(column) for column in zip(*times, strict=True))
        return Passes(way, mb_per_s, reached, forward_s, backward_s, conditions.stolen_share(ticks))

    def _beside(self, way: str, bytes_per_s: float) -> tuple[list[tuple[float, float]], float]:
        count = max(2, round(SECONDS * bytes_per_s / VECTOR_BYTES))
        kind = "gloo" if way == "gloo" else "hulk"
        load = Load(kind, VECTOR_BYTES, count, bytes_per_s, ports=(free_port(), free_port()))
        if way == "elsewhere":
            return self._beside_others(load)
        self._own.connect(load)
        mine = stream(load, 0)
        self._own.start()
        mine.start()
        times = self._passes_until(lambda: mine.is_done)
        mine.wait()
        return times, load.mb_per_s(self._own.wait().seconds)

    def _beside_others(self, load: Load) -> tuple[list[tuple[float, float]], float]:
        for other in self._others:
            other.connect(load)
        for other in self._others:
            other.start()
        times = self._passes_until(lambda: any(other.is_done for other in self._others))
        return times, load.mb_per_s(max(other.wait().seconds for other in self._others))

    def _passes_until(self, is_done: Callable[[], bool]) -> list[tuple[float, float]]:
        """The passes all of which traffic was beside; the one in which it ended only where there is no other."""
        times = [self._pass()]
        while not is_done():
            times.append(self._pass())
        return times[:-1] or times

    def _pass(self) -> tuple[float, float]:
        """Seconds of forward and backward."""
        self._model.zero_grad()
        began_s = time.perf_counter()
        logits_BSV = self._model(self._tokens_BS)  # noqa: N806 - a shape suffix
        loss = torch.nn.functional.cross_entropy(logits_BSV.flatten(0, 1), self._tokens_BS.flatten())
        between_s = time.perf_counter()
        loss.backward()  # type: ignore[no-untyped-call]
        return between_s - began_s, time.perf_counter() - between_s

    def fast(self, kind: str, chunk_bytes: int) -> Fast:
        """Without passes, without pace."""
        count = FAST_BYTES // VECTOR_BYTES
        load = Load(kind, VECTOR_BYTES, count, chunk_bytes=chunk_bytes, ports=(free_port(), free_port()))
        ticks = conditions.ticks()
        self._own.connect(load)
        mine = stream(load, 0)
        self._own.start()
        began_s, before_s = time.monotonic(), cpu_s()
        mine.start()
        mine.wait()
        seconds, mine_s = time.monotonic() - began_s, cpu_s() - before_s
        moved = count * VECTOR_BYTES
        used_s = (mine_s + self._own.wait().cpu_s) / 2
        return Fast(kind, chunk_bytes, moved / seconds, used_s / moved * 1e9, conditions.stolen_share(ticks))


def run(short: bool) -> None:
    """Print both tables."""
    console, raw = Console(highlight=False, width=140), Raw("gil")
    torch.set_num_threads(1)
    num_rounds = 1 if short else NUM_ROUNDS
    with partners([1, 0, 1], free_port()) as (own, *others):
        bench = Bench(own, (others[0], others[1]))
        bench.passes("none", 0)
        rounds = []
        for _ in range(num_rounds):
            found = [bench.passes("none", 0)]
            found += [bench.passes(way, rate) for rate in RATES_MB_PER_S for way in WAYS]
            rounds.append(found)
            for passes in found:
                raw.add(passes)
        fast = [bench.fast(*what) for _ in range(num_rounds) for what in _fast_ones()]
        for each in fast:
            raw.add(each)
    console.print(_slowing(rounds))
    console.print(_speeds(fast))
    for line in verdicts(rounds):
        console.print(line)


def _fast_ones() -> list[tuple[str, int]]:
    return [*(("hulk", size) for size in CHUNKS), ("gloo", 0)]


def verdicts(rounds: Sequence[Sequence[Passes]]) -> list[str]:
    """Python's part in slowing the backward pass; beside it all of it, and the rates that say nothing of it."""
    shared = {rate: over_elsewhere(rounds, rate) for rate in RATES_MB_PER_S}
    known = [found for found in shared.values() if found is not None]
    lines = [verdict("backward, thread / elsewhere, most", max(known, default=None), "at most", MAX_SLOWING)]
    whole = [found for rate in RATES_MB_PER_S if (found := ratio(rounds, "thread", rate, "backward_s")) is not None]
    if whole:
        lines.append(f"backward, thread / alone, most: {max(whole):.4g}: with what processors and memory cost")
    unknown = [f"{rate}" for rate, found in shared.items() if found is None]
    if unknown:
        lines.append(f"no figure where the rate was not reached or others had processors: {', '.join(unknown)} MB/s")
    return lines


def ratio(rounds: Sequence[Sequence[Passes]], way: str, mb_per_s: float, what: str) -> float | None:
    """Median over rounds of a pass beside traffic over one without; None when no round counts."""
    found = []
    for alone, *beside in rounds:
        one = _of(beside, way, mb_per_s)
        if one.valid and alone.valid:
            found.append(getattr(one, what) / getattr(alone, what))
    return statistics.median(found) if found else None


def over_elsewhere(rounds: Sequence[Sequence[Passes]], mb_per_s: float) -> float | None:
    """Median over rounds of a backward pass beside the thread over one beside the same traffic of other processes.

    None when no round counts: both must have reached the rate.
    """
    found = []
    for _, *beside in rounds:
        thread, elsewhere = (_of(beside, way, mb_per_s) for way in ("thread", "elsewhere"))
        if all(one.valid and one.reached_mb_per_s >= REACHED * mb_per_s for one in (thread, elsewhere)):
            found.append(thread.backward_s / elsewhere.backward_s)
    return statistics.median(found) if found else None


def _of(beside: Sequence[Passes], way: str, mb_per_s: float) -> Passes:
    return next(passes for passes in beside if (passes.way, passes.mb_per_s) == (way, mb_per_s))


def _slowing(rounds: Sequence[Sequence[Passes]]) -> Table:
    alone = [found[0] for found in rounds]
    forward_ms, backward_ms = (
        1000 * statistics.median(getattr(passes, what) for passes in alone) for what in ("forward_s", "backward_s")
    )
    title = (
        f"times a pass without traffic (forward {forward_ms:.0f} ms, backward {backward_ms:.0f} ms), median of "
        f"{len(rounds)} rounds; forward / backward"
    )
    table = Table("MB/s each way", *WAYS, "thread / elsewhere", title=title, title_justify="left")
    for column in (f"reached by {', '.join(WAYS)}", "most stolen"):
        table.add_column(column)
    for rate in RATES_MB_PER_S:
        of_rate = [passes for found in rounds for passes in found if passes.mb_per_s == rate]
        cells = [
            " / ".join(_figure(ratio(rounds, way, rate, what)) for what in ("forward_s", "backward_s")) for way in WAYS
        ]
        reached = [
            statistics.median(passes.reached_mb_per_s for passes in of_rate if passes.way == way) for way in WAYS
        ]
        stolen = max(passes.stolen_share for passes in of_rate)
        shared = _figure(over_elsewhere(rounds, rate))
        table.add_row(str(rate), *cells, shared, ", ".join(f"{figure:.0f}" for figure in reached), f"{stolen:.1%}")
    return table


def _figure(found: float | None) -> str:
    return "-" if found is None else f"{found:.2f}"


def _speeds(fast: list[Fast]) -> Table:
    title = "as fast as it goes between two processes, nothing else running; medians"
    table = Table(
        "", "chunk KiB", "MB/s each way", "CPU s per GB", "MB/s per core", "stolen", title=title, title_justify="left"
    )
    for kind, chunk_bytes in _fast_ones():
        same = [each for each in fast if (each.kind, each.chunk_bytes) == (kind, chunk_bytes)]
        rate, cpu, stolen = (
            statistics.median(getattr(each, name) for each in same)
            for name in ("bytes_per_s", "cpu_s_per_gb", "stolen_share")
        )
        chunk = f"{chunk_bytes >> 10}" if chunk_bytes else "-"
        table.add_row(kind, chunk, f"{rate / 1e6:.0f}", f"{cpu:.2f}", f"{1000 / cpu:.0f}", f"{stolen:.1%}")
    return table
