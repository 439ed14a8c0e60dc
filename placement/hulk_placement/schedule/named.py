"""Schedules that have a name, as orders of the blocks of each device: what a search is compared with.

GPipe (Huang et al., NeurIPS 2019), 1F1B (Narayanan et al., SOSP 2019), interleaved 1F1B (Narayanan et al., SC 2021) and
zero-bubble H1 (Qi et al., ICLR 2024). They are made for a chain of stages, one device each, or the same devices several
times in the same order; on other placements 1F1B is the best greedy schedule with as few micro-batches under way.
"""

from __future__ import annotations

from collections.abc import Callable

from hulk_placement.cost.simulation.schedule import FORWARD, schedule
from hulk_placement.schedule.operations import Operations, operations_of
from hulk_placement.schedule.packed import packed
from hulk_placement.schedule.placement import Block, Kind, Placement
from hulk_placement.schedule.timing import Orders, Schedule, Turn, earliest


def gpipe(placement: Placement, num_micro_batches: int) -> Schedule:
    """All forward blocks of all micro-batches, then all backward ones; of several stages on a device one by one."""
    operations = operations_of(placement)

    def order(device: int) -> list[Turn]:
        users = operations.users(device)
        turns = [(number, m) for number in users for m in range(num_micro_batches)]
        return sorted(turns, key=lambda turn: _kind(operations, placement, turn[0]) is not Kind.FORWARD)

    return _of(operations, placement, order, num_micro_batches)


def one_forward_one_backward(placement: Placement, num_micro_batches: int) -> Schedule:
    """As many forward blocks as stages follow, then a backward and a forward block in turn."""
    stages = _stages(placement)
    if stages is None or len(stages) != placement.num_devices:
        return greedy_with_few(placement, num_micro_batches)
    operations = operations_of(placement)
    place = {stage[0].devices[0]: number for number, stage in enumerate(stages)}

    def order(device: int) -> list[Turn]:
        forward, backward = _numbers(operations, placement, device)
        return one_in_turn(forward, backward, place[device], placement.num_devices, num_micro_batches)

    return _of(operations, placement, order, num_micro_batches)


def one_in_turn(
    forward: list[int], backward: list[int], stage: int, num_stages: int, num_micro_batches: int
) -> list[Turn]:
    """The forward and the backward blocks of one of so many stages, in the order of 1F1B.

    >>> one_in_turn([0], [7], stage=0, num_stages=2, num_micro_batches=3)
    [(0, 0), (0, 1), (7, 0), (0, 2), (7, 1), (7, 2)]
    """
    order = schedule("1f1b", num_stages, num_micro_batches).orders[stage]
    return [(number, m) for kind, m in order for number in (forward if kind == FORWARD else backward)]


def interleaved(placement: Placement, num_micro_batches: int) -> Schedule:
    """1F1B over several stages a device: as many micro-batches as devices pass the same stage one after another.

    ValueError where the placement is no such chain or the micro-batches are no multiple of the devices.
    """
    num_devices, stages = placement.num_devices, _stages(placement)
    rounds = len(stages) // num_devices if stages else 0
    if not stages or [stage[0].devices[0] for stage in stages] != [*range(num_devices)] * rounds:
        raise ValueError("interleaved 1F1B needs all devices in the same order, as often as each has stages")
    if num_micro_batches % num_devices:
        raise ValueError(f"interleaved 1F1B needs a multiple of {num_devices} micro-batches, not {num_micro_batches}")
    operations = operations_of(placement)
    groups = range(0, num_micro_batches, num_devices)

    def order(device: int) -> list[Turn]:
        forward, backward = _numbers(operations, placement, device)
        in_turn = [
            [(number, g + m) for g in groups for number in numbers for m in range(num_devices)]
            for numbers in (forward, backward)
        ]
        num_ahead = 2 * (num_devices - 1 - device) + (rounds - 1) * num_devices + 1
        ahead, rest = in_turn[0][:num_ahead], in_turn[0][num_ahead:]
        both = [turn for pair in zip(in_turn[1], rest, strict=False) for turn in pair]
        return ahead + both + in_turn[1][len(rest) :]

    return _of(operations, placement, order, num_micro_batches)


def zero_bubble(placement: Placement, num_micro_batches: int) -> Schedule:
    """1F1B with gradients of weights put off, by one micro-batch more on each device, so that they fill what was idle.

    ValueError where the placement is no chain of stages, one a device, with blocks for weights.
    """
    stages = _stages(placement)
    if stages is None or len(stages) != placement.num_devices or any(len(stage) != 3 for stage in stages):
        raise ValueError("zero-bubble needs a chain of stages, one a device, with backward blocks in two")
    operations = operations_of(placement)
    place = {stage[0].devices[0]: number for number, stage in enumerate(stages)}
    last = num_micro_batches - 1

    def order(device: int) -> list[Turn]:
        forward, backward = _numbers(operations, placement, device)
        inputs, weights = backward
        late = place[device]
        turns: list[Turn] = []
        for turn in one_in_turn(forward, [inputs], late, placement.num_devices, num_micro_batches):
            turns.append(turn)
            if turn[0] == inputs and turn[1] >= late:
                turns.append((weights, turn[1] - late))
        return turns + [(weights, m) for m in range(max(0, last - late + 1), num_micro_batches)]

    return _of(operations, placement, order, num_micro_batches)


def greedy_with_few(placement: Placement, num_micro_batches: int) -> Schedule:
    """The best greedy schedule with memory for as many micro-batches as there are devices."""
    operations = operations_of(placement)
    held = [
        sum(max(0.0, operations.operations[number].memory) for number in operations.holders(device))
        for device in range(placement.num_devices)
    ]
    return packed(operations, num_micro_batches, [placement.num_devices * one for one in held])


def _of(
    operations: Operations, placement: Placement, order: Callable[[int], list[Turn]], num_micro_batches: int
) -> Schedule:
    orders: Orders = [order(device) for device in range(placement.num_devices)]
    return earliest(operations, orders, num_micro_batches)


def _kind(operations: Operations, placement: Placement, number: int) -> Kind:
    block = operations.operations[number].block
    assert block is not None  # transfers occupy no device
    return placement.blocks[block].kind


def _numbers(operations: Operations, placement: Placement, device: int) -> tuple[list[int], list[int]]:
    """The forward blocks of a device, and the others, in the order in which they need each other."""
    users = operations.users(device)
    forward = [number for number in users if _kind(operations, placement, number) is Kind.FORWARD]
    return forward, [number for number in users if number not in forward]


def _stages(placement: Placement) -> list[list[Block]] | None:
    """The blocks of every stage, forward first, where they are a chain with one device each; else None."""
    forward = [block for block in placement.blocks if block.kind is Kind.FORWARD]
    is_chain = all(len(block.devices) == 1 for block in placement.blocks)
    is_chain = is_chain and [len(block.after) for block in forward] == [0] + [1] * (len(forward) - 1)
    if not is_chain:
        return None
    return [[block for block in placement.blocks if block.name[1:] == one.name[1:]] for one in forward]


NAMED: dict[str, Callable[[Placement, int], Schedule]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "interleaved": interleaved,
    "zero-bubble": zero_bubble,
}
