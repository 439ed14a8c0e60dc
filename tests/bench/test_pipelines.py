"""The schedules of which the bench times the steps are those of torch's pipelines."""

import pytest
from hulk_runtime.pipeline import deadlock_check
from hulk_runtime.pipeline.dataflow import Flows
from hulk_runtime.plan import pipeline_schedule

from bench.pipelines.question import NUM_MICRO_BATCHES, NUM_RANKS, all_forward, one_by_one, schedule


@pytest.mark.parametrize(("choose", "num_kept"), [(all_forward, [8, 8, 8, 8]), (one_by_one, [4, 3, 2, 1])])
def test_schedules_end_and_keep_as_many_micro_batches_as_they_should(choose, num_kept):
    read = pipeline_schedule.read(schedule(choose))
    assert len(deadlock_check.ends(Flows(read))) == 2 * NUM_RANKS * NUM_MICRO_BATCHES
    for device, most in enumerate(num_kept):
        held, levels = 0, []
        for block, _ in read.orders[device].turns:
            held += 1 if read.blocks[block].kind == "forward" else -1
            levels.append(held)
        assert max(levels) == most
