"""What is made of the times that torch's DistributedDataParallel tells of its first iterations."""

import os
from typing import Any

import pytest
import torch
from hulk_runtime.job.compute_time import NUM_STEPS, ComputeTime, _Iterations
from hulk_runtime.job.step_record import NUM_BYTES, StepRecord

STEP_S = 1.0


class Model:
    """Tells of one more iteration (or of `each` more) whenever it is asked, as a model that takes part in each step."""

    def __init__(self, each: int = 1, **figures: Any) -> None:
        self._each, self._figures, self._iteration = each, figures, -each

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        self._iteration += self._each
        return {"iteration": self._iteration, **self._figures}


TIMED = {"backward_comm_time": 300_000_000, "backward_compute_comm_overlap_time": 100_000_000}


@pytest.fixture
def record() -> StepRecord:
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, NUM_BYTES)
    ticks = iter(range(10**12, 10**15, int(STEP_S * 1e9)))
    return StepRecord(descriptor, lambda: next(ticks))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        pytest.param(Model(**TIMED), 0.2, id="what nothing hides"),
        pytest.param(Model(each=3, **TIMED), 0.6, id="three all-reduces a step"),
        pytest.param(Model(**TIMED | {"backward_compute_comm_overlap_time": 400_000_000}), 0.0, id="all is hidden"),
        pytest.param(Model(backward_comm_time=0), None, id="not measured"),
        pytest.param(Model(), None, id="not said"),
        pytest.param(Model(each=0, **TIMED), None, id="it took no part"),
        pytest.param(Model(each=10, **TIMED), None, id="torch times only some"),
    ],
)
def test_a_step_waits_for_what_torch_could_not_hide(model: Model, expected: float | None) -> None:
    assert _Iterations(model).wait_s() == (expected if expected is None else pytest.approx(expected))


def test_a_model_that_is_gone_tells_nothing() -> None:
    model = Model(**TIMED)
    iterations = _Iterations(model)
    del model
    assert iterations.wait_s() is None


@pytest.mark.parametrize(("is_alone", "expected"), [(True, STEP_S), (False, None)])
def test_a_rank_alone_waits_for_nobody(record: StepRecord, is_alone: bool, expected: float | None) -> None:
    compute_time = ComputeTime(record, is_alone)
    for _ in range(NUM_STEPS):
        assert record.read().compute_s is None
        record.optimizer_stepped(1)
        compute_time.stepped()
    assert record.read().compute_s == expected


@pytest.mark.parametrize(("wait_s", "expected"), [(0.25, 0.75), (0.0, 1.0), (1.0, None), (2.0, None)])
def test_compute_is_above_0_and_at_most_the_step(record: StepRecord, wait_s: float, expected: float | None) -> None:
    for _ in range(3):
        record.optimizer_stepped(1)
    record.waits(wait_s)
    assert record.read().compute_s == expected


def test_a_class_that_tells_nothing_of_its_times_ends_the_measure(record: StepRecord) -> None:
    changed = type("Changed", (torch.nn.parallel.DistributedDataParallel,), {"__init__": lambda _: None})
    keep = changed()
    compute_time = ComputeTime(record, is_alone=False)
    for _ in range(NUM_STEPS):
        record.optimizer_stepped(1)
        compute_time.stepped()
    assert (record.read().compute_s, type(keep)) == (None, changed)
