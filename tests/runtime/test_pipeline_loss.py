"""A rank that dies in the middle of a step: all others stop with a clear error within seconds."""

import signal
import time
from pathlib import Path

import pytest
from hulk_placement.schedule.shapes import SHAPES
from hulk_runtime.errors import PeerLostError
from pipeline_cases import give
from pipeline_schedules import backward_first, written

SCRIPT = str(Path(__file__).with_name("pipeline_ranks.py"))
GPT_SCRIPT = str(Path(__file__).with_name("pipeline_gpt_ranks.py"))
NUM_RANKS = 4
BOUND_S = 20.0
"""On a machine with two cores that does other things as well; the silence that gloo bears is 120 s."""


@pytest.mark.parametrize(
    ("shape", "dying"),
    [("x", 3), pytest.param("v", 1, marks=pytest.mark.whole), pytest.param("k", 2, marks=pytest.mark.whole)],
)
def test_all_ranks_stop_when_one_dies_in_a_step(job, make_plan, shape, dying):
    others = without(job, make_plan, dying, SCRIPT, steps_of(shape))
    assert all("step=2" in rank.output for rank in others)


@pytest.mark.parametrize("shape", ["k", pytest.param("v", marks=pytest.mark.whole)])
def test_all_ranks_stop_when_one_falls_silent(job, make_plan, shape):
    """Its connections stay, as those of a host that is cut off; in shape K it is missing in a block of all, too."""
    ranks = begin(job, make_plan, 2, SCRIPT, steps_of(shape), SIGNAL=str(int(signal.SIGSTOP)), SILENCE_S="8")
    others = [rank for number, rank in enumerate(ranks) if number != 2]
    assert [rank.wait() for rank in others] == [PeerLostError.exit_code] * len(others)
    assert all("PeerLostError: " in rank.output and "step=2" in rank.output for rank in others)


def steps_of(shape):
    schedule = written(SHAPES[shape](NUM_RANKS, 1.0, 2.0), 4, backward_first)
    return {"schedule": schedule, "shares": [[2, 2, 2, 2]]}


def test_all_ranks_stop_when_one_dies_that_has_a_part_of_matrices(job, make_plan):
    schedule = written(SHAPES["v"](2, 1.0, 2.0), 3, backward_first)
    without(job, make_plan, 3, GPT_SCRIPT, {"schedule": schedule, "kind": "function", "tensor": 2})


def without(job, make_plan, dying, script, case):
    """The ranks that are left when one has died, and have stopped."""
    ranks = begin(job, make_plan, dying, script, case, SIGNAL=str(int(signal.SIGKILL)), SILENCE_S="120")
    assert ranks[dying].wait() < 0, ranks[dying].output
    died_s = time.monotonic()
    others = [rank for number, rank in enumerate(ranks) if number != dying]
    codes = [rank.wait() for rank in others]
    assert codes == [PeerLostError.exit_code] * len(others), "\n".join(rank.output for rank in others)
    assert time.monotonic() - died_s < BOUND_S
    assert all("PeerLostError: " in rank.output for rank in others)
    return others


def begin(job, make_plan, dying, script, case, **environment):
    """All ranks, of which one will be hit by a signal in its third step."""
    give(job.folder, {"case": case})
    job.write_plan(make_plan((1,) * NUM_RANKS))
    return [
        job.fork(script, str(job.folder), RANK=str(rank), DIES_AT="2" if rank == dying else "never", **environment)
        for rank in range(NUM_RANKS)
    ]
