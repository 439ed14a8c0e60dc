"""Greedy schedules, patterns and named orders on one evaluator: known times, bounds that hold, what each refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
from depth import num_examples
from hulk_placement.schedule.bounds import held_time, least_makespan
from hulk_placement.schedule.links import DeviceLink, with_links
from hulk_placement.schedule.operations import operations_of
from hulk_placement.schedule.packed import Packer, Rule, packed, rules_of
from hulk_placement.schedule.placement import Block, Kind, Placement
from hulk_placement.schedule.search import MODES, scheduled
from hulk_placement.schedule.shapes import SHAPES, interleaved, split_weights, v
from hulk_placement.schedule.timing import check, earliest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.schedules import four_regions

MEMORY = 16.0


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    """Any DAG of forward blocks on up to three devices, each with its backward block, with links of any latency."""
    num_devices = draw(st.integers(1, 3))
    num = draw(st.integers(1, 4))
    spans = st.integers(1, 5)
    forward = [
        Block(
            f"F{n}",
            tuple(sorted(draw(st.sets(st.integers(0, num_devices - 1), min_size=1)))),
            draw(spans),
            draw(st.integers(0, 2)),
            tuple(sorted(draw(st.sets(st.integers(0, n - 1))))) if n else (),
        )
        for n in range(num)
    ]
    behind: list[list[int]] = [[n] for n in range(num)]
    for n, block in enumerate(forward):
        for needed in block.after:
            behind[needed].append(num + n)
    backward = [
        replace(block, name=f"B{n}", span=draw(spans), memory=-block.memory, after=tuple(behind[n]), kind=Kind.BACKWARD)
        for n, block in enumerate(forward)
    ]
    pairs = [(a, b) for a in range(num_devices) for b in range(num_devices) if a != b]
    links = {pair: DeviceLink(*pair, draw(st.integers(0, 3)), draw(st.integers(0, 3))) for pair in pairs}
    return with_links(Placement(num_devices, (*forward, *backward)), links)


@given(placements(), st.integers(1, 6), st.integers(0, 4), st.integers(0, 1 << 30))
@settings(max_examples=num_examples(200), deadline=None)
def test_greedy_schedules_can_be_carried_out_and_are_no_shorter_than_the_bound(
    placement: Placement, num: int, spare: int, seed: int
) -> None:
    """By any rule, with memory for one micro-batch in the order of its blocks and a bit more."""
    operations = operations_of(placement)
    alone = earliest(operations, [[(n, 0) for n in operations.users(d)] for d in range(placement.num_devices)], 1)
    memory = [peak + spare for peak in alone.peak_memory()]
    packer = Packer(operations, num, memory)
    packer.try_rules([*rules_of(operations), Rule(0.0, np.random.default_rng(seed).random(len(operations)))])
    assert packer.best is not None
    check(packer.best, memory)
    assert packer.best.makespan >= least_makespan(operations, num, memory) * (1 - 1e-9)
    assert earliest(operations, packer.best.orders(), num).makespan <= packer.best.makespan * (1 + 1e-9)


@given(placements(), st.integers(1, 6), st.integers(0, 1 << 30))
@settings(max_examples=num_examples(100), deadline=None)
def test_memory_given_back_when_a_block_begins_allows_the_same_schedules(
    placement: Placement, num: int, seed: int
) -> None:
    """Tessel's release beside ours at the end: a device that is busy with one block begins no other meanwhile."""
    operations = operations_of(placement)
    packer = Packer(operations, num, float("inf"))
    packer.try_rules([Rule(0.0, np.random.default_rng(seed).random(len(operations)))])
    schedule = packer.best
    assert schedule is not None

    def peak(device: int, is_at_begin: bool) -> float:
        changes = []
        for number in operations.users(device):
            one = operations.operations[number]
            later = 0.0 if one.memory > 0 or is_at_begin else one.span
            changes += [(float(start) + later, one.memory) for start in schedule.starts_ON[number]]
        return max(accumulate(change for _, change in sorted(changes)), default=0.0)

    for device, held in enumerate(schedule.peak_memory()):
        assert peak(device, is_at_begin=True) == peak(device, is_at_begin=False) == held


def test_what_is_held_for_how_long_by_hand() -> None:
    """Two stages, forward 1 and backward 3: the first one's activations wait for all of the second one."""
    operations = operations_of(v(2, 1, 3))
    assert [held_time(operations, device) for device in (0, 1)] == [8.0, 4.0]
    assert least_makespan(operations, 10, memory=1.0) == 80.0
    assert least_makespan(operations, 10, memory=2.0) == 1 + 3 + 10 * 4


@pytest.mark.parametrize("mode", ["searched", "optimal", "fast"])
def test_a_device_that_holds_nothing_needs_no_memory(mode: str) -> None:
    """Of two stages the second one keeps no activations."""
    blocks = tuple(replace(block, memory=0.0) if block.devices == (1,) else block for block in v(2, 1, 3).blocks)
    found = scheduled(Placement(2, blocks), 3, [2.0, 0.0], seconds=10, mode=mode)
    assert found.schedule.peak_memory() == [2.0, 0.0]


@pytest.mark.parametrize("mode", ["searched", "optimal"])
def test_memory_that_only_one_order_of_the_blocks_keeps(mode: str) -> None:
    """Two branches on one device that hold all of it: each must end before the other begins."""
    forward = [Block(f"F{n}", (0,), 1, 2.0) for n in (0, 1)]
    backward = [Block(f"B{n}", (0,), 1, -2.0, (n,), Kind.BACKWARD) for n in (0, 1)]
    placement = Placement(1, (*forward, *backward))
    found = scheduled(placement, 3, 2.0, seconds=60, mode=mode)
    assert (found.schedule.makespan, found.is_proven) == (12.0, True)
    with pytest.raises(ValueError, match="no greedy schedule"):
        scheduled(placement, 3, 2.0, mode="fast")


@pytest.mark.parametrize("mode", ["searched", "optimal"])
def test_devices_that_wait_for_each_others_memory_are_told_from_a_search_that_is_too_short(mode: str) -> None:
    """Two branches cross: each device's second block needs the other device's first one, which is held until then."""
    forward = [Block(f"F{n}", (n % 2,), 1, 1.0, needed) for n, needed in enumerate([(), (), (1,), (0,)])]
    needed_by = [(3,), (2,), (2, 4), (3, 5)]
    backward = [Block(f"B{n}", (n % 2,), 1, -1.0, needed_by[n], Kind.BACKWARD) for n in range(4)]
    placement = Placement(2, (*forward, *backward))
    complaint = r"no schedule keeps the memory of all devices \(1, 1\), though each has .* give device ([01]) 1 more$"
    with pytest.raises(ValueError, match=complaint) as told:
        scheduled(placement, 2, 1.0, seconds=60, mode=mode)
    found = re.search(complaint, str(told.value))
    assert found is not None
    lacks = int(found[1])
    assert scheduled(placement, 2, [1.0 + (device == lacks) for device in range(2)], seconds=60, mode=mode)


@pytest.mark.parametrize("shape", SHAPES)
def test_better_rules_are_never_worse_than_the_usual_ones(shape: str) -> None:
    operations = operations_of(SHAPES[shape](4, 1, 3))
    packer = Packer(operations, 32, 6.0)
    packer.try_rules(rules_of(operations))
    assert packer.best is not None
    usual = packer.best.makespan
    assert usual == packed(operations, 32, 6.0).makespan
    packer.climb(lambda: packer.num_tried < 500, seed=0)
    check(packer.best, 6.0)
    assert packer.best.makespan <= usual


@pytest.mark.parametrize(
    ("shape", "num", "makespan"),
    [("v", 32, 140), ("interleaved", 32, 268), ("wave", 32, 268), ("x", 32, 260), ("k", 32, 196)],
)
def test_four_devices_are_scheduled_as_short_as_anything_can_be(shape: str, num: int, makespan: float) -> None:
    found = scheduled(SHAPES[shape](4, 1, 3), num, MEMORY, seconds=60)
    assert (found.schedule.makespan, found.is_proven) == (makespan, True)


@pytest.mark.parametrize(("latency", "memory"), [(4.0, 64.0), (20.0, 64.0), (4.0, 32.0), (20.0, 32.0)])
def test_thirty_two_stages_over_four_regions(latency: float, memory: float) -> None:
    """At once: with memory for all micro-batches as short as anything can be, with half of it nearly so."""
    placement = four_regions(latency)
    fast = scheduled(placement, 64, memory, mode="fast")
    assert fast.schedule.makespan <= fast.bound * (1.0 if memory == 64.0 else 1.3) * (1 + 1e-9)
    assert fast.schedule.makespan < scheduled(placement, 64, mode="1f1b").schedule.makespan


def test_an_uplink_carries_one_thing_at_a_time() -> None:
    """Two stages in one region send to two in others at once: over one uplink they wait for each other."""
    blocks = (Block("F0", (0,), 1), Block("F1", (1,), 1), Block("F2", (2,), 1, 0, (0,)), Block("F3", (3,), 1, 0, (1,)))
    ends = {}
    for channels in ((), ("uplink",)):
        links = {way: DeviceLink(*way, busy=5.0, channels=channels) for way in ((0, 2), (1, 3))}
        found = scheduled(with_links(Placement(4, blocks), links), 1, mode="optimal")
        assert found.is_proven
        ends[channels] = found.schedule.makespan
    assert ends == {(): 7.0, ("uplink",): 12.0}


@pytest.mark.parametrize("latency", [0.0, 40.0, 80.0])
def test_named_orders_on_a_slow_link(latency: float) -> None:
    """Four stages, eight micro-batches, forward 10, backward 20, the link between stages 1 and 2."""
    placement = with_links(v(4, 10, 20), {way: DeviceLink(*way, latency=latency) for way in ((1, 2), (2, 1))})
    assert scheduled(placement, 8, 4.0, mode="1f1b").schedule.makespan == 330 + 8 * latency
    assert scheduled(placement, 8, mode="gpipe").schedule.makespan == 330 + 2 * latency


@pytest.mark.parametrize("num", [4, 8, 32])
def test_named_orders_without_links(num: int) -> None:
    """The bubbles of their papers: of p - 1 stages forward and backward; the same over so many rounds; the forward."""
    p = 4
    assert scheduled(v(p, 1, 2), num, p, mode="1f1b").schedule.makespan == 3 * num + 3 * (p - 1)
    assert scheduled(v(p, 1, 2), num, mode="gpipe").schedule.makespan == 3 * num + 3 * (p - 1)
    twice = interleaved(p, 1, 2, rounds=2)
    assert scheduled(twice, num, mode="interleaved").schedule.makespan == 6 * num + 3 * (p - 1)
    halves = scheduled(split_weights(v(p, 1, 2)), num, p, mode="zero-bubble")
    assert halves.schedule.makespan == 3 * num + (p - 1)


@pytest.mark.parametrize(
    ("mode", "num"), [(mode, num) for mode in MODES for num in ((3, 6) if mode == "interleaved" else (1, 2, 5, 8))]
)
def test_every_mode_keeps_what_every_schedule_must(mode: str, num: int) -> None:
    """`scheduled` checks what it gives back; here that modes agree on what is least."""
    placement = split_weights(v(3, 1, 2)) if mode == "zero-bubble" else v(3, 1, 2)
    found = scheduled(placement, num, seconds=10, mode=mode)
    least = scheduled(placement, num, seconds=10).schedule.makespan
    assert found.bound <= least * (1 + 1e-9) <= found.schedule.makespan * (1 + 2e-9)


def test_what_a_mode_cannot_do_is_said_with_the_numbers() -> None:
    with pytest.raises(ValueError, match="device 0 holds 32 at most, and has 16"):
        scheduled(v(4), 32, MEMORY, mode="gpipe")
    with pytest.raises(ValueError, match="needs a multiple of 4 micro-batches, not 6"):
        scheduled(interleaved(4), 6, mode="interleaved")
    with pytest.raises(ValueError, match="needs all devices in the same order"):
        scheduled(SHAPES["wave"](4, 1, 3), 8, mode="interleaved")
    with pytest.raises(ValueError, match="with backward blocks in two"):
        scheduled(v(4), 8, mode="zero-bubble")
    with pytest.raises(ValueError, match="0 micro-batches: must be >= 1"):
        scheduled(v(4), 0)
    for mode in ("searched", "optimal", "fast"):
        with pytest.raises(ValueError, match=r"device 0: one micro-batch alone holds 1 of memory, and there is 0.5"):
            scheduled(v(4), 8, 0.5, mode=mode)


def test_the_same_seed_finds_the_same_rule() -> None:
    operations = operations_of(SHAPES["nn"](4, 1, 3))
    found = []
    for _ in range(2):
        packer = Packer(operations, 16, 8.0)
        packer.try_rules(rules_of(operations))
        packer.climb(lambda packer=packer: packer.num_tried < 300, seed=7)  # type: ignore[misc]
        assert packer.best is not None
        found.append(packer.best.starts_ON.tolist())
    assert found[0] == found[1]
