"""Ranks that are ahead of others, however far: nobody is blamed, nothing hangs, and what is kept is bounded."""

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from collective_ranks import PATIENCE_S, all_reduce, break_off, group, plans, together, vectors
from hulk_runtime.collective.connections import early_chunks
from hulk_runtime.collective.connections.peer import Peer
from hulk_runtime.collective.group import Collective, Settings
from hulk_runtime.collective.reduction.handle import Both, Work
from hulk_runtime.collective.reduction.operation import Outgoing
from hulk_runtime.collective.wire.frames import GarbageError, Header, Kind, Phase
from hulk_runtime.errors import MembershipChangedError, RankLostError
from hulk_runtime.plan.flows import CollectivePlan
from hypothesis import given, settings
from hypothesis import strategies as st

BOUND_S = 2.0
QUICK = Settings(bound_s=BOUND_S, connect_s=PATIENCE_S)
SEED = 5


def direct(num_ranks: int, on_region_loss: str = "restart") -> CollectivePlan:
    """Each rank a region of its own."""
    plan = CollectivePlan.direct([[rank] for rank in range(num_ranks)], chunk_bytes=1 << 12)
    return replace(plan, on_region_loss=on_region_loss)


def order(rank: Collective, number: int, count: int, num_values: int) -> list[tuple[torch.Tensor, Work | Both]]:
    mine = [vectors(number + 1, num_values, seed=seed)[number] for seed in range(count)]
    return [(vector, rank.all_reduce(vector)) for vector in mine]


def check(ordered: Sequence[Sequence[tuple[torch.Tensor, Work | Both]]]) -> None:
    """Every rank has every sum."""
    for works in ordered:
        for _, work in works:
            work.wait(PATIENCE_S)
    for seed, sums in enumerate(zip(*ordered, strict=True)):
        found = [vector for vector, _ in sums]
        wanted = torch.stack(vectors(len(ordered), found[0].numel(), seed=seed)).sum(0)
        for vector in found:
            assert torch.equal(vector, found[0])
            assert torch.allclose(vector, wanted, atol=1e-5)


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> int:
    num_bytes = 64 << 10
    monkeypatch.setattr(early_chunks, "MAX_EARLY_BYTES", num_bytes)
    return num_bytes


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("late", [0, 2])
def test_a_rank_may_be_late_by_more_than_the_bound_while_others_order_much(late: int) -> None:
    with group(direct(3), QUICK) as ranks:
        ordered = {number: order(ranks[number], number, 8, 50_000) for number in range(3) if number != late}
        time.sleep(1.5 * BOUND_S)
        assert not any(work.is_done for works in ordered.values() for _, work in works)
        ordered[late] = order(ranks[late], late, 8, 50_000)
        check([ordered[number] for number in range(3)])


def test_a_rank_may_be_late_by_any_number_of_small_all_reduces() -> None:
    count = 2 * early_chunks.MAX_AHEAD + 10
    with group(direct(2), QUICK) as ranks:
        first = order(ranks[0], 0, count, 3)
        time.sleep(0.5)
        check([first, order(ranks[1], 1, count, 3)])


def test_a_rank_that_is_told_to_do_much_is_heard_meanwhile() -> None:
    with group(direct(2), QUICK) as ranks:
        all_reduce(ranks, vectors(2, 100))
        for _ in range(300):
            ranks[1]._engine.do(lambda: time.sleep(BOUND_S / 200))
        check([order(rank, number, 1, 3) for number, rank in enumerate(ranks)])


@pytest.mark.usefixtures("little_room")
def test_nobody_waits_for_a_beat_when_all_have_begun() -> None:
    """A beat comes every 7.5 s here, and each vector is many times what may be sent before one."""
    with group(direct(3), Settings(bound_s=60.0, connect_s=PATIENCE_S)) as ranks:
        all_reduce(ranks, vectors(3, 100))
        begun_s = time.monotonic()
        check([order(rank, number, 3, 300_000) for number, rank in enumerate(ranks)])
        assert time.monotonic() - begun_s < 5.0


@pytest.mark.usefixtures("little_room")
def test_who_is_late_and_who_waits_hear_of_a_loss_within_the_bound() -> None:
    with group(direct(3), QUICK) as ranks:
        works = [work for _, work in order(ranks[0], 0, 8, 50_000)]
        time.sleep(0.5)
        begun_s = time.monotonic()
        break_off(ranks[2])
        for work in works:
            with pytest.raises(RankLostError, match="rank 2 was lost"):
                work.wait(PATIENCE_S)
        assert time.monotonic() - begun_s < BOUND_S
        with pytest.raises(RankLostError, match="rank 2 was lost"):
            ranks[1].all_reduce(torch.ones(3)).wait(PATIENCE_S)


@pytest.mark.usefixtures("little_room")
def test_what_was_sent_in_an_epoch_that_ended_counts_no_more() -> None:
    with group(direct(3, "continue"), QUICK) as ranks:
        works = [work for _, work in order(ranks[0], 0, 8, 50_000)]
        time.sleep(0.5)
        break_off(ranks[2])
        for work in works:
            with pytest.raises(MembershipChangedError):
                work.wait(PATIENCE_S)
        while ranks[1]._engine.membership.epoch == 0:
            time.sleep(0.01)
        for rank in ranks[:2]:
            rank.adopt()
        first = order(ranks[0], 0, 8, 50_000)
        time.sleep(0.5)
        check([first, order(ranks[1], 1, 8, 50_000)])


@settings(max_examples=15)
@given(plans(), st.integers(1, 2), st.integers(0, 10_000))
def test_any_rank_may_be_late_at_any_time(plan: CollectivePlan, num_streams: int, seed: int) -> None:
    """Also by relays, and with ranks that own nothing of what others exchange."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(early_chunks, "MAX_EARLY_BYTES", 4 << 10)
        patch.setattr(early_chunks, "MAX_AHEAD", 3)
        with group(plan, Settings(bound_s=20.0, connect_s=PATIENCE_S, num_streams=num_streams)) as ranks:

            def run(number: int) -> list[tuple[torch.Tensor, Work | Both]]:
                draw = random.Random(100 * seed + number)
                works = []
                for each in range(6):
                    time.sleep(draw.choice((0.0, 0.0, 0.03)))
                    mine = vectors(number + 1, 500, seed=each)[number]
                    works.append((mine, ranks[number].all_reduce(mine)))
                    if draw.random() < 0.3:
                        works[-1][1].wait(PATIENCE_S)
                return works

            check(together([lambda number=number: run(number) for number in range(plan.num_ranks)]))  # type: ignore[misc]


def frame(operation: int, num_bytes: int) -> Outgoing:
    header = Header(Kind.CHUNK, num_bytes, operation=operation, phase=Phase.SUM)
    return Outgoing(1, header.pack(), memoryview(bytes(num_bytes)), (operation, 0.0, 0.0))


def test_half_a_chunk_of_what_has_begun_takes_no_room(little_room: int) -> None:
    """Its sender knows of the beginning, perhaps, and sends more over another connection."""
    kept = early_chunks.EarlyChunks()
    half, other = (Header(Kind.CHUNK, little_room // 2, operation=number) for number in range(2))
    kept.expect(1, half, 0)
    kept.take(0, 0)
    kept.expect(1, other, 1)
    kept.expect(1, Header(Kind.CHUNK, little_room // 2 - 2 * early_chunks.EARLY_FRAME_BYTES, operation=2), 1)
    with pytest.raises(GarbageError):
        kept.expect(1, Header(Kind.CHUNK, 1, operation=2), 1)
    assert kept.is_early(half), "it was not checked yet"


def test_what_waits_for_room_holds_up_nothing_else(little_room: int) -> None:
    peer = Peer(1, is_far=True, channels=[SimpleNamespace(wants_write=False)])  # type: ignore[list-item]
    for number in range(3):
        peer.push(frame(number, little_room // 2))
    assert peer.pop() is not None
    assert not peer.has_frames, "the second one is too much"
    assert peer.pop() is None
    assert peer.is_busy
    peer.push_first(Header(Kind.BEAT).pack())
    assert peer.pop() is not None, "a beat goes"
    peer.ahead.begun(1)
    assert peer.pop() is not None
    peer.ahead.begun(0)
    assert peer.pop() is None, "what was said before it does not count"
    peer.ahead.begun(2)
    assert peer.pop() is not None
    peer.push_last(Header(Kind.WARM, 1), memoryview(b"0"))
    assert peer.pop() is not None, "bytes without meaning need no room"
