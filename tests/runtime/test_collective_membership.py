"""Who goes on when a region is cut off: at most one side, whole regions only, and only those who agree."""

import itertools
import random
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from collective_ranks import (
    PATIENCE_S,
    SCOPE,
    SECRET,
    Doors,
    all_reduce,
    break_off,
    connect,
    doors,
    group,
    together,
    vectors,
    within,
)
from depth import num_examples
from hulk_runtime.collective.connections.peer import Peer
from hulk_runtime.collective.group import Settings
from hulk_runtime.collective.loop.group_state import GroupState
from hulk_runtime.collective.loop.operations import Order
from hulk_runtime.collective.loss_timeouts import REGROUP_SHARE, SETTLE_SHARE, LossTimeouts
from hulk_runtime.collective.reduction.handle import Work
from hulk_runtime.collective.reduction.vector import Values
from hulk_runtime.collective.staging import AllReduce
from hulk_runtime.collective.wire.failure import Failure
from hulk_runtime.collective.wire.frames import GarbageError, Header, Kind
from hulk_runtime.collective.wire.handshake import Identity, greet
from hulk_runtime.collective.wire.membership import Membership, Regroup, pack, parse, shares_of
from hulk_runtime.errors import MembershipChangedError, RankLostError
from hulk_runtime.plan.flows import CollectivePlan, Flow, SizeClass
from hypothesis import given, settings
from hypothesis import strategies as st

BOUND_S = 2.0
QUICK = Settings(bound_s=BOUND_S, connect_s=PATIENCE_S)
REGIONS = ((0, 1), (2,), (3,))
WITHOUT_3 = (SizeClass(1 << 40, 1 << 12, (Flow(1.0, (0, 1)),)),)
PLAN = CollectivePlan(
    REGIONS,
    {},
    (SizeClass(1 << 40, 1 << 12, (Flow(0.6, (0, 1), ((2, 1),), ((2, 0),)), Flow(0.4, (0, 1, 2)))),),
    without={2: WITHOUT_3},
    on_region_loss="continue",
)


def lost(*ranks: int) -> list[Failure]:
    return [Failure(rank, "silent") for rank in ranks]


def regroup(rank: int, regions: tuple[tuple[int, ...], ...]) -> Regroup:
    everyone = frozenset(itertools.chain(*regions))
    return Regroup(rank, Membership(0, everyone), [frozenset(region) for region in regions], deadline_s=10.0)


@pytest.mark.parametrize(
    ("name", "regions", "gone", "side", "goes_on"),
    [
        ("the larger side", ((0, 1, 2), (3, 4)), (3, 4), 0, True),
        ("the smaller side", ((0, 1, 2), (3, 4)), (0, 1, 2), 3, False),
        ("half with rank 0", ((0, 1), (2, 3)), (2, 3), 0, True),
        ("half without rank 0", ((0, 1), (2, 3)), (0, 1), 2, False),
        ("rank 0's small region is cut off", ((0,), (1, 2), (3, 4)), (0,), 1, True),
        ("two regions at once", ((0, 1, 2), (3,), (4,)), (3, 4), 0, True),
    ],
)
def test_one_side_goes_on(name, regions, gone, side, goes_on) -> None:
    mine = regroup(side, regions)
    mine.lose(lost(*gone))
    assert mine.outcome(0.0) is None or len(mine.left) == 1, "not before the others have said so"
    for rank in mine.left - {side}:
        mine.hear(rank, lost(*gone))
    outcome = mine.outcome(0.0)
    assert outcome == (Membership(1, mine.left) if goes_on else Failure(min(gone), "silent"))


def test_a_part_of_a_region_is_waited_for_and_then_the_group_ends() -> None:
    mine = regroup(0, ((0, 1, 2), (3, 4)))
    mine.lose(lost(3))
    for rank in (1, 2, 4):
        mine.hear(rank, lost(3))
    assert mine.outcome(9.0) is None
    assert mine.outcome(11.0) == Failure(3, "silent")
    mine.hear(1, lost(3, 4))
    mine.hear(2, lost(3, 4))
    assert mine.outcome(9.0) == Membership(1, frozenset({0, 1, 2}))


def test_words_that_overtake_each_other_say_the_same() -> None:
    """Over several connections an older word may come last; whom somebody lost stays lost."""
    mine = regroup(0, ((0, 1, 2), (3, 4)))
    mine.lose(lost(3, 4))
    for rank in (1, 2):
        mine.hear(rank, lost(3, 4))
        mine.hear(rank, lost(3))
    assert mine.outcome(0.0) == Membership(1, frozenset({0, 1, 2}))


def test_whom_the_others_have_lost_ends() -> None:
    mine = regroup(3, ((0, 1, 2), (3,)))
    mine.hear(1, lost(3))
    assert mine.outcome(0.0) == Failure(3, "silent")


@settings(max_examples=num_examples(300))
@given(st.lists(st.integers(1, 3), min_size=2, max_size=4), st.integers(0, 10_000))
def test_never_two_groups(counts: list[int], seed: int) -> None:
    """Any partition of the regions, any order of what is heard, any word lost on the way across the cut."""
    draw = random.Random(seed)
    first, regions = 0, []
    for count in counts:
        regions.append(tuple(range(first, first + count)))
        first += count
    side_of = {rank: draw.randrange(2) for region in regions for rank in region}
    if draw.random() < 0.7:  # mostly whole regions
        side_of = {rank: draw.randrange(2) if rank == region[0] else 0 for region in regions for rank in region}
        side_of = {rank: side_of[region[0]] for region in regions for rank in region}
    ranks = [regroup(rank, tuple(regions)) for rank in range(first)]
    words: list[tuple[int, int, list[Failure]]] = []
    for mine in ranks:
        away = [rank for rank in side_of if side_of[rank] != side_of[mine.rank]]
        for rank in draw.sample(away, len(away)):
            if mine.lose(lost(rank)):
                words += [(mine.rank, to, lost(*mine.lost)) for to in mine.left if to != mine.rank]
    decided = {}
    while words:
        source, target, losses = words.pop(draw.randrange(len(words)))
        mine = ranks[target]
        if side_of[source] != side_of[target] or target in decided or not mine.losses:
            continue
        if mine.hear(source, losses):
            words += [(target, to, lost(*mine.lost)) for to in mine.left if to != target]
        outcome = mine.outcome(0.0)
        if outcome is not None:
            decided[target] = outcome
    groups = {outcome.members for outcome in decided.values() if isinstance(outcome, Membership)}
    assert len(groups) <= 1
    for members in groups:
        assert len({side_of[rank] for rank in members}) == 1
        assert 2 * len(members) >= first


@given(st.binary(max_size=200))
def test_a_view_is_parsed_or_garbage(payload: bytes) -> None:
    try:
        found = parse(memoryview(payload))
    except GarbageError:
        return
    assert found


def test_a_view_travels() -> None:
    assert parse(memoryview(pack(lost(3, 70)))) == lost(3, 70)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9), st.data())
def test_the_batch_is_shared_out_whole(shares: list[int], data: st.DataObject) -> None:
    members = data.draw(st.lists(st.sampled_from(range(len(shares))), min_size=1, unique=True))
    total = sum(shares)
    found = shares_of(sorted(members), dict(enumerate(shares)), total)
    assert sum(found.values()) == total
    assert min(found.values()) >= 1


def test_the_others_go_on_without_a_region() -> None:
    """Rank 3 dies in the middle of a sum; the next sums are those of ranks 0 to 2, on the planned flows."""
    at = doors(4)
    joined = together([*(lambda rank=rank: connect(rank, at, PLAN, QUICK) for rank in range(3)), lambda: strangers(at)])
    ranks, sockets = joined[:3], joined[3]
    try:
        works = [rank.all_reduce(vector) for rank, vector in zip(ranks, vectors(3, 30_000), strict=True)]
        with within(BOUND_S):
            for connection in sockets:
                connection.close()
            for work in works:
                with pytest.raises(MembershipChangedError, match="3 ranks go on in epoch 1"):
                    work.wait(PATIENCE_S)
        with pytest.raises(MembershipChangedError):  # whoever has not heard of it yet
            ranks[0].all_reduce(torch.zeros(4)).wait(PATIENCE_S)
        assert [rank.adopt() for rank in ranks] == [Membership(1, frozenset({0, 1, 2}))] * 3
        for count in (5, 20_000):
            before = vectors(3, count, seed=count)
            after = [vector.clone() for vector in before]
            all_reduce(ranks, after)
            assert all(torch.equal(vector, after[0]) for vector in after)
            assert torch.allclose(after[0], sum(before), atol=1e-5)
    finally:
        together([rank.close for rank in ranks])
        at.listeners[3].close()


def test_what_was_ordered_as_an_epoch_ended_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was on its way to the engine, and is to follow a region's sum that never ends: that region is closed."""
    plan = replace(CollectivePlan.direct([[0], [1], [2]]), on_region_loss="continue")
    late = Work(lambda _: None, BOUND_S)
    order = Order(Values(torch.ones(10)), lambda: pytest.fail("it begins"), 0, [Work(lambda _: None, BOUND_S)])
    with group(plan, QUICK) as ranks:
        engine, operations = ranks[0].engine, ranks[0].engine._operations
        begin_epoch = operations.begin_epoch

        def begin_with_it_on_its_way(epoch: int) -> None:
            begin_epoch(epoch)
            engine.do(lambda: operations.enter(7, order, late))

        monkeypatch.setattr(operations, "begin_epoch", begin_with_it_on_its_way)
        works = [rank.all_reduce(torch.ones(10)) for rank in ranks[:2]]
        break_off(ranks[2])
        for work in [*works, late]:
            with pytest.raises(MembershipChangedError, match="2 ranks go on in epoch 1"):
                work.wait(PATIENCE_S)
        together([rank.adopt for rank in ranks[:2]])
        for work in [rank.all_reduce(torch.ones(10)) for rank in ranks[:2]]:
            work.wait(PATIENCE_S)


def test_without_leave_the_group_ends() -> None:
    """The same plan, but the job wants a restart."""
    plan = replace(PLAN, on_region_loss="restart")
    at = doors(4)
    ranks = together([lambda rank=rank: connect(rank, at, plan, QUICK) for rank in range(4)])
    try:
        ranks[3].close()
        with within(BOUND_S), pytest.raises(RankLostError, match="rank 3 was lost"):
            ranks[0].all_reduce(torch.zeros(4)).wait(PATIENCE_S)
    finally:
        together([rank.close for rank in ranks])


def test_regions_of_several_ranks_agree() -> None:
    """Every rank that is left hears every other, whoever it shares sums with; both ranks of a region break off."""
    plan = replace(CollectivePlan.direct([[0, 1], [2, 3], [4, 5]]), on_region_loss="continue")
    bound_s = 3 * BOUND_S
    with group(plan, Settings(bound_s=bound_s, connect_s=PATIENCE_S)) as ranks:
        works = [rank.all_reduce(torch.ones(100_000)) for rank in ranks[:4]]
        with within(bound_s):
            for rank in ranks[4:]:
                break_off(rank)
            for work in works:
                with pytest.raises(MembershipChangedError, match="4 ranks go on in epoch 1"):
                    work.wait(PATIENCE_S)


def test_a_part_of_a_region_that_breaks_off_ends_the_group_in_its_part_of_the_bound() -> None:
    """Nobody is found any more after the first loss, and all agree: the rest of the bound is not theirs."""
    plan = replace(CollectivePlan.direct([[0, 1], [2, 3], [4, 5]]), on_region_loss="continue")
    bound_s = 5 * BOUND_S
    with group(plan, Settings(bound_s=bound_s, connect_s=PATIENCE_S)) as ranks:
        works = [rank.all_reduce(torch.ones(100_000)) for rank in ranks[:5]]
        with within((REGROUP_SHARE + SETTLE_SHARE) * bound_s):
            break_off(ranks[5])
            for work in works:
                with pytest.raises(RankLostError, match="rank 5 was lost: "):
                    work.wait(PATIENCE_S)


def test_ranks_that_do_not_exist_are_garbage() -> None:
    at, plan = doors(4), replace(PLAN, encryption="none")
    ours = [lambda rank=rank: connect(rank, at, plan, QUICK) for rank in range(3)]  # type: ignore[misc]
    joined = together([*ours, lambda: strangers(at, plan)])
    ranks, sockets = joined[:3], joined[3]
    try:
        works = [rank.all_reduce(vector) for rank, vector in zip(ranks, vectors(3, 30_000), strict=True)]
        payload = pack(lost(77))
        with within(BOUND_S):
            sockets[0].sendall(Header(Kind.VIEW, len(payload)).pack() + payload)
            for work in works:
                with pytest.raises(RankLostError, match=r"rank 3 was lost: it sent garbage: a loss of ranks \[77\]"):
                    work.wait(PATIENCE_S)
    finally:
        together([rank.close for rank in ranks])
        for connection in (*sockets, at.listeners[3]):
            connection.close()


def strangers(at: Doors, plan: CollectivePlan = PLAN) -> list[socket.socket]:
    """Rank 3's sockets, played by a test."""
    who = Identity(SECRET, SCOPE, QUICK.digest(plan))
    found = []
    for target in range(3):
        connection = socket.create_connection((at.addresses[target].host, at.addresses[target].port))
        greet(connection, who, 0, 3, target)
        found.append(connection)
    return found


class Silent:
    """Connections on which nothing happens."""

    def __init__(self, num_ranks: int) -> None:
        self.peers = {rank: Peer(rank, is_far=True) for rank in range(1, num_ranks)}
        self.now_s = 0.0

    def push_first(self, peer: Peer, head: bytes, payload: memoryview | None = None) -> None:
        """To nobody."""

    def forget_chunks(self) -> None:
        """There are none."""


def test_a_word_of_the_next_epoch_is_heard_when_that_begins_here() -> None:
    """Rank 1 had everybody's word, is in epoch 1, and loses rank 3 at once; rank 2's word comes here after that."""
    lines = Silent(6)
    everybody = frozenset(range(6))
    group_state = GroupState(
        0, lines, LossTimeouts(10.0), Membership(0, everybody), [frozenset([rank]) for rank in everybody]
    )  # type: ignore[arg-type]

    def hear(rank: int, epoch: int, lost: int) -> None:
        group_state.hear(lines.peers[rank], epoch, memoryview(pack([Failure(lost, "gone")])))

    group_state.lose(Failure(5, "gone"))
    for rank in (1, 3, 4):
        hear(rank, 0, 5)
    hear(1, 1, 3)
    assert group_state.verdict is None
    assert group_state.agreed() is None
    hear(2, 0, 5)
    second = group_state.agreed()
    assert second == Membership(1, frozenset(range(5)))
    group_state.adopt(second)
    group_state.hear_early()
    assert group_state.agreed() is None
    for rank in (2, 4):
        hear(rank, 1, 3)
    assert group_state.agreed() == Membership(2, frozenset({0, 1, 2, 4}))


def test_a_rank_that_waits_at_the_end_hears_that_others_go_on() -> None:
    """Rank 2 is lost when rank 0 is done and rank 1 is not: what rank 1 lacks rank 0 still has."""
    plan = replace(CollectivePlan.direct([[0], [1], [2]]), on_region_loss="continue")
    with group(plan, QUICK) as ranks, ThreadPoolExecutor() as threads:
        left = [AllReduce(rank, torch.device("cpu"), PATIENCE_S) for rank in ranks[:2]]
        parting = threads.submit(left[0].part)
        break_off(ranks[2])
        with pytest.raises(MembershipChangedError):
            parting.result(PATIENCE_S)
        with pytest.raises(MembershipChangedError):
            left[1].all_reduce(torch.ones(10)).wait()
        assert {each.adopt() for each in left} == {Membership(1, frozenset({0, 1}))}
        together([each.part for each in left])
