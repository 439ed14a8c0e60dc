"""A schedule that was found -> what is shown of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from hulk_placement.report.schedule.rows import BlockRow, LinkRow, PatternRow, ScheduleView, TransferRow
from hulk_placement.report.schedule.sections import steady
from hulk_placement.schedule.found import Found, Repetend
from hulk_placement.schedule.memory import Memory, limit_of
from hulk_placement.schedule.operations import Operations
from hulk_placement.schedule.placement import Placement
from hulk_placement.schedule.timing import Schedule

DIGITS = 12
"""Of a time: what a sum of floats has behind is no part of it."""


@dataclass(frozen=True, slots=True)
class Titled:
    """What a schedule is of: the placement's name, how it was found, and the units of its figures ("" for none)."""

    placement: str
    mode: str
    time_unit: str = ""
    memory_unit: str = ""


def schedule_view(titled: Titled, placement: Placement, found: Found, memory: Memory = math.inf) -> ScheduleView:
    """All that is known of a schedule."""
    schedule, operations, pattern = found.schedule, found.schedule.operations, found.pattern
    num_devices, num = placement.num_devices, schedule.num_micro_batches
    limits = tuple(limit_of(memory, device) for device in range(num_devices))
    all_time = num_devices * schedule.makespan
    view = ScheduleView(
        placement=titled.placement,
        mode=titled.mode,
        devices=num_devices,
        micro_batches=num,
        time_unit=titled.time_unit,
        memory_unit=titled.memory_unit,
        makespan=_tidy(schedule.makespan),
        period=None if pattern is None else _tidy(pattern.period),
        bubbles=_tidy(schedule.bubbles),
        bubble_share=schedule.bubbles / all_time if all_time else 0.0,
        bound=_tidy(found.bound),
        proven=found.is_proven,
        peak_memory=tuple(map(_tidy, schedule.peak_memory())),
        memory=None if all(map(math.isinf, limits)) else limits,
        seconds=found.seconds,
        pattern=None if pattern is None else _pattern(pattern),
        busy=tuple(_tidy(num * operations.work(device)) for device in range(num_devices)),
        links=tuple(_links(schedule)),
        blocks=tuple(sorted(_blocks(placement, schedule), key=lambda row: (row.start, row.devices, row.end))),
        transfers=tuple(sorted(_transfers(schedule), key=lambda row: (row.start, row.channels, row.end))),
    )
    repeats = steady(view)
    return view if repeats is None else view.model_copy(update={"period": _tidy(repeats.period)})


def _pattern(found: Repetend) -> PatternRow:
    return PatternRow(
        period=_tidy(found.period),
        bound=_tidy(found.bound),
        proven=found.is_proven,
        bubbles=_tidy(found.bubbles),
        micro_batches=found.num_micro_batches,
    )


def _links(schedule: Schedule) -> Iterator[LinkRow]:
    operations = schedule.operations
    for resource in range(operations.num_devices, len(operations.resources)):
        busy = _tidy(schedule.num_micro_batches * operations.work(resource))
        share = busy / schedule.makespan if schedule.makespan else 0.0
        yield LinkRow(name=operations.resources[resource], busy=busy, share=share)


def _blocks(placement: Placement, schedule: Schedule) -> Iterator[BlockRow]:
    for number, one in enumerate(schedule.operations.operations):
        if one.block is None:
            continue
        block = placement.blocks[one.block]
        for micro_batch, start in enumerate(schedule.starts_ON[number]):
            yield BlockRow(
                name=block.name,
                kind=str(block.kind),
                stage=block.stage,
                devices=block.devices,
                micro_batch=micro_batch,
                start=_tidy(float(start)),
                end=_tidy(float(start) + block.span),
            )


def _transfers(schedule: Schedule) -> Iterator[TransferRow]:
    operations = schedule.operations
    for number, one in enumerate(operations.operations):
        if one.block is not None:
            continue
        target, latency = _goes_to(operations, number)
        for micro_batch, start in enumerate(schedule.starts_ON[number]):
            yield TransferRow(
                source=operations.operations[one.after[0][0]].name,
                target=target,
                channels=tuple(operations.resources[resource] for resource in one.resources),
                micro_batch=micro_batch,
                start=_tidy(float(start)),
                end=_tidy(float(start) + one.span),
                arrives=_tidy(float(start) + one.span + latency),
            )


def _goes_to(operations: Operations, transfer: int) -> tuple[str, float]:
    """The block that needs a transfer, and its latency."""
    return next((one.name, lag) for one in operations.operations for needed, lag in one.after if needed == transfer)


def _tidy(value: float) -> float:
    """
    >>> _tidy(0.1 + 0.2)
    0.3
    """
    return float(f"{value:.{DIGITS}g}")
