"""Where torch.distributed.pipelining has the same schedule, its losses and gradients are Hulk's."""

from pathlib import Path

import pytest
from hulk_placement.schedule.shapes import SHAPES
from pipeline_cases import found_by_ranks
from pipeline_schedules import all_forward, backward_first, written

pytestmark = pytest.mark.whole  # in short: test_pipeline_gpt equals one process

SCRIPT = str(Path(__file__).with_name("pipeline_torch_ranks.py"))
NUM_RANKS = 4
TOLERANCE = 1e-13
CASES = {
    "GPipe": {"schedule": written(SHAPES["v"](NUM_RANKS, 1.0, 2.0), 4, all_forward), "kind": "gpipe"},
    "1F1B": {"schedule": written(SHAPES["v"](NUM_RANKS, 1.0, 2.0), 4, backward_first), "kind": "1f1b"},
    "interleaved": {
        "schedule": written(SHAPES["interleaved"](NUM_RANKS, 1.0, 2.0), 4, backward_first),
        "kind": "interleaved",
    },
}


@pytest.fixture(scope="module")
def found(module_job, make_plan):
    return found_by_ranks(module_job, make_plan((1,) * NUM_RANKS), SCRIPT, CASES, NUM_RANKS)


@pytest.mark.parametrize("case", CASES)
def test_losses_and_gradients_are_those_of_torch(found, case):
    for own in (each[case] for each in found):
        hulk, by_torch = own["hulk"], own["torch"]
        assert hulk["losses"] == pytest.approx(found[-1][case]["torch"]["losses"], rel=1e-13)
        assert hulk["gradients"].keys() == by_torch["gradients"].keys()
        for name, values in hulk["gradients"].items():
            assert float((values - by_torch["gradients"][name]).abs().max()) < TOLERANCE, name
