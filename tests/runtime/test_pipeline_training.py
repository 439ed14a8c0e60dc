"""Training in stages as pods do it: the losses of one process, on any layout, resumed on any other; lost ranks."""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hulk_runtime import errors
from hulk_runtime.plan import document, pipeline_schedule, wire
from hulk_runtime.plan.wire import Plan
from start_order import order

Job = Process = Any  # of conftest
Plans = Callable[..., dict[str, Any]]
MODEL = {"layers": 4, "hidden": 32, "heads": 2, "sequenceLength": 24, "vocabulary": 256, "feedForward": 64}
BATCH, STEPS = 12, 8
NUM_LAYERS = MODEL["layers"] + 2
TOLERANCE = 2e-4  # fp32, printed with four places


def gpipe(device: int, num_stages: int, num: int) -> list[tuple[int, int]]:
    """All micro-batches forward, then backward."""
    return [(block, m) for block in (device, 2 * num_stages - 1 - device) for m in range(num)]


def one_by_one(device: int, num_stages: int, num: int) -> list[tuple[int, int]]:
    """1F1B."""
    forward, backward = device, 2 * num_stages - 1 - device
    first = min(num, num_stages - device)
    turns = [(forward, m) for m in range(first)]
    for m in range(num):
        turns += [(backward, m), *([(forward, first + m)] if first + m < num else [])]
    return turns


def last_first(device: int, num_stages: int, num: int) -> list[tuple[int, int]]:
    """No usual order: forward as GPipe, backward of the last micro-batch first."""
    forward, backward = device, 2 * num_stages - 1 - device
    return [*((forward, m) for m in range(num)), *((backward, m) for m in reversed(range(num)))]


ORDERS = {"gpipe": gpipe, "1f1b": one_by_one, "explicit": last_first}


def schedule(name: str, num_stages: int, num: int) -> dict[str, Any]:
    """As the operator writes it."""
    devices = range(num_stages)

    def block(kind: str, s: int, after: list[int]) -> dict[str, Any]:
        name = f"{kind[0].upper()}{s}"
        return {"name": name, "kind": kind, "stage": str(s), "devices": [s], "after": after, "forward": s}

    forward = [block("forward", s, [s - 1] if s else []) for s in devices]
    backward = [block("backward", s, [num_stages - 1 + k]) for k, s in enumerate(reversed(devices))]
    orders = [{"before": [list(turn) for turn in ORDERS[name](s, num_stages, num)]} for s in devices]
    blocks = forward + backward
    return {"version": 1, "numDevices": num_stages, "numMicroBatches": num, "blocks": blocks, "orders": orders}


@pytest.fixture
def staged(make_plan: Plans, make_training: Plans) -> Plans:
    """staged(replicas, stages, name, **changes) -> a plan of so many pipelines."""

    def make(
        num_replicas: int,
        stages: tuple[int, ...],
        name: str = "1f1b",
        num: int = 3,
        steps: int = STEPS,
        tensor: int = 1,
        shard: int = 1,
        **changes: Any,
    ) -> dict[str, Any]:
        pipeline = {
            "stages": list(stages),
            "rings": [list(range(num_replicas))[::-1]] * len(stages) if num_replicas > 1 else [],
            "overlap": True,
            "recompute": False,
            "name": name,
            "schedule": schedule(name, len(stages), num),
        }
        share = BATCH // num_replicas
        said = {
            "layout": {"data": num_replicas, "pipeline": len(stages), "tensor": tensor, "shard": shard},
            "shares": [share + 1, *[share] * (num_replicas - 2), share - 1] if num_replicas > 1 else [BATCH],
            "model": MODEL,
            "training": make_training(globalBatch=BATCH, steps=steps, **changes.pop("training", {})),
            "pipeline": pipeline,
            **changes,
        }
        return make_plan((1,) * (num_replicas * len(stages) * tensor * shard), **said)

    return make


@pytest.fixture
def alone(make_plan: Plans, make_training: Plans) -> Plans:
    """alone(num_ranks, **changes) -> the same training on ranks that hold the whole model."""

    def make(num_ranks: int = 1, steps: int = STEPS, **changes: Any) -> dict[str, Any]:
        training = make_training(globalBatch=BATCH, steps=steps, **changes.pop("training", {}))
        shares = [BATCH // num_ranks] * num_ranks
        return make_plan((1,) * num_ranks, model=MODEL, shares=shares, training=training, **changes)

    return make


def losses(process: Process) -> list[float]:
    """Of all steps in their order."""
    found = process.losses()
    assert list(found) == sorted(found)
    return [float(loss) for loss in found.values()]


@pytest.fixture(scope="module")
def expected(module_job: Job, make_plan: Plans) -> list[float]:
    """What one process makes of it."""
    training = {"globalBatch": BATCH, "microBatch": None, "precision": "fp32", "optimizer": "adamw", "steps": STEPS}
    plan = make_plan((1,), model=MODEL, shares=[BATCH], training=training)
    (process,) = module_job.run_ranks(plan)
    return losses(process)


CASES = [
    (1, (0, 2, 4), "gpipe", 1),
    (1, (0, 1), "explicit", 1),
    (2, (0, 3), "1f1b", 1),
    (2, (0, 2, 5), "explicit", 1),
    (1, (0, 3), "1f1b", 2),
]


@pytest.mark.parametrize(("num_replicas", "stages", "name", "tensor"), CASES)
def test_stages_train_as_one_process_does(
    job: Job, staged: Plans, expected: list[float], num_replicas: int, stages: tuple[int, ...], name: str, tensor: int
) -> None:
    """Replicas of 7 and 5 sequences, micro-batches of two or three: gradients are weighed by samples."""
    assert expected[-1] < expected[0] - 0.1
    plan = staged(num_replicas, stages, name, tensor=tensor)
    first, *others = job.run_ranks(plan, HULK_PIPELINE_LOG=str(job.folder))
    assert losses(first) == pytest.approx(expected, abs=TOLERANCE)
    assert all(not process.losses() for process in others)
    assert_executed(job.folder, document.read(Plan, plan))


def assert_executed(folder: Path, plan: Plan) -> None:
    """Every rank has run its blocks in the plan's order, in every step."""
    assert plan.pipeline is not None
    told = plan.pipeline.schedule
    for rank in range(plan.num_ranks):
        lines = [json.loads(line) for line in (folder / f"rank-{rank}.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines] == list(range(1, plan.training.steps + 1))
        device = rank // plan.layout.tensor % plan.layout.pipeline
        wanted = [[told.blocks[block].name, m] for block, m in told.orders[device].turns]
        assert all([turn[:2] for turn in line["turns"]] == wanted for line in lines)
        assert all(line["device"] == device for line in lines)


@pytest.mark.parametrize("shard", [1, 2])
def test_a_step_in_bf16_trains_too(job: Job, staged: Plans, expected: list[float], shard: int) -> None:
    first, *_ = job.run_ranks(staged(1, (0, 3), shard=shard, training={"precision": "bf16"}))
    assert losses(first) == pytest.approx(expected, abs=0.05)


LAYOUTS: dict[str, tuple[int, tuple[int, ...], dict[str, int]]] = {
    "three stages": (1, (0, 2, 4), {}),
    "other cut": (1, (0, 5), {}),
    "two replicas": (2, (0, 3), {}),
    "whole": (2, (), {}),
    "tensor ranks": (1, (0, 3), {"tensor": 2}),
    "shards": (1, (0, 2), {"shard": 2}),
}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("three stages", "other cut"),
        pytest.param("other cut", "two replicas", marks=pytest.mark.whole),
        pytest.param("two replicas", "whole", marks=pytest.mark.whole),
        ("whole", "three stages"),
        ("three stages", "tensor ranks"),
        ("tensor ranks", "shards"),
        ("shards", "whole"),
    ],
)
def test_a_job_goes_on_on_another_layout(
    job: Job, staged: Plans, alone: Plans, expected: list[float], before: str, after: str
) -> None:
    def run(layout: str, attempt: int, steps: int) -> Process:
        num_replicas, stages, degrees = LAYOUTS[layout]
        said = {"attempt": attempt, "steps": steps}
        plan = staged(num_replicas, stages, **degrees, **said) if stages else alone(num_replicas, **said)
        kept = (job.folder / "kept").as_uri()
        return job.run_ranks(plan, HULK_CHECKPOINT_URL=kept, HULK_CHECKPOINT_EVERY_STEPS="3")[0]

    first, second = run(before, 1, 5), run(after, 2, STEPS)
    assert "resumed after step 5" in second.output
    assert losses(first) + losses(second) == pytest.approx(expected, abs=TOLERANCE)
    kept = [path.name for path in (job.folder / "kept").rglob("*") if path.is_file()]
    num_stages = len(LAYOUTS[after][1])
    assert len([name for name in kept if name.startswith(f"part-00000002-{STEPS:010d}")]) == num_stages


def test_old_parts_go_with_their_checkpoints(job: Job, staged: Plans) -> None:
    kept = {"HULK_CHECKPOINT_URL": (job.folder / "kept").as_uri(), "HULK_CHECKPOINT_EVERY_STEPS": "1"}
    job.run_ranks(staged(1, (0, 3)), HULK_CHECKPOINT_KEEP="2", **kept)
    names = sorted(path.name for path in (job.folder / "kept").rglob("part-*"))
    steps = {int(name.split("-")[2]) for name in names}
    assert STEPS in steps
    assert len(steps) <= 3, names  # a part that was written while rank 0 committed goes with the next commit


def test_a_damaged_part_is_named_and_an_older_checkpoint_resumed(job: Job, staged: Plans) -> None:
    kept = {"HULK_CHECKPOINT_URL": (job.folder / "kept").as_uri(), "HULK_CHECKPOINT_EVERY_STEPS": "2"}
    job.run_ranks(staged(1, (0, 3), steps=4), **kept)
    (part,) = (job.folder / "kept").rglob("part-*-0000000004-0001")
    part.write_bytes(part.read_bytes()[:-4])
    first, *_ = job.run_ranks(staged(1, (0, 3), attempt=2, steps=5), **kept)
    assert f"{part.name} has " in first.output
    assert "resumed after step 2" in first.output


def test_a_store_that_fails_once_costs_one_checkpoint(job: Job, staged: Plans) -> None:
    """What stage 1 would write cannot get its name: all ranks go on, and a later checkpoint is there."""
    in_the_way = job.folder / "kept" / "team" / "demo" / "part-00000001-0000000002-0001"
    in_the_way.mkdir(parents=True)
    kept = {"HULK_CHECKPOINT_URL": (job.folder / "kept").as_uri(), "HULK_CHECKPOINT_EVERY_STEPS": "2"}
    processes = job.start_ranks(staged(1, (0, 3), steps=100_000), **kept)
    processes[0].wait_for("could not write their parts of step 2")
    in_the_way.rmdir()
    processes[0].wait_for("checkpoint step=")
    stop(*processes)
    assert processes[0].output.count("could not write their parts") == 1


def served(process: Process, path: str) -> str:
    port = process.environment["HULK_METRICS_PORT"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
        return str(answer.read().decode())


def start(process: Process, attempt: int = 1) -> None:
    url = f"http://127.0.0.1:{process.environment['HULK_METRICS_PORT']}/start"
    urllib.request.urlopen(urllib.request.Request(url, order(attempt), method="POST"), timeout=10).close()


@pytest.mark.usefixtures("expected")
def test_a_preflight_times_every_stage_and_metrics_tell_where_a_step_goes(job: Job, staged: Plans) -> None:
    first, *others = job.start_ranks(staged(1, (0, 2, 4), preflight=True, steps=100_000))
    first.wait_for("preflight compute_s=")
    told = json.loads(served(first, "preflight"))
    assert len(told["computeSeconds"]) == 3
    assert all(seconds > 0 for seconds in told["computeSeconds"])
    assert not first.losses()
    start(first)
    first.wait_for("step=8 ")
    lines = [line for line in served(first, "metrics").splitlines() if line.startswith("hulk_worker_")]
    found = {line.split()[0]: float(line.split()[1]) for line in lines if "pipeline_seconds" in line}
    parts = {
        stage: {part: found[f'hulk_worker_pipeline_seconds{{part="{part}",stage="{stage}"}}'] for part in PARTS}
        for stage in range(3)
    }
    totals = [sum(each.values()) for each in parts.values()]
    assert all(each["compute"] > 0 for each in parts.values())
    assert totals == pytest.approx([totals[0]] * 3, rel=1e-6)
    assert {f'hulk_worker_compute_seconds{{rank="{rank}"}}' for rank in range(3)} <= {line.split()[0] for line in lines}
    stop(first, *others)


PARTS = ("compute", "transfer", "bubble", "sum")


def stop(*processes: Process) -> None:
    for process in processes:
        process.popen.terminate()
    assert {process.wait() for process in processes} == {errors.EXIT_STOPPED}


def test_stopped_ranks_save_the_step_after_which_they_stop(job: Job, staged: Plans) -> None:
    kept = {"HULK_CHECKPOINT_URL": (job.folder / "kept").as_uri(), "HULK_CHECKPOINT_EVERY_STEPS": "100000"}
    processes = job.start_ranks(staged(1, (0, 3), steps=100_000), **kept)
    processes[0].wait_for("step=3 ")
    stop(*processes)
    last = max(processes[0].losses())
    assert f"checkpoint step={last} " in processes[0].output
    second, *_ = job.run_ranks(staged(1, (0, 2), attempt=2, steps=last + 1), **kept)
    assert list(second.losses()) == [last + 1]


@pytest.mark.parametrize(
    ("stages", "shard", "number", "bound_s"),
    [
        ((0, 2, 4), 1, signal.SIGKILL, 10.0),
        ((0, 2, 4), 1, signal.SIGSTOP, 20.0),
        pytest.param((0, 3), 2, signal.SIGKILL, 10.0, marks=pytest.mark.whole),
        pytest.param((0, 3), 2, signal.SIGSTOP, 20.0, marks=pytest.mark.whole),
    ],
)
def test_all_end_when_a_rank_is_lost(
    job: Job, staged: Plans, stages: tuple[int, ...], shard: int, number: int, bound_s: float
) -> None:
    plan = staged(1, stages, shard=shard, steps=100_000, prediction=None)
    first, lost, *others = job.start_ranks(plan, HULK_SILENCE_SECONDS="5")
    first.wait_for("step=3 ")
    since = time.monotonic()
    lost.popen.send_signal(number)
    codes = {process.wait() for process in (first, *others)}
    assert codes == {errors.PeerLostError.exit_code}, outputs((first, *others))
    assert time.monotonic() - since < bound_s


def refused(encode: Callable[..., bytes], plan: dict[str, Any], **changes: Any) -> str:
    body = {key: value for key, value in {**plan, **changes}.items() if key != "digest"}
    told = encode({**body, "digest": wire.digest_of(body)})
    with pytest.raises(errors.PlanError) as caught:
        wire.decode(told)
    return str(caught.value)


def test_plans_that_cannot_run_are_refused(staged: Plans, encode_plan: Callable[..., bytes]) -> None:
    plan = staged(1, (0, 3))
    whole = {"data": 1, "pipeline": 1, "tensor": 2}
    assert "1 stages, and the plan tells of 2" in refused(encode_plan, plan, layout=whole)
    assert "2 stages, and the plan tells of none" in refused(
        encode_plan, {k: v for k, v in plan.items() if k != "pipeline"}
    )
    assert "2 sequences for 3 micro-batches" in refused(
        encode_plan, plan, shares=[2], training={**plan["training"], "globalBatch": 2}
    )
    backwards = {**plan["pipeline"], "stages": [3, 0]}
    assert "stages begin at layers" in refused(encode_plan, plan, pipeline=backwards)
    assert "activations anew" in refused(encode_plan, plan, pipeline={**plan["pipeline"], "recompute": True})
    missing = {**plan["pipeline"]["schedule"], "orders": plan["pipeline"]["schedule"]["orders"][:1]}
    assert "1 orders for 2 devices" in refused(encode_plan, plan, pipeline={**plan["pipeline"], "schedule": missing})


def test_a_schedule_that_would_never_end_is_refused_before_it_starts(job: Job, staged: Plans) -> None:
    plan = staged(1, (0, 3))
    orders = plan["pipeline"]["schedule"]["orders"]
    orders[0] = {"before": orders[0]["before"][::-1]}  # backward blocks first
    pipeline_schedule.read(plan["pipeline"]["schedule"])  # whose parts are all there
    body = {key: value for key, value in plan.items() if key != "digest"}
    processes = job.start_ranks({**body, "digest": wire.digest_of(body)})
    assert {process.wait() for process in processes} == {errors.PlanError.exit_code}
    assert "would never end" in processes[0].output


def outputs(processes: Iterable[Process]) -> str:
    return "\n".join(process.output for process in processes)


def test_a_task_that_is_no_list_of_layers_is_refused(job: Job, staged: Plans) -> None:
    script = job.folder / "whole.py"
    script.write_text(
        "import torch\n"
        "from hulk_runtime import entry\n"
        "class Task:\n"
        "    learning_rate = 0.1\n"
        "    module = torch.nn.Linear(2, 2)\n"
        "entry.leave(entry.run(lambda plan, device: Task()))\n"
    )
    processes = job.start_ranks(staged(1, (0, 3)), str(script))
    assert {process.wait() for process in processes} == {errors.ConfigurationError.exit_code}
    assert "no list of layers" in outputs(processes)
