"""Every rank gets the same bits, they are the sum, and they do not depend on what arrives when."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from collective_ranks import all_reduce, group, plans, vectors
from depth import num_examples
from hulk_runtime.collective.planned.roles import lanes, pace_shares, partners, roles
from hulk_runtime.collective.reduction.hop_encoding import Hops, Residuals, codec
from hulk_runtime.collective.reduction.operation import Operation, Outgoing
from hulk_runtime.collective.reduction.vector import Values
from hulk_runtime.collective.wire.frames import HEADER_BYTES, parse
from hulk_runtime.plan.flows import CollectivePlan, Flow, SizeClass
from hypothesis import given, settings
from hypothesis import strategies as st

DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])
ROUNDING = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-9, torch.float16: 2.0**-11}
TREE = CollectivePlan(
    ((0, 1), (2,), (3, 4, 5)),
    {},
    (
        SizeClass(
            1 << 40,
            1 << 12,
            (
                Flow(0.5, (0, 1), ((2, 0),), ((2, 1),)),
                Flow(0.3, (2,), ((0, 1), (1, 2)), ((0, 2), (1, 0))),
                Flow(0.2, (0, 1, 2)),
            ),
        ),
    ),
)


def deliver_in_any_order(
    plan: CollectivePlan, parts: Sequence[torch.Tensor], seed: int, residuals: Sequence[Residuals] | None = None
) -> None:
    """An all-reduce of all ranks without sockets: chunks arrive in a random order."""
    draw = random.Random(seed)
    sent: list[tuple[int, Outgoing]] = []
    operations = []
    for rank, vector in enumerate(parts):
        values = Values(vector)
        size = plan.size_class(len(values) * values.bytes_per_value)
        mine = roles(plan, size, rank, len(values), values.bytes_per_value)

        def send(chunk: Outgoing, rank: int = rank) -> None:
            sent.append((rank, chunk))

        far = frozenset(range(plan.num_ranks)) - set(plan.regions[plan.region_of(rank)])
        hops = Hops(values, far, codec(plan.compression), residuals[rank] if residuals else {})
        operations.append(Operation(0, 0, rank, values, mine, hops, send))
    for operation in operations:
        list(operation.begin())
    while sent:
        source, chunk = sent.pop(draw.randrange(len(sent)))
        header = parse(chunk.header)
        payload = memoryview(bytearray(chunk.payload))
        place = operations[chunk.target].place(source, header)
        if place is not None:
            place[:] = payload
        operations[chunk.target].arrived(source, header, payload)
    assert [operation.num_pending for operation in operations] == [0] * len(operations)
    for rank, operation in enumerate(operations):
        assert not any(operation.awaits(other) for other in range(plan.num_ranks) if other != rank)


def require_sum(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> None:
    """All ranks the same bits; within what rounding each contribution and hop may cost."""
    assert all(torch.equal(vector.view(torch.uint8), after[0].view(torch.uint8)) for vector in after)
    wanted = sum(vector.double() for vector in before)
    size = sum(vector.double().abs() for vector in before)
    assert ((after[0].double() - wanted).abs() <= 2 * len(before) * ROUNDING[before[0].dtype] * size + 1e-9).all()


@settings(max_examples=num_examples(200))
@given(plans(), st.integers(1, 3000), DTYPES, st.integers(0, 99))
def test_any_plan_sums_the_same_whatever_arrives_first(
    plan: CollectivePlan, num_values: int, dtype: torch.dtype, seed: int
) -> None:
    before = vectors(plan.num_ranks, num_values, dtype, seed)
    once, again = [v.clone() for v in before], [v.clone() for v in before]
    deliver_in_any_order(plan, once, seed)
    deliver_in_any_order(plan, again, seed + 1)
    require_sum(before, once)
    assert torch.equal(once[0].view(torch.uint8), again[0].view(torch.uint8))


@settings(max_examples=12)
@given(plans(max_ranks=2), st.lists(st.tuples(st.integers(1, 20_000), DTYPES), min_size=1, max_size=4))
def test_any_plan_over_sockets(plan: CollectivePlan, sizes: list[tuple[int, torch.dtype]]) -> None:
    with group(plan) as ranks:
        before = [vectors(plan.num_ranks, count, dtype, seed) for seed, (count, dtype) in enumerate(sizes)]
        after = [[vector.clone() for vector in each] for each in before]
        works = [
            [rank.all_reduce(own) for own in mine] for rank, mine in zip(ranks, zip(*after, strict=True), strict=True)
        ]
        for work in (work for mine in works for work in mine):
            work.wait(60)
        for was, is_now in zip(before, after, strict=True):
            require_sum(was, is_now)


@settings(max_examples=num_examples(60))
@given(plans(), st.integers(1, 3000), st.sampled_from(["bf16", "int8", "int4"]), DTYPES, st.integers(0, 99))
def test_compressed_sums_are_the_same_on_all_ranks_and_near(
    plan: CollectivePlan, num_values: int, compression: str, dtype: torch.dtype, seed: int
) -> None:
    before = vectors(plan.num_ranks, num_values, dtype, seed)
    after = [vector.clone() for vector in before]
    deliver_in_any_order(replace(plan, compression=compression), after, seed)
    assert all(torch.equal(vector.view(torch.uint8), after[0].view(torch.uint8)) for vector in after)
    wanted = torch.stack([vector.double() for vector in before])
    per_hop = {"bf16": 2.0**-8, "int8": 1 / 100, "int4": 1 / 7}[compression]  # of the largest value
    assert (after[0].double() - wanted.sum(0)).abs().max() <= 2 * plan.num_ranks * per_hop * wanted.abs().sum(0).max()


def test_what_compression_takes_is_given_back_later() -> None:
    """The mean of many sums of the same vectors is nearer than one sum: nothing is lost but time."""
    plan = replace(TREE, compression="int8")
    before = vectors(6, 2000)
    wanted = sum(vector.double() for vector in before)
    residuals: list[Residuals] = [{} for _ in before]
    sums = []
    for seed in range(16):
        after = [vector.clone() for vector in before]
        deliver_in_any_order(plan, after, seed, residuals)
        sums.append(after[0].double())
    of_one = (sums[0] - wanted).abs().mean()
    of_all = (torch.stack(sums).mean(0) - wanted).abs().mean()
    assert of_all < of_one / 2


def test_only_what_may_be_is_compressed() -> None:
    with group(replace(TREE, compression="int8")) as ranks:
        before = vectors(6, 1000)
        after = [vector.clone() for vector in before]
        for work in [rank.all_reduce(vector, num_exact=100) for rank, vector in zip(ranks, after, strict=True)]:
            work.wait(60)
    wanted = sum(vector.double() for vector in before)
    error = (after[0].double() - wanted).abs()
    assert error[-100:].max() < 1e-5
    assert error[:-100].max() > 1e-4
    assert all(torch.equal(vector, after[0]) for vector in after)


def test_the_same_bits_run_after_run() -> None:
    results = []
    for _ in range(2):
        with group(TREE) as ranks:
            mine = vectors(6, 50_000)
            all_reduce(ranks, mine)
            results.append(mine[0])
    assert torch.equal(*results)


def test_16_bit_sums_are_made_in_float32() -> None:
    """One at a time, 256 + 1 would stay 256 in bfloat16. Between regions each hop rounds (`require_sum`)."""
    plan = CollectivePlan(((0, 1, 2, 3),), {}, (SizeClass(1, 64, (Flow(1.0, (0,)),)),))
    with group(plan) as ranks:
        mine = [torch.tensor([value], dtype=torch.bfloat16) for value in (256.0, 1.0, 1.0, 2.0)]
        all_reduce(ranks, mine)
    assert [vector.item() for vector in mine] == [260.0] * 4


@pytest.mark.parametrize(
    ("vector", "says"),
    [
        (torch.zeros(4, dtype=torch.float64), "float64"),
        (torch.zeros(4, 2), r"shape \(4, 2\)"),
        (torch.zeros(8)[::2], r"strides \(2,\)"),
    ],
)
def test_what_is_no_vector_is_refused(vector: torch.Tensor, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Values(vector)


@pytest.mark.parametrize("num_exact", [-1, 5])
def test_more_exact_values_than_there_are_are_refused(num_exact: int) -> None:
    with (
        group(CollectivePlan.direct([[0], [1]])) as ranks,
        pytest.raises(ValueError, match=f"{num_exact} exact values of 4"),
    ):
        ranks[0].all_reduce(torch.zeros(4), num_exact=num_exact)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_lanes_give_every_rank_its_equal_share(counts: list[int]) -> None:
    regions, first = {}, 0
    for number, count in enumerate(counts):
        regions[number] = range(first, first + count)
        first += count
    found = lanes(regions)
    assert found[0].start == 0
    assert found[-1].stop == 1
    assert all(before.stop == after.start for before, after in pairwise(found))
    for region, ranks in regions.items():
        for rank in ranks:
            assert sum(lane.stop - lane.start for lane in found if lane.owners[region] == rank) * len(ranks) == 1


@given(plans())
def test_parts_cover_the_vector_and_partners_agree(plan: CollectivePlan) -> None:
    everyone = [roles(plan, plan.classes[0], rank, 1000, 4) for rank in range(plan.num_ranks)]
    edges = [[(role.start, role.stop) for role in mine] for mine in everyone]
    assert edges == [edges[0]] * len(edges)
    assert edges[0][0][0] == 0
    assert edges[0][-1][1] == 1000
    assert all(before[1] == after[0] for before, after in pairwise(edges[0]))
    for rank, mine in enumerate(everyone):
        for role in mine:
            talked = {*role.children, *role.exchange, *role.targets, role.parent, role.source} - {None, rank}
            assert talked <= set(partners(plan, rank))
    for rank in range(plan.num_ranks):
        shares = pace_shares(plan, rank)
        by_region: dict[int, float] = {}
        for other, share in shares.items():
            region = plan.region_of(other)
            by_region[region] = by_region.get(region, 0.0) + share
        assert all(share == pytest.approx(1 / len(plan.regions[plan.region_of(rank)])) for share in by_region.values())


def test_a_header_is_as_long_as_documented() -> None:
    assert HEADER_BYTES == 24
