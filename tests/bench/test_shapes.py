"""The bench of shapes runs every way on real ranks, refuses one that computes something else, and emulates."""

import time

import pytest
import torch
from hulk_placement.schedule import shapes
from torch import nn

from bench.shapes.accelerator import BACKWARD, Accelerator, Timed
from bench.shapes.costs import BLOCK, FRONT, HEAD
from bench.shapes.question import GPT, Size, costs_of, measure, verdicts
from bench.shapes.ranks import require_same
from bench.shapes.ways import CONTIGUOUS, M_1F1B, M_MORE, RIVALS, TENSOR, X_MORE, K, M, X, best_cut

KINDS = [FRONT, *[BLOCK] * GPT.layers, HEAD]


@pytest.mark.whole  # in short: results that differ are refused, and times are what they say
def test_every_way_is_run_and_none_is_quicker_than_its_accelerators():
    rows = measure(Size(num_samples=2, batches=(1,), num_rounds=1, search_s=0.3))
    by_case = {(row.what, row.way): row for row in rows}
    pipelines = (M, M_1F1B, CONTIGUOUS, TENSOR, X, M_MORE, X_MORE)
    assert list(by_case) == [
        *(("training, 2 samples", way) for way in pipelines),
        *(("inference, batch 1", way) for way in (K, CONTIGUOUS, TENSOR)),
    ]
    costs = costs_of(GPT, {})
    all_compute_s = 2 * (1 + BACKWARD) * sum(map(costs.flops, KINDS)) / costs.flops_per_s
    for way in pipelines:
        assert by_case["training, 2 samples", way].observed_s > all_compute_s / 4
    parameters = {way: by_case["training, 2 samples", way].num_parameters for way in pipelines}
    assert parameters[M] == parameters[M_1F1B] < parameters[CONTIGUOUS] < parameters[X]
    assert len(verdicts(rows)) == 2 + sum(map(len, RIVALS.values()))


def test_other_results_are_refused_with_how_far_they_are_off():
    wanted = torch.tensor([2.0, 4.0])
    require_same("X", wanted + 1e-5, wanted)
    with pytest.raises(RuntimeError, match=r"X: 0\.1 off what one process computes"):
        require_same("X", wanted + 0.4, wanted)


def test_a_contiguous_cut_leaves_the_head_alone():
    costs = costs_of(GPT, {1: 0.0})
    ranges = best_cut(shapes.v(4), costs, KINDS, 1, 16, "1f1b")
    assert ranges["3"] == range(9, 10)


def test_what_is_timed_takes_as_long_as_on_the_accelerator_both_ways():
    accelerator = Accelerator(flops_per_s=1000)
    module = Timed(nn.Linear(2, 2), 20, accelerator)
    x = torch.ones(2, 2, requires_grad=True)
    began_s = time.perf_counter()
    out = module(x)
    forward_s = time.perf_counter() - began_s
    out.sum().backward()
    assert forward_s >= 0.04
    assert time.perf_counter() - began_s >= (1 + BACKWARD) * 0.04
    torch.testing.assert_close(x.grad, module.inner.weight.sum(0).expand(2, 2))


def test_a_processor_that_is_slower_than_the_accelerator_is_noticed():
    accelerator = Accelerator(flops_per_s=float("inf"))
    Timed(nn.Linear(2, 2), 20, accelerator)(torch.ones(2, 2))
    assert accelerator.late_s > 0
