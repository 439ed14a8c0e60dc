"""`python -m bench schedules`: how short the schedules of pipelines are that a search finds. Nothing is executed.

Blocks have the spans of the reference cases: forward 1, backward 3, on all devices 1; memory is for 16 micro-batches
of a stage. Seconds are those of the clock; the solver has two threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hulk_placement.schedule.found import Found
from hulk_placement.schedule.links import DeviceLink, with_links
from hulk_placement.schedule.placement import Placement
from hulk_placement.schedule.repetend import repetend
from hulk_placement.schedule.search import scheduled
from hulk_placement.schedule.shapes import SHAPES, v
from rich.console import Console
from rich.table import Table

from bench.raw import Raw
from bench.verdicts import verdict

FORWARD, BACKWARD, MEMORY = 1.0, 3.0, 16.0
SHORTEST: dict[str, Callable[[int], float]] = {
    "v": lambda n: 12 + 4 * n,
    "m": lambda n: 12 + 6 * n,
    "nn": lambda n: 12 + 8 * n,
    "x": lambda n: {1: 16, 2: 22}.get(n, 4 + 8 * n),
    "k": lambda n: 4 + 6 * n,
}
"""Makespans on four devices that are known; that of K was derived here."""

FEWEST_BUBBLES = {
    "v": (12, 4, 4, 0),
    "x": (8, 2, 0),
    "m": (12, 5, 4, 2, 1, 0),
    "nn": (12, 5, 4, 2, 1, 0),
}
"""Of a pattern on four devices with at most 1, 2, 3, ... micro-batches in it, known."""
BUBBLES_S = 60.0
"""For a proof."""

FEW_S, SIX_S, LARGE_S = 2.0, 10.0, 10.0
"""Aims: up to four micro-batches, six of them, large cases."""

DEFAULT_S = 2.0
OTHERS = ("fast", "1f1b", "gpipe")


@dataclass(frozen=True, slots=True)
class Row:
    """One schedule that was found."""

    case: str
    mode: str
    num_micro_batches: int
    makespan: float
    bound: float
    seconds: float


def run(short: bool = False) -> None:
    """Print every table."""
    console, raw = Console(highlight=False, width=140), Raw("schedules")
    shortest(console, raw, (1, 2, 3, 4) if short else (1, 2, 3, 4, 6, 8))
    bubbles(console, ("v", "x") if short else tuple(FEWEST_BUBBLES))
    periods(console, ("v",) if short else ("v", "m", "nn"))
    modes(console, raw, tuple(SHORTEST)[: 2 if short else None])
    latencies(console, raw, (40.0,) if short else (40.0, 80.0))
    regions(console, raw, (20.0,) if short else (4.0, 20.0, 80.0))


def shortest(console: Console, raw: Raw, nums: tuple[int, ...]) -> None:
    """The solver's schedules beside those that are known to be shortest."""
    table = Table("placement", "micro-batches", "known", "found", "no schedule below", "proven", "s")
    slowest = {FEW_S: 0.0, SIX_S: 0.0}
    missed: list[str] = []
    for shape, known in SHORTEST.items():
        for num in nums:
            found = scheduled(SHAPES[shape](4, FORWARD, BACKWARD), num, MEMORY, SIX_S, "optimal")
            add(raw, shape, "optimal", num, found)
            table.add_row(shape, str(num), f"{known(num):g}", *_figures(found))
            if num <= 6 and (shape, num) != ("nn", 6):
                aim = FEW_S if num <= 4 else SIX_S
                slowest[aim] = max(slowest[aim], found.seconds)
                missed += [] if found.is_proven else [f"{shape} of {num}"]
    console.print("The shortest schedules on four devices, by the solver", table)
    console.print(verdict("s for the slowest proof of up to 4 micro-batches", slowest[FEW_S], "at most", FEW_S))
    if max(nums) >= 6:
        console.print(verdict("s for the slowest of 6, nn apart", slowest[SIX_S], "at most", SIX_S))
    console.print(f"not proven: {', '.join(missed) or 'none'}")


def bubbles(console: Console, shapes: tuple[str, ...]) -> None:
    """The fewest bubbles of a pattern on four devices, by the micro-batches that it may have."""
    table = Table("placement", "micro-batches", "known", "found", "proven", "s")
    missed = []
    for shape in shapes:
        for most, fewest in enumerate(FEWEST_BUBBLES[shape], 1):
            found = repetend(SHAPES[shape](4, FORWARD, BACKWARD), MEMORY, most, BUBBLES_S)
            proven = "yes" if found.is_proven else "no"
            table.add_row(shape, str(most), str(fewest), f"{found.bubbles:g}", proven, f"{found.seconds:.2f}")
            missed += [] if found.is_proven and found.bubbles == fewest else [f"{shape} of {most}"]
    console.print(f"Fewest bubbles of a pattern, {BUBBLES_S:g} s at most", table)
    console.print(f"not as known, or not proven: {', '.join(missed) or 'none'}")


def periods(console: Console, shapes: tuple[str, ...]) -> None:
    """The shortest pattern on eight devices."""
    table = Table("placement", "period", "no period below", "micro-batches in it", "s")
    longest = 0.0
    for shape in shapes:
        found = repetend(SHAPES[shape](8, FORWARD, BACKWARD), MEMORY, 16, LARGE_S)
        longest = max(longest, found.period / found.bound)
        table.add_row(
            shape, f"{found.period:g}", f"{found.bound:g}", str(found.num_micro_batches), f"{found.seconds:.2f}"
        )
    console.print(f"Patterns on eight devices, {LARGE_S:g} s at most", table)
    console.print(verdict("longest period / what none is below", longest, "at most", 1.0))


def modes(console: Console, raw: Raw, shapes: tuple[str, ...]) -> None:
    """Ways to make a schedule beside the search, as ratios of makespans."""
    table = Table("placement", "searched", "no schedule below", *(f"{mode} / searched" for mode in OTHERS))
    for shape in shapes:
        placement = SHAPES[shape](4, FORWARD, BACKWARD)
        best = scheduled(placement, 32, MEMORY, DEFAULT_S)
        add(raw, shape, "searched", 32, best)
        ratios = []
        for mode in OTHERS:
            try:
                found = scheduled(placement, 32, MEMORY, DEFAULT_S, mode)
            except ValueError as why:
                ratios.append(str(why))
                continue
            add(raw, shape, mode, 32, found)
            ratios.append(f"{found.schedule.makespan / best.schedule.makespan:.3f}")
        table.add_row(shape, f"{best.schedule.makespan:g}", f"{best.bound:g}", *ratios)
    console.print(f"32 micro-batches on four devices, {DEFAULT_S:g} s each", table)


def latencies(console: Console, raw: Raw, all_latencies: tuple[float, ...]) -> None:
    """What memory buys where a link in the middle has a latency."""
    table = Table("latency each way", "memory", "1f1b", "searched", "no schedule below", "proven", "s")
    for latency in all_latencies:
        placement = with_links(v(4, 10, 20), {way: DeviceLink(*way, latency=latency) for way in ((1, 2), (2, 1))})
        for memory in (4.0, 6.0, 8.0):
            found = scheduled(placement, 8, memory, SIX_S)
            add(raw, f"v, latency {latency:g}, memory {memory:g}", "searched", 8, found)
            plain = scheduled(placement, 8, memory, mode="1f1b").schedule.makespan
            table.add_row(f"{latency:g}", f"{memory:g}", f"{plain:g}", *_figures(found))
    console.print(
        "Four stages, eight micro-batches, forward 10, backward 20, a slow link between stages 1 and 2", table
    )


def regions(console: Console, raw: Raw, all_latencies: tuple[float, ...]) -> None:
    """Thirty-two stages over four regions."""
    table = Table("latency", "memory", "1f1b / found", "at once / found", "found", "no schedule below", "gap", "s")
    slowest = 0.0
    for latency in all_latencies:
        for memory in (32.0, 64.0):
            placement = four_regions(latency)
            found = scheduled(placement, 64, memory, LARGE_S)
            add(raw, f"four regions, latency {latency:g}, memory {memory:g}", "searched", 64, found)
            others = [scheduled(placement, 64, memory, mode=mode).schedule.makespan for mode in ("1f1b", "fast")]
            slowest = max(slowest, found.seconds)
            table.add_row(
                *(f"{latency:g}", f"{memory:g}"),
                *(f"{other / found.schedule.makespan:.3f}" for other in others),
                *(f"{found.schedule.makespan:g}", f"{found.bound:g}"),
                *(f"{found.schedule.makespan / found.bound - 1:.1%}", f"{found.seconds:.2f}"),
            )
    console.print("32 stages over four regions, 64 micro-batches, forward 1, backward 2, links busy for 0.6", table)
    console.print(verdict("s for the slowest", slowest, "at most", LARGE_S))


def four_regions(latency: float, num_devices: int = 32) -> Placement:
    """A stage a device, forward 1 and backward 2; a slow link and an uplink between each region and the next."""
    size = num_devices // 4

    def link(a: int, b: int) -> DeviceLink:
        if a // size == b // size:
            return DeviceLink(a, b, busy=0.1)
        return DeviceLink(a, b, busy=0.6, latency=latency, channels=(f"uplink out of {a // size}",))

    steps = [(a, a + 1) for a in range(num_devices - 1)]
    return with_links(v(num_devices, 1, 2), {way: link(*way) for a, b in steps for way in ((a, b), (b, a))})


def add(raw: Raw, case: str, mode: str, num_micro_batches: int, found: Found) -> None:
    """Keep what was found."""
    raw.add(Row(case, mode, num_micro_batches, found.schedule.makespan, found.bound, found.seconds))


def _figures(found: Found) -> tuple[str, ...]:
    return (
        f"{found.schedule.makespan:g}",
        f"{found.bound:g}",
        "yes" if found.is_proven else "no",
        f"{found.seconds:.2f}",
    )
