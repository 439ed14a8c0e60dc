"""Layers that are not as plain as others: of two types, one object twice, fixed ones; and calls of the other kind."""

from pathlib import Path

import pytest
import torch
from hulk_placement.schedule.shapes import SHAPES
from pipeline_cases import found_by_ranks
from pipeline_layers_ranks import batch, model_of
from pipeline_schedules import backward_first, written

SCRIPT = str(Path(__file__).with_name("pipeline_layers_ranks.py"))
NUM_RANKS = 4
V = SHAPES["v"](2, 1.0, 2.0)
CASES = {
    "types": {"kind": "types", "schedule": written(V, 2, backward_first)},
    "one object": {"kind": "one object", "schedule": written(SHAPES["wave"](2, 1.0, 2.0), 2, backward_first)},
    "twice in a stage of shards": {"kind": "twice", "schedule": written(V, 2, backward_first), "shards": 2},
    "fixed": {"kind": "fixed", "schedule": written(V, 2, backward_first)},
    "inference": {"kind": "fixed", "schedule": written(V.forward_only(), 2, backward_first)},
}
TOLERANCE = {"types": 1e-2, "one object": 1e-6, "twice in a stage of shards": 1e-6, "fixed": 1e-6}
"""Of bfloat16, which every micro-batch rounds, and of float32; gradients here are about 0.1."""


@pytest.fixture(scope="module")
def found(module_job, make_plan):
    return found_by_ranks(module_job, make_plan((1,) * NUM_RANKS), SCRIPT, CASES, NUM_RANKS)


@pytest.mark.parametrize("case", TOLERANCE)
def test_layers_train_as_in_one_process(found, case):
    """Replicas sum what is of several types in the widest; what is one object in two stages counts once."""
    of, made = batch(), model_of(CASES[case]["kind"])
    loss = of.mean_loss(torch.nn.Sequential(*made)(of.data), of.targets)
    loss.backward()
    expected = dict(torch.nn.ModuleList(made).named_parameters())
    seen = set()
    for own in (each[case] for each in found):
        assert own["loss"] == pytest.approx(loss.item(), abs=TOLERANCE[case])
        for name, gradient in own["gradients"].items():
            assert gradient.dtype == expected[name].dtype
            assert float((gradient - expected[name].grad).abs().max()) < TOLERANCE[case], name
            seen.add(name)
    assert seen == set(expected)


def test_timing_a_stage_alone_leaves_norms_as_they_were(found):
    before, after = found[0]["fixed"]["noted"]
    assert len(before) == 3
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_a_schedule_of_the_other_kind_is_refused(found):
    assert {each["fixed"]["refused"] for each in found} == {
        "the schedule has backward blocks: `step` runs it, `infer` those without"
    }
    assert {each["inference"]["refused"] for each in found} == {
        "the schedule has forward blocks only: `infer` runs it, there is nothing to train"
    }
