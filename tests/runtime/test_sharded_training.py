"""Replicas of several ranks as pods train them: one rank's losses, over planned flows too, resumed on other layouts."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import GPT
from hulk_runtime import errors
from test_launcher import LAUNCH
from test_wan_training import TWO, wan

Job = Any  # of conftest
Plans = Callable[..., dict[str, Any]]
MODEL = {"layers": 2, "hidden": 32, "heads": 2, "sequenceLength": 24, "vocabulary": 256, "feedForward": 64}
BATCH, STEPS = 7, 6
TOLERANCE = 2e-4  # fp32, printed with four places
TWO_REGIONS = [{"node": f"node-{r}", "region": f"region-{r // 2}", "accelerators": 1} for r in range(4)]


@pytest.fixture
def plans(make_plan: Plans, make_training: Plans) -> Plans:
    """plans((data, shard, tensor), **changes) -> the plan of as many ranks, replicas with unequal shares."""

    def make(degrees: tuple[int, int, int], **changes: Any) -> dict[str, Any]:
        data, shard, tensor = degrees
        training = {"globalBatch": BATCH, "microBatch": 2, "steps": STEPS, **changes.pop("training", {})}
        return make_plan(
            changes.pop("accelerators", (1,) * (data * shard * tensor)),
            version=3,
            model=MODEL,
            layout=changes.pop("layout", {"data": data, "shard": shard, "tensor": tensor, "pipeline": 1}),
            shares={1: [BATCH], 2: [3, 4]}[data],
            training=make_training(1, **training),
            **changes,
        )

    return make


def losses(process: Any) -> list[float]:
    return [float(loss) for loss in process.losses().values()]


@pytest.fixture(scope="module")
def expected(module_job: Job, make_plan: Plans) -> list[float]:
    """What one process makes of it."""
    training = {"globalBatch": BATCH, "microBatch": 2, "precision": "fp32", "optimizer": "adamw", "steps": STEPS}
    (process,) = module_job.run_ranks(make_plan((1,), model=MODEL, shares=[BATCH], training=training))
    return losses(process)


def test_replicas_of_two_regions_sum_over_the_planned_flows(job: Job, plans: Plans, expected: list[float]) -> None:
    between = {"workers": TWO_REGIONS, **wan(2, classes=TWO)}
    first, *_ = job.run_ranks(plans((2, 2, 1), preflight=True, **between), HULK_START_SECONDS="0.1")
    assert losses(first) == pytest.approx(expected, abs=TOLERANCE)
    assert " backend=gloo all_reduce=wan " in first.output
    assert "\nall-reduce max_mb=0.5243 n=5 " in first.output  # seen of each step by the next


def test_hulk_launch_runs_the_ranks_of_a_worker(job: Job, plans: Plans, expected: list[float]) -> None:
    """Two workers in two regions, each of two tensor ranks."""
    job.write_plan(plans((2, 1, 2), accelerators=(2, 2), **wan(2, classes=TWO)))
    workers = [job.start(*LAUNCH, *GPT, HULK_WORKER=str(worker)) for worker in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0], workers[0].output
    assert losses(workers[0]) == pytest.approx(expected, abs=TOLERANCE)
    assert "\nall-reduce max_mb=0.5243 n=5 " in workers[0].output


def test_another_layout_goes_on_from_a_checkpoint(job: Job, plans: Plans, expected: list[float]) -> None:
    """Shards, shards of tensor ranks, one rank with everything, tensor ranks of two regions with encryption between."""
    kept = {"HULK_CHECKPOINT_URL": (job.folder / "kept").as_uri(), "HULK_CHECKPOINT_EVERY_STEPS": "2"}
    found: list[float] = []
    for attempt, (degrees, step) in enumerate([((2, 2, 1), 2), ((1, 2, 2), 3), ((1, 1, 1), 4), ((2, 1, 2), STEPS)], 1):
        between = {"workers": TWO_REGIONS, **wan(2, classes=TWO)} if step == STEPS else {}
        first, *_ = job.run_ranks(plans(degrees, attempt=attempt, training={"steps": step}, **between), **kept)
        assert attempt == 1 or f"resumed after step {len(found)}" in first.output
        found += losses(first)
        assert f"checkpoint step={step} " in first.output
    assert found == pytest.approx(expected, abs=TOLERANCE)


SLOW = """
import time
from hulk_runtime.examples import gpt
from hulk_runtime.training import sharded_state
gathered = sharded_state._gathered
def slowly(stepper):
    time.sleep(7)
    yield from gathered(stepper)
sharded_state._gathered = slowly
gpt.main()
"""


def test_replicas_wait_for_a_checkpoint_for_longer_than_for_a_step(job: Job, plans: Plans) -> None:
    """Only replica 0's ranks gather the state: those of replica 1 are in the next step's sum meanwhile."""
    script = Path(job.folder / "slow.py")
    script.write_text(SLOW)
    kept = {"HULK_CHECKPOINT_URL": (job.folder / "kept").as_uri(), "HULK_CHECKPOINT_EVERY_STEPS": "2"}
    plan = plans((2, 2, 1), training={"steps": 3}, workers=TWO_REGIONS, **wan(2, classes=TWO))
    first, *_ = job.run_ranks(plan, str(script), HULK_SILENCE_SECONDS="4", **kept)
    assert list(first.losses()) == [1, 2, 3]
    assert "checkpoint step=2 " in first.output


@pytest.mark.parametrize(
    ("precision", "degrees"), [pytest.param("bf16", (1, 2, 1), marks=pytest.mark.whole), ("fp16", (1, 2, 2))]
)
def test_other_precisions_train(job: Job, plans: Plans, precision: str, degrees: tuple[int, int, int]) -> None:
    training = {"precision": precision, "steps": 12}
    alone, divided = (losses(job.run_ranks(plans(of, training=training))[0]) for of in ((1, 1, 1), degrees))
    assert divided[-1] < divided[0] - 0.1
    assert divided == pytest.approx(alone, abs=0.02)


RESIDUAL = """
from hulk_runtime.examples import gpt
from hulk_runtime.examples.byte_gpt import ByteTask
divided = ByteTask.divided
def watched(task, mesh):
    model = divided(task, mesh)
    for layer in model.layers:
        layer.register_forward_hook(lambda layer, _, found: print("residual", found.dtype, layer.expand.weight.dtype))
    return model
ByteTask.divided = watched
gpt.main()
"""


def test_the_residual_stays_in_the_precision_of_the_parameters(job: Job, plans: Plans) -> None:
    """As in a whole model, of which autocast lowers the precision of products alone."""
    script = Path(job.folder / "watched.py")
    script.write_text(RESIDUAL)
    first, _ = job.run_ranks(plans((1, 2, 1), training={"precision": "bf16", "steps": 1}), str(script))
    found = {line for line in first.output.splitlines() if line.startswith("residual")}
    assert found == {"residual torch.float32 torch.bfloat16"}


def test_all_end_when_a_rank_is_lost(job: Job, plans: Plans) -> None:
    plan = plans((1, 2, 2), training={"steps": 100_000})
    first, second, lost, last = job.start_ranks(plan, HULK_SILENCE_SECONDS="10")
    first.wait_for("step=3 ")
    lost.popen.send_signal(signal.SIGKILL)
    codes = [process.wait() for process in (first, second, last)]
    assert codes == [errors.PeerLostError.exit_code] * 3, first.output + last.output


def test_all_stop_at_one_step_with_a_checkpoint(job: Job, plans: Plans) -> None:
    kept = {"HULK_CHECKPOINT_URL": (job.folder / "kept").as_uri(), "HULK_CHECKPOINT_EVERY_STEPS": "100000"}
    ranks = job.start_ranks(plans((1, 2, 1), training={"steps": 100_000}), **kept)
    ranks[0].wait_for("step=3 ")
    ranks[1].popen.send_signal(signal.SIGTERM)
    assert [rank.wait() for rank in ranks] == [errors.EXIT_STOPPED] * 2, ranks[0].output
    assert f"checkpoint step={max(ranks[0].losses())} " in ranks[0].output


def test_a_task_that_cannot_be_divided_is_refused(job: Job, plans: Plans) -> None:
    script = Path(job.folder / "whole.py")
    script.write_text(
        "import torch\n"
        "from hulk_runtime import entry\n"
        "class Task:\n"
        "    learning_rate = 0.1\n"
        "    module = torch.nn.Linear(2, 2)\n"
        "entry.leave(entry.run(lambda plan, device: Task()))\n"
    )
    ranks = job.start_ranks(plans((1, 2, 1)), str(script))
    assert {rank.wait() for rank in ranks} == {errors.ConfigurationError.exit_code}
    assert "the plan has shard 2 and tensor 1, and the program's task cannot be divided" in ranks[0].output


def test_rounds_of_several_steps_exclude_shards(job: Job, plans: Plans) -> None:
    ranks = job.start_ranks(plans((1, 2, 1), sync={"mode": "local", "innerSteps": 5}))
    assert {rank.wait() for rank in ranks} == {errors.ConfigurationError.exit_code}
    assert "the plan has shard 2 and tensor 1, and rounds of 5 steps" in ranks[0].output
