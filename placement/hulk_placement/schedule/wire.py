"""A schedule as JSON values that the ranks of a pipeline read: blocks, and in which order each device runs its own.

Starts are not in it: every device runs its blocks in order, each as soon as what it needs is there. In the steady part
of a schedule a device repeats its blocks for one micro-batch after another, so its order is written as what comes
before, one round, how often, and what comes behind: as short for a thousand micro-batches as for ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hulk_placement.schedule.placement import Kind, Placement
from hulk_placement.schedule.shapes import v
from hulk_placement.schedule.timing import Schedule, Turn

VERSION = 1

MAX_STEP = 16
"""Micro-batches of a round, at most."""


def document(placement: Placement, schedule: Schedule) -> dict[str, Any]:
    """A placement's schedule as JSON values. ValueError where a backward block has no forward block of its name."""
    turns = [_turns(schedule, device) for device in range(placement.num_devices)]
    return _document(placement, turns, schedule.num_micro_batches)


def chain_document(orders: Sequence[Sequence[tuple[str, int]]]) -> dict[str, Any]:
    """The schedule of a chain of stages, one a device: of each its forward (F) and backward (B) turns in order."""
    placement = v(len(orders))
    number = {block.name: place for place, block in enumerate(placement.blocks)}
    turns = [[(number[f"{kind}{stage}"], m) for kind, m in order] for stage, order in enumerate(orders)]
    return _document(placement, turns, len(orders[0]) // 2)


def chain_orders(document: dict[str, Any]) -> tuple[tuple[tuple[str, int], ...], ...]:
    """The orders that `chain_document` was given."""
    kinds = [block["name"][0] for block in document["blocks"]]
    return tuple(tuple((kinds[block], m) for block, m in unrolled(order)) for order in document["orders"])


def _document(placement: Placement, turns: Sequence[Sequence[Turn]], num_micro_batches: int) -> dict[str, Any]:
    """`forward`: the number of the forward block whose activations a block needs."""
    numbers = {block.name: number for number, block in enumerate(placement.blocks)}
    blocks: list[dict[str, Any]] = []
    for block in placement.blocks:
        forward = numbers.get(f"F{block.name[1:]}") if block.kind is not Kind.FORWARD else numbers[block.name]
        if forward is None:
            raise ValueError(f"block {block.name}: there is no forward block F{block.name[1:]}")
        blocks.append(
            {
                "name": block.name,
                "kind": str(block.kind),
                "stage": block.stage,
                "devices": list(block.devices),
                "after": list(block.after),
                "forward": forward,
            }
        )
    return {
        "version": VERSION,
        "numDevices": placement.num_devices,
        "numMicroBatches": num_micro_batches,
        "blocks": blocks,
        "orders": [rounds(order) for order in turns],
    }


def _turns(schedule: Schedule, device: int) -> list[Turn]:
    """The blocks of a device, in order, by their numbers in the placement."""
    operations = schedule.operations.operations
    return [(block, m) for number, m in schedule.order(device) if (block := operations[number].block) is not None]


def rounds(turns: Sequence[Turn]) -> dict[str, Any]:
    """An order as what comes before its longest repetition, one round, how many rounds, and what comes behind.

    Each round is the one before it for micro-batches that are `step` later.

    >>> rounds([(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (0, 3), (1, 2), (1, 3)])
    {'before': [[0, 0]], 'round': [[0, 1], [1, 0]], 'step': 1, 'times': 3, 'behind': [[1, 3]]}
    """
    num_blocks = len({block for block, _ in turns})
    found = [_repetition(turns, num_blocks * step, step) for step in range(1, MAX_STEP + 1)]
    begin, length, step, times = min(found, key=lambda one: (len(turns) - one[1] * (one[3] - 1), one[2]))
    end = begin + times * length
    return {
        "before": [list(turn) for turn in turns[:begin]],
        "round": [list(turn) for turn in turns[begin : begin + length]],
        "step": step,
        "times": times,
        "behind": [list(turn) for turn in turns[end:]],
    }


def _repetition(turns: Sequence[Turn], length: int, step: int) -> tuple[int, int, int, int]:
    """Where the longest repetition of rounds of this length begins, the length, the step, and how many there are."""
    longest, begin, run = 0, 0, 0
    for place in range(len(turns) - length):
        block, m = turns[place]
        run = run + 1 if turns[place + length] == (block, m + step) else 0
        if run > longest:
            longest, begin = run, place - run + 1
    if not longest // max(1, length):
        return 0, 0, step, 1
    return begin, length, step, longest // length + 1


def unrolled(order: dict[str, Any]) -> list[Turn]:
    """The order that `rounds` was given."""
    more = [(block, m + k * order["step"]) for k in range(order["times"]) for block, m in order["round"]]
    return [(block, m) for block, m in order["before"]] + more + [(block, m) for block, m in order["behind"]]
