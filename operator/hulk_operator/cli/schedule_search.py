"""What `hulk schedule` was asked -> a placement, its schedule, and what is shown of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hulk_placement.files.placement_reading import ReadPlacement, read_links, read_placement
from hulk_placement.report.schedule.rows import ScheduleView
from hulk_placement.report.schedule.view import Titled, schedule_view
from hulk_placement.schedule.found import Found
from hulk_placement.schedule.links import with_links
from hulk_placement.schedule.memory import Memory
from hulk_placement.schedule.placement import Placement
from hulk_placement.schedule.search import MODES, pattern_of
from hulk_placement.schedule.search import scheduled as search
from hulk_placement.schedule.shapes import SHAPES, split_weights

NUM_DEVICES, FORWARD_SPAN, BACKWARD_SPAN = 4, 1.0, 3.0
"""Of a ready-made placement, where nothing else is said."""

SEARCHED, OPTIMAL = "searched", "optimal"
"""Modes: as usual, and what --time-optimal means."""

LEAST_S = 0.1
"""Of the seconds that must be left for a pattern."""

MOST_SEED = 2**31 - 1
"""What the solver takes."""

MOST_BLOCKS = 200_000
"""Of all micro-batches together."""


@dataclass(frozen=True, slots=True)
class Shaped:
    """Which placement: a ready-made one by its name, or a file's; what is None is the file's, or as usual."""

    placement: str
    num_devices: int | None = None
    forward_span: float | None = None
    backward_span: float | None = None
    links: Path | None = None
    forward_only: bool = False
    split_weights: bool = False


@dataclass(frozen=True, slots=True)
class Search:
    """How a schedule is looked for."""

    num_micro_batches: int
    memory: str | None
    seconds: float
    seed: int
    mode: str = SEARCHED

    def __post_init__(self) -> None:
        if self.num_micro_batches < 1:
            raise ValueError(f"--micro-batches {self.num_micro_batches}: must be >= 1")
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise ValueError(f"--seconds {self.seconds}: must be > 0 and finite")
        if not 0 <= self.seed <= MOST_SEED:
            raise ValueError(f"--seed {self.seed}: must be >= 0 and <= {MOST_SEED}")
        if self.mode not in MODES:
            raise ValueError(f"--mode {self.mode}: none of {', '.join(MODES)}")


def find(placement: Placement, asked: Search, memory: Memory) -> Found:
    """The schedule in the mode that was asked for; a search that ends early goes on to tell the shortest pattern."""
    found = search(placement, asked.num_micro_batches, memory, asked.seconds, asked.mode, asked.seed)
    left_s = asked.seconds - found.seconds
    if asked.mode != SEARCHED or found.pattern is not None or left_s < LEAST_S:
        return found
    pattern = pattern_of(placement, asked.num_micro_batches, memory, left_s, asked.seed)
    return found if pattern is None else replace(found, pattern=pattern, seconds=found.seconds + pattern.seconds)


def scheduled(shaped: Shaped, asked: Search) -> ScheduleView:
    """The schedule that was asked for. ValueError with the figures where there can be none."""
    read = placed(shaped)
    placement, num = read.placement, asked.num_micro_batches
    num_blocks = len(placement.blocks) + len(placement.transfers)
    if num * num_blocks > MOST_BLOCKS:
        raise ValueError(
            f"{num} micro-batches of {num_blocks} blocks and transfers are {num * num_blocks}: at most {MOST_BLOCKS} "
            f"are ordered, {MOST_BLOCKS // num_blocks} micro-batches of these"
        )
    memory = limits(asked.memory, placement.num_devices)
    found = find(placement, asked, memory)
    titled = Titled(
        placement=shaped.placement if shaped.placement in SHAPES else Path(shaped.placement).stem,
        mode=asked.mode,
        time_unit="s" if read.in_seconds else "",
        memory_unit="GiB" if read.in_gibibytes else "",
    )
    return schedule_view(titled, placement, found, memory)


def placed(shaped: Shaped) -> ReadPlacement:
    """The placement, with transfers over the links and with what was asked of its blocks."""
    made = SHAPES.get(shaped.placement)
    read = _from_file(shaped) if made is None else ReadPlacement(_ready_made(made, shaped))
    placement = read.placement
    if shaped.forward_only and shaped.split_weights:
        raise ValueError("--forward-only leaves no backward blocks for --split-weights to split")
    if shaped.split_weights:
        placement = split_weights(placement)
    if shaped.forward_only:
        placement = placement.forward_only()
    if shaped.links is not None:
        links = read_links(shaped.links, placement.num_devices, read.in_seconds)
        placement = with_links(placement, links)
    if not any(block.span for block in placement.blocks):
        raise ValueError(
            f"{shaped.placement}: all {len(placement.blocks)} blocks have span 0: there is nothing to order"
        )
    return ReadPlacement(placement, read.in_seconds, read.in_gibibytes)


def _ready_made(made: Callable[[int, float, float], Placement], shaped: Shaped) -> Placement:
    num_devices = NUM_DEVICES if shaped.num_devices is None else shaped.num_devices
    if num_devices < 1:
        raise ValueError(f"--devices {num_devices}: must be >= 1")
    if 2 * num_devices > MOST_BLOCKS:
        raise ValueError(f"--devices {num_devices}: at most {MOST_BLOCKS} blocks are ordered")
    forward = _span("--forward-span", shaped.forward_span, FORWARD_SPAN)
    return made(num_devices, forward, _span("--backward-span", shaped.backward_span, BACKWARD_SPAN))


def _from_file(shaped: Shaped) -> ReadPlacement:
    path = Path(shaped.placement)
    if not path.exists():
        raise ValueError(f"--placement {shaped.placement}: neither a file nor one of {', '.join(SHAPES)}")
    read = read_placement(path)
    for option, value in (("--forward-span", shaped.forward_span), ("--backward-span", shaped.backward_span)):
        if value is not None:
            raise ValueError(f"{option} {value:g} is of ready-made placements: the spans are in {path}")
    if shaped.num_devices not in (None, read.placement.num_devices):
        raise ValueError(f"--devices {shaped.num_devices}: {path} is of {read.placement.num_devices}")
    return read


def _span(option: str, value: float | None, usual: float) -> float:
    if value is None:
        return usual
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{option} {value:g}: must be >= 0 and finite")
    return value


def limits(said: str | None, num_devices: int) -> Memory:
    """What devices have: one figure for all, or one for each, with commas.

    >>> limits("16", 4), limits("8,16", 2), limits(None, 2)
    (16.0, [8.0, 16.0], inf)
    """
    if said is None:
        return math.inf
    try:
        found = [float(word) for word in said.split(",")]
    except ValueError:
        raise ValueError(f"--memory {said}: one figure, or one for each device with commas between them") from None
    if not all(math.isfinite(value) and value >= 0 for value in found):
        raise ValueError(f"--memory {said}: must be >= 0 and finite")
    if len(found) not in (1, num_devices):
        raise ValueError(f"--memory {said}: {len(found)} figures for {num_devices} devices")
    return found[0] if len(found) == 1 else found
