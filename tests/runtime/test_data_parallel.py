"""Flat gradients, equal buckets and the tail, alone and between real ranks."""

from itertools import pairwise

import pytest
import torch
from hulk_runtime.collective.process_group import all_reduce
from hulk_runtime.collective.tcp_info import LinkSample
from hulk_runtime.training.data_parallel import FlatModel, RankReport, SumSample, Tail, bucket_edges

# Three ranks of unlike shares: summed weighted gradients and the tail, against one process with the whole batch.
PROGRAM = """
import copy, torch, torch.distributed as dist
from hulk_runtime.training.data_parallel import FlatModel, RankReport, Tail
from hulk_runtime.collective.process_group import all_reduce
from hulk_runtime.collective.tcp_info import LinkSample
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3))
x, y = torch.randn(6, 5), torch.randn(6, 3)
expected = torch.cat([
    g.reshape(-1)
    for g in torch.autograd.grad(torch.nn.functional.mse_loss(module(x), y), list(module.parameters())[::-1])
])
tail = Tail(rank, world)
mine = [slice(0, 1), slice(1, 3), slice(3, 6)][rank]
weight = (mine.stop - mine.start) / 6
for num_buckets, step in ((1, 1), (1, 2), (2, 1), (2, 2), (5, 1), (5, 2)):
    if step == 1:
        flat = FlatModel(copy.deepcopy(module), all_reduce, num_buckets, tail.length)
    flat.start()
    flat.overlap()
    loss = torch.nn.functional.mse_loss(flat.module(x[mine]), y[mine]) * weight
    loss.backward()
    mine_report = RankReport(step, 0.5 + rank, LinkSample(0.25 * rank, 1e6))
    flat.finish(tail.pack(float(loss), step == 2 and rank == 1, mine_report))
    torch.testing.assert_close(flat.gradients_N, expected)
    report = tail.unpack(flat.tail)
    assert report.stop == (step == 2), report
    assert flat.num_buckets == num_buckets
    assert [r.step for r in report.ranks] == [step] * 3
    assert [r.compute_s for r in report.ranks] == [0.5, 1.5, 2.5]
    assert [r.link.rtt_s for r in report.ranks] == [0.0, 0.25, 0.5]
print("agreed")
dist.destroy_process_group()
"""


def test_the_sum_over_ranks_is_the_gradient_of_the_whole_batch(job, make_plan):
    """With 1, 2 and 5 buckets, two steps each."""
    for rank in job.run_ranks(make_plan((1, 1, 1)), "-c", PROGRAM):
        assert "agreed\n" in rank.output


def test_of_an_all_reduce_the_rank_that_began_last_tells():
    told = [SumSample(0, 0.0), SumSample(16_000_004, 0.75), SumSample(16_000_004, 0.5)]
    reports = [RankReport(9, 0.1, LinkSample(0.0, 0.0), sample) for sample in told]
    summed = sum(Tail(rank, 3).pack(0.5, False, report) for rank, report in enumerate(reports))
    unpacked = Tail(0, 3).unpack(summed)
    assert [own.sum for own in unpacked.ranks] == told
    assert unpacked.sum == SumSample(16_000_004, 0.5)
    assert Tail(0, 1).unpack(Tail(0, 1).pack(0.5, False, reports[0])).sum == SumSample()


def test_a_tail_survives_a_sum():
    reports = [RankReport(9, 0.1 * rank, LinkSample(0.01 * rank, 1e8 * rank)) for rank in range(3)]
    summed = sum(Tail(rank, 3).pack(0.5, rank == 2, report) for rank, report in enumerate(reports))
    unpacked = Tail(0, 3).unpack(summed)
    assert unpacked.loss == pytest.approx(1.5)
    assert unpacked.stop
    for got, sent in zip(unpacked.ranks, reports, strict=True):
        assert got.step == sent.step
        assert got.compute_s == pytest.approx(sent.compute_s)
        assert got.link.rtt_s == pytest.approx(sent.link.rtt_s)
        assert got.link.bandwidth_bytes_per_s == pytest.approx(sent.link.bandwidth_bytes_per_s)


@pytest.mark.parametrize("step", [1, 2**24 - 1, 2**24 + 1, 2**24 + 3, 1_000_000_000])
def test_a_tail_carries_every_step_exactly(step):
    """fp32 has no 2**24 + 1; a job may ask for a thousand million steps."""
    report = RankReport(step, 0.1, LinkSample(0.01, 1e8))
    summed = sum(Tail(rank, 3).pack(0.5, False, report) for rank in range(3))
    assert [got.step for got in Tail(0, 3).unpack(summed).ranks] == [step] * 3


def test_parameters_and_gradients_are_views_in_the_order_backward_finishes_them():
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    before = [parameter.detach().clone() for parameter in module.parameters()]
    flat = FlatModel(module, all_reduce, num_buckets=2, tail_length=4)
    assert flat.parameters_N.tolist() == torch.cat([p.reshape(-1) for p in before[::-1]]).tolist()
    flat.parameters_N.zero_()
    assert all(not parameter.any() for parameter in module.parameters())
    module(torch.ones(1, 2)).sum().backward()
    assert flat.gradients_N[0] == 1  # the last layer's bias comes first


@pytest.mark.parametrize(("num_values", "num_buckets"), [(10, 1), (10, 3), (1001, 4)])
def test_buckets_are_equal_to_one_value(num_values, num_buckets):
    edges = bucket_edges(num_values, num_buckets)
    sizes = [end - start for start, end in pairwise(edges)]
    assert sum(sizes) == num_values
    assert max(sizes) - min(sizes) <= 1


def test_there_are_never_more_buckets_than_parameters():
    assert FlatModel(torch.nn.Linear(1, 1), all_reduce, num_buckets=9, tail_length=1).num_buckets == 2
