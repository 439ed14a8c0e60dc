"""Ready-made placements: how stages lie on devices. `forward` and `backward` are the spans of a stage's blocks.

A stage's forward block holds memory 1 on its device, which its backward block gives back. A block on all devices, such
as an embedding that is sharded over them, has span 1 and holds nothing, unless a shape says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from hulk_placement.schedule.placement import Block, Kind, Placement

FULL_SPAN = 1.0


def chain(stages: Iterable[tuple[str, Sequence[int]]], num_devices: int, forward: float, backward: float) -> Placement:
    """Stages, by name and devices, one after the other, and back."""
    stages = list(stages)
    there = [
        _stage(f"F{name}", devices, Kind.FORWARD, forward, num_devices, number)
        for number, (name, devices) in enumerate(stages)
    ]
    back = [
        _stage(f"B{name}", devices, Kind.BACKWARD, backward, num_devices, len(stages) + number)
        for number, (name, devices) in enumerate(reversed(stages))
    ]
    return Placement(num_devices, (*there, *back))


def _stage(name: str, devices: Sequence[int], kind: Kind, span: float, num_devices: int, number: int) -> Block:
    is_full = len(devices) == num_devices > 1
    held = 0.0 if is_full else 1.0 if kind is Kind.FORWARD else -1.0
    return Block(name, tuple(devices), FULL_SPAN if is_full else span, held, (number - 1,) if number else (), kind)


def v(num_devices: int, forward: float = 1.0, backward: float = 3.0) -> Placement:
    """A stage a device, in order."""
    return chain([(str(d), [d]) for d in range(num_devices)], num_devices, forward, backward)


def interleaved(num_devices: int, forward: float = 1.0, backward: float = 3.0, rounds: int = 2) -> Placement:
    """V, `rounds` times in the same order (Narayanan et al., SC 2021): each device has so many stages."""
    stages = [(f"{n * num_devices + d}", [d]) for n in range(rounds) for d in range(num_devices)]
    return chain(stages, num_devices, forward, backward)


def wave(num_devices: int, forward: float = 1.0, backward: float = 3.0, rounds: int = 2) -> Placement:
    """V, every second round in the opposite order (Hanayo, Liu et al., SC 2023)."""
    there = list(range(num_devices))
    stages = [
        (f"{n * num_devices + place}", [d])
        for n in range(rounds)
        for place, d in enumerate(there if n % 2 == 0 else there[::-1])
    ]
    return chain(stages, num_devices, forward, backward)


def x(num_devices: int, forward: float = 1.0, backward: float = 3.0) -> Placement:
    """Two pipelines in opposite directions (Chimera, Li and Hoefler, SC 2021); a micro-batch of each counts as one."""
    one = v(num_devices, forward, backward).blocks
    other = (
        replace(
            block,
            name=f"{block.name}'",  # of the same stage
            devices=tuple(num_devices - 1 - d for d in block.devices),
            after=tuple(len(one) + a for a in block.after),
        )
        for block in one
    )
    return Placement(num_devices, (*one, *other))


def m(num_devices: int, forward: float = 1.0, backward: float = 3.0) -> Placement:
    """A block on all devices, such as a sharded embedding, before V and behind it."""
    everywhere = list(range(num_devices))
    return chain([("all", everywhere), *((str(d), [d]) for d in everywhere)], num_devices, forward, backward)


def nn(num_devices: int, forward: float = 1.0, backward: float = 3.0) -> Placement:
    """Blocks on all devices before either half of the stages: an encoder and a decoder, each with its embedding."""
    everywhere, half = list(range(num_devices)), num_devices // 2
    stages = [(str(d), [d]) for d in everywhere]
    halves = [("all", everywhere), *stages[:half], ("all'", everywhere), *stages[half:]]
    return chain(halves, num_devices, forward, backward)


def k(num_devices: int, forward: float = 1.0, backward: float = 3.0) -> Placement:
    """Two branches, a half of the devices each, that a block on all devices joins; that one holds memory 1, too."""
    if num_devices < 2:
        raise ValueError(f"placement k needs 2 devices or more, not {num_devices}")
    half, everywhere = num_devices // 2, tuple(range(num_devices))
    branches = [range(half), range(half, num_devices)]
    blocks: list[Block] = []
    ends = []
    for branch in branches:
        for place, device in enumerate(branch):
            needed = (len(blocks) - 1,) if place else ()
            blocks.append(Block(f"F{device}", (device,), forward, 1.0, needed))
        ends.append(len(blocks) - 1)
    blocks.append(Block("Fall", everywhere, FULL_SPAN, 1.0, tuple(ends)))
    joined = len(blocks)
    blocks.append(Block("Ball", everywhere, FULL_SPAN, -1.0, (joined - 1,), Kind.BACKWARD))
    for branch in branches:
        for place, device in enumerate(reversed(branch)):
            needed = (len(blocks) - 1,) if place else (joined,)
            blocks.append(Block(f"B{device}", (device,), backward, -1.0, needed, Kind.BACKWARD))
    return Placement(num_devices, tuple(blocks))


SHAPES: dict[str, Callable[[int, float, float], Placement]] = {
    "v": v,
    "interleaved": interleaved,
    "wave": wave,
    "x": x,
    "m": m,
    "nn": nn,
    "k": k,
}


def split_weights(placement: Placement, share: float = 0.5) -> Placement:
    """With backward blocks in two: of inputs first, of weights later, as zero-bubble schedules need (Qi et al., 2024).

    `share` of a backward block's span is the weights'. They give the memory back.
    """
    blocks: list[Block] = list(placement.blocks)
    for number, block in enumerate(placement.blocks):
        if block.kind is Kind.BACKWARD and len(block.devices) < placement.num_devices:
            blocks[number] = replace(block, span=block.span * (1 - share), memory=0.0)
            name = f"W{block.name.removeprefix('B')}"
            later = replace(block, name=name, span=block.span * share, after=(number,), kind=Kind.WEIGHT)
            blocks.append(later)
    return replace(placement, blocks=tuple(blocks))
