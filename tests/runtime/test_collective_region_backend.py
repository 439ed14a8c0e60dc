"""Torch sums inside regions, the engine between them: the same bits on every rank, the sum, run after run."""

import gc
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from collective_ranks import PATIENCE_S, SCOPE, SECRET, break_off, doors, plans, together, vectors, within
from hulk_runtime.collective.group import Collective, Settings
from hulk_runtime.collective.loss_timeouts import LossTimeouts
from hulk_runtime.collective.planned.roles import pieces, roles
from hulk_runtime.collective.reduction import region_reduction
from hulk_runtime.collective.reduction.region_backend import Groups, Inside
from hulk_runtime.collective.staging import Stage
from hulk_runtime.collective.wire.membership import Membership
from hulk_runtime.errors import MembershipChangedError, RankLostError
from hulk_runtime.plan.flows import CollectivePlan, Flow, SizeClass
from hypothesis import given, settings
from hypothesis import strategies as st
from test_collective_reduction import DTYPES, require_sum
from torch.distributed.distributed_c10d import ProcessGroupGloo

UNEVEN = CollectivePlan(
    ((0,), (1, 2), (3, 4, 5)),
    {},
    (SizeClass(1 << 40, 1 << 12, (Flow(0.6, (0, 1), ((2, 0),), ((2, 1),)), Flow(0.4, (0, 1, 2)))),),
)
QUICK = Settings(bound_s=4.0, connect_s=PATIENCE_S)
PATIENT = Settings(bound_s=PATIENCE_S, connect_s=PATIENCE_S)
"""Where nobody is lost: many ranks share this process, and one that waits for its turn must not seem so."""


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_reduction, "MIN_BYTES", 0)


@contextmanager
def split_group(plan: CollectivePlan, chosen: Settings = QUICK) -> Iterator[list[Collective]]:
    """All ranks of a plan as threads; those of each region have gloo between them."""
    at, store = doors(plan.num_ranks), dist.HashStore()

    def start(rank: int) -> Collective:
        ranks = plan.regions[plan.region_of(rank)]
        found = None
        if len(ranks) > 1:
            epochs = [Groups(*(gloo(store, f"{e}{way}", rank, ranks) for way in "sr")) for e in range(3)]
            found = Inside(ranks.index(rank), len(ranks), epochs, torch.device("cpu"))
        return Collective.connect(rank, at.addresses, plan, SECRET, SCOPE, chosen, at.listeners[rank], inside=found)

    ranks = together([lambda rank=rank: start(rank) for rank in range(plan.num_ranks)])  # type: ignore[misc]
    try:
        yield ranks
    finally:
        together([rank.close for rank in ranks])
        ranks.clear()
        gc.collect()  # gloo polls 100 times a second for each group that exists


def gloo(store: dist.Store, name: str, rank: int, ranks: Sequence[int]) -> ProcessGroupGloo:
    scoped = dist.PrefixStore(f"{name}{ranks}", store)
    return ProcessGroupGloo(scoped, ranks.index(rank), len(ranks), timedelta(seconds=PATIENCE_S))


def sum_all(ranks: Sequence[Collective], sizes: Sequence[tuple[int, torch.dtype]], seed: int = 0) -> list[torch.Tensor]:
    """All at once; checked; rank 0's."""
    before = [vectors(len(ranks), count, dtype, seed + at) for at, (count, dtype) in enumerate(sizes)]
    after = [[vector.clone() for vector in each] for each in before]
    works = [[rank.all_reduce(each[at]) for each in after] for at, rank in enumerate(ranks)]
    for work in (work for mine in works for work in mine):
        work.wait(PATIENCE_S)
    for was, is_now in zip(before, after, strict=True):
        require_sum(was, is_now)
    return [each[0] for each in after]


@settings(max_examples=12)
@given(plans(), st.lists(st.tuples(st.integers(1, 20_000), DTYPES), min_size=1, max_size=4))
def test_any_plan(plan: CollectivePlan, sizes: list[tuple[int, torch.dtype]]) -> None:
    with split_group(plan, PATIENT) as ranks:
        sum_all(ranks, sizes)


def test_the_same_bits_run_after_run() -> None:
    results = []
    for _ in range(2):
        with split_group(UNEVEN) as ranks:
            results.append(sum_all(ranks, [(50_000, torch.float32), (7_000, torch.bfloat16)]))
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


def test_16_bit_sums_are_made_in_float32() -> None:
    """One at a time, 256 + 1 would stay 256 in bfloat16; rounded in the region, 1 + 1/512 would be 1."""
    plan = CollectivePlan(((0, 1), (2, 3)), {}, (SizeClass(1, 64, (Flow(1.0, (0,), ((1, 0),), ((1, 0),)),)),))
    with split_group(plan) as ranks:
        mine = [torch.full((64,), value, dtype=torch.bfloat16) for value in (256.0, 1.0, 0.5, 0.5)]
        for work in [rank.all_reduce(own) for rank, own in zip(ranks, mine, strict=True)]:
            work.wait(PATIENCE_S)
    assert all(torch.equal(own, torch.full((64,), 258.0, dtype=torch.bfloat16)) for own in mine)


@pytest.mark.parametrize("compression", ["bf16", "int8"])
def test_compression_between_regions_goes_on(compression: str) -> None:
    with split_group(replace(UNEVEN, compression=compression)) as ranks:
        before = vectors(6, 30_000)
        after = [vector.clone() for vector in before]
        for work in [rank.all_reduce(own, num_exact=1000) for rank, own in zip(ranks, after, strict=True)]:
            work.wait(PATIENCE_S)
    wanted = sum(vector.double() for vector in before)
    assert all(torch.equal(own, after[0]) for own in after)
    assert (after[0].double() - wanted)[-1000:].abs().max() < 1e-4
    assert 1e-4 < (after[0].double() - wanted).abs().max() < 1


def test_ranks_that_order_late_hold_up_nobody_for_ever() -> None:
    """One rank waits for each sum before it orders the next, the others order all at once."""
    with split_group(UNEVEN) as ranks:
        before = [vectors(6, 9_000, seed=seed) for seed in range(4)]
        after = [[vector.clone() for vector in each] for each in before]

        def one_by_one(rank: int) -> None:
            for each in after:
                ranks[rank].all_reduce(each[rank]).wait(PATIENCE_S)

        def at_once(rank: int) -> None:
            for work in [ranks[rank].all_reduce(each[rank]) for each in after]:
                work.wait(PATIENCE_S)

        together([lambda rank=rank: (one_by_one if rank == 4 else at_once)(rank) for rank in range(6)])
        for was, is_now in zip(before, after, strict=True):
            require_sum(was, is_now)


def test_values_of_a_device_are_taken_from_there() -> None:
    """The host's vector never has this rank's own values; a rank that is alone in its region copies them."""
    with split_group(UNEVEN) as ranks:
        stages = [Stage(rank, torch.device("cpu")) for rank in ranks]
        before = vectors(6, 30_000)
        for _ in range(2):  # the second time in used memory
            after = [vector.clone() for vector in before]
            for work in [stage.all_reduce(own, 0) for stage, own in zip(stages, after, strict=True)]:
                work.wait(PATIENCE_S)
            require_sum(before, after)


def test_a_torch_that_breaks_is_told_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody was lost, yet nothing can go on: the rank on which it broke is named."""
    to_all = region_reduction.to_all

    def break_on_rank_4(group: ProcessGroupGloo, *arguments: object) -> None:
        if threading.current_thread().name == "hulk-reduce" and group is broken:
            raise RuntimeError("no memory\nand a long story")
        to_all(group, *arguments)

    with split_group(UNEVEN, replace(QUICK, bound_s=8.0)) as ranks:
        broken = ranks[4]._inside.groups[0].sums
        monkeypatch.setattr(region_reduction, "to_all", break_on_rank_4)
        with within(LossTimeouts(8.0).decided_s):
            for work in [rank.all_reduce(torch.ones(20_000)) for rank in ranks]:
                with pytest.raises(RankLostError, match=r"rank 4 was lost: torch broke inside its region: no memory$"):
                    work.wait(PATIENCE_S)


def test_a_rank_lost_in_the_region_is_named_by_all() -> None:
    """Rank 4 never takes part: its region waits in torch, the others between regions."""
    with split_group(UNEVEN) as ranks:
        works = [rank.all_reduce(torch.ones(20_000)) for number, rank in enumerate(ranks) if number != 4]
        break_off(ranks[4])
        said = set()
        for work in works:
            with pytest.raises(RankLostError, match="rank 4 was lost") as lost:
                work.wait(PATIENCE_S)
            said.add(str(lost.value))
        assert len(said) == 1


def test_a_rank_that_takes_no_part_is_named() -> None:
    with split_group(UNEVEN) as ranks:
        sum_all(ranks, [(20_000, torch.float32)])
        works = [rank.all_reduce(torch.ones(20_000)) for number, rank in enumerate(ranks) if number != 4]
        threading.Event().wait(QUICK.bound_s / 4)  # beats tell how far ranks are
        for work in works:
            with pytest.raises(RankLostError, match=r"rank 4 was lost: it did not begin all-reduce 1 within"):
                work.wait(1.0)


def test_the_others_go_on_without_a_region() -> None:
    """Operations under way are lost, also those that only some ranks of a region have begun; then all is well again."""
    plan = replace(UNEVEN, regions=((0, 1), (2,), (3, 4, 5)), on_region_loss="continue")
    with split_group(plan) as ranks:
        sum_all(ranks, [(20_000, torch.float32)])
        left = [rank for rank in ranks if rank.rank != 2]
        works = [rank.all_reduce(torch.ones(20_000)) for rank in left if rank.rank not in (1, 4)]
        break_off(ranks[2])
        for work in works:
            with pytest.raises(MembershipChangedError, match="5 ranks go on in epoch 1"):
                work.wait(PATIENCE_S)
        for rank in (ranks[1], ranks[4]):  # who had begun nothing hears of it now
            with pytest.raises(MembershipChangedError, match="5 ranks go on in epoch 1"):
                rank.all_reduce(torch.ones(20_000)).wait(PATIENCE_S)
        assert [rank.adopt() for rank in left] == [Membership(1, frozenset({0, 1, 3, 4, 5}))] * 5
        sum_all(left, [(30_000, torch.float32), (500, torch.float16)], seed=9)


@given(plans(), st.integers(1, 3000))
def test_what_a_rank_owns_is_one_piece(plan: CollectivePlan, num_values: int) -> None:
    for rank in range(plan.num_ranks):
        ranks = plan.regions[plan.region_of(rank)]
        start, stop = pieces(len(ranks), num_values)[ranks.index(rank)]
        mine = roles(plan, plan.classes[0], rank, num_values, 4, for_region=True)
        held = [(role.start, role.stop) for role in mine if role.num_chunks]
        assert sum(b - a for a, b in held) == stop - start
        assert all(start <= a and b <= stop for a, b in held)
        assert not any({*role.children, *role.targets} & set(ranks) for role in mine)
