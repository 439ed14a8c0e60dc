"""The bundled GPT as stages equals the GPT of one process: a list of layers, a function, parts of its matrices."""

from pathlib import Path

import pytest
from hulk_placement.schedule.shapes import SHAPES, split_weights
from hulk_runtime.errors import PlanError
from hulk_runtime.examples.gpt_model import initialized
from hulk_runtime.examples.gpt_stages import gpt_stages
from hulk_runtime.pipeline.executor import Pipeline
from hulk_runtime.pipeline.grid import Grid
from hulk_runtime.plan import pipeline_schedule
from pipeline_cases import found_by_ranks
from pipeline_gpt_ranks import MODEL, NUM_STEPS, batch
from pipeline_model import Momentum
from pipeline_schedules import backward_first, written

SCRIPT = str(Path(__file__).with_name("pipeline_gpt_ranks.py"))
NUM_RANKS = 4
TOLERANCE = 1e-13


def schedule(shape, num_devices, split=False):
    one = SHAPES[shape](num_devices, 1.0, 2.0)
    return written(split_weights(one) if split else one, 3, backward_first)


CASES = {
    "list": {"schedule": schedule("v", 4), "kind": "list"},
    "function": {"schedule": schedule("interleaved", 4), "kind": "function"},
    "both ends on one device": {"schedule": schedule("wave", 2), "kind": "function", "replicas": 2},
    "both directions": {"schedule": schedule("x", 4), "kind": "function"},
    "tensor": {"schedule": schedule("v", 2), "kind": "function", "tensor": 2},
    "tensor, split": {"schedule": schedule("v", 2, split=True), "kind": "function", "tensor": 2},
    "tensor alone": {"schedule": schedule("v", 1), "kind": "function", "tensor": 2, "replicas": 2},
}


def one_process():
    """Losses, the last gradients and the parameters after it."""
    gpt = initialized(MODEL).double()
    optimizer = Momentum(gpt.parameters())
    losses = []
    for step in range(NUM_STEPS):
        gpt.zero_grad()
        of = batch(step)
        loss = of.mean_loss(gpt(of.data), of.targets)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    gradients = {name: parameter.grad for name, parameter in gpt.named_parameters()}
    return losses, gradients, dict(gpt.named_parameters())


@pytest.fixture(scope="module")
def found(module_job, make_plan):
    return found_by_ranks(module_job, make_plan((1,) * NUM_RANKS), SCRIPT, CASES, NUM_RANKS)


@pytest.mark.parametrize("case", CASES)
def test_stages_equal_one_process(found, case):
    losses, gradients, parameters = one_process()
    seen = set()
    for own in (each[case] for each in found):
        assert list(own["losses"].values()) == pytest.approx(losses, rel=1e-13)
        for kind, whole in (("gradients", gradients), ("parameters", parameters)):
            for name, values in own[kind].items():
                expected = in_one(whole, name).detach()
                assert values.shape == expected.shape
                assert float((values - expected).abs().max()) < TOLERANCE, (kind, name)
                seen.add(name)
    assert sum(in_one(parameters, name).numel() for name in seen) == (
        sum(values.numel() for values in parameters.values()) + MODEL.vocabulary * MODEL.hidden
    )


def test_shards_of_stages_whose_backward_passes_are_in_halves_are_refused():
    halves = pipeline_schedule.read(schedule("v", 2, split=True))
    with pytest.raises(PlanError, match="two halves, and 4 shards"):
        Pipeline(halves, Grid(1, 2, num_shards=4), gpt_stages(MODEL, {}))


def in_one(whole, name):
    """What a stage's parameter is in the GPT of one process."""
    number, _, rest = name.partition(".")
    if number == "0":
        return whole[rest]
    if number == str(MODEL.layers + 1):
        return whole[{"weight": "token.weight"}.get(rest, rest)]
    layer, _, kind = rest.partition(".")
    within = f"blocks.{int(number) - 1}."
    if layer in ("q", "k", "v"):
        return whole[f"{within}qkv.{kind}"].chunk(3)["qkv".index(layer)]
    return whole[within + rest]
