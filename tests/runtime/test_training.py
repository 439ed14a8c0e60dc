"""Ranks as real processes: the loss falls, parameters stay equal, resume and stop lose nothing."""

import json
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from hulk_runtime.collective.peer_timeout import peer_timeout_s
from hulk_runtime.job import environment
from hulk_runtime.plan import wire
from start_order import order

PATIENCE_S = 120.0


def get(port: int, path: str, body: bytes | None = None) -> tuple[int, str]:
    """Status and body; status 0 while nobody listens."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""
    except OSError:
        return 0, ""


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s"
        time.sleep(0.05)


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_three_ranks_train_and_the_loss_falls(job, make_plan, make_training):
    plan = make_plan((1, 1, 1), training=make_training(3, steps=24))
    first, *others = job.run_ranks(plan)
    losses = {step: float(loss) for step, loss in first.losses().items()}
    assert list(losses) == list(range(1, 25))
    assert losses[24] < losses[1] - 0.8
    assert all(not other.losses() for other in others), "only rank 0 speaks for the job"
    _, *sent = (int(count) for count in re.findall(r"^step=.* bytes=(-?\d+)$", first.output, re.MULTILINE))
    assert len(sent) == 23
    assert min(sent) > 0.9 * max(sent), "also in the last step, after which the others leave"


def test_the_loss_does_not_depend_on_how_the_batch_is_shared(job, make_plan, make_training):
    """4 sequences on one rank, on two ranks 3:1, and 2:2 one at a time: the same training."""
    alone = job.run_ranks(make_plan((1,), shares=[4], training=make_training(2)))
    shared = job.run_ranks(make_plan((1, 1), shares=[3, 1]))
    micro = job.run_ranks(make_plan((1, 1), shares=[2, 2], numBuckets=5, training=make_training(2, microBatch=1)))
    expected = [float(loss) for loss in alone[0].losses().values()]
    for run in (shared, micro):
        assert [float(loss) for loss in run[0].losses().values()] == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize(("precision", "optimizer"), [("bf16", "sgd"), ("fp16", "adamw")])
def test_other_precisions_and_optimizers_train(job, make_plan, make_training, precision, optimizer):
    plan = make_plan((1, 1), training=make_training(precision=precision, optimizer=optimizer, steps=12))
    losses = [float(loss) for loss in job.run_ranks(plan)[0].losses().values()]
    assert losses[-1] < losses[0] - 0.1


def test_a_resumed_run_has_the_loss_of_an_uninterrupted_one(job, make_plan, make_training, tmp_path: Path):
    """8 steps at once; 5 steps, then attempt 2 to step 8 in a world of another size."""
    whole = job.run_ranks(make_plan((1, 1), training=make_training(steps=8)))[0].losses()
    url = f"file://{tmp_path}/checkpoints"
    settings = {"HULK_CHECKPOINT_URL": url, "HULK_CHECKPOINT_EVERY_STEPS": "2", "HULK_JOB_UID": "u-1"}
    job.run_ranks(make_plan((1, 1), training=make_training(steps=5)), **settings)
    again = make_plan((1,), attempt=2, shares=[4], training=make_training(steps=8))
    (resumed,) = job.run_ranks(again, **settings)
    assert "resumed after step 5" in resumed.output
    assert list(resumed.losses()) == [6, 7, 8]
    assert [float(v) for v in resumed.losses().values()] == pytest.approx(
        [float(whole[s]) for s in (6, 7, 8)], abs=2e-4
    )
    assert sorted(path.name for path in (tmp_path / "checkpoints" / "u-1").glob("state-*")) == [
        "state-00000001-0000000005",
        "state-00000002-0000000006",
        "state-00000002-0000000008",
    ]


def test_a_finished_job_that_runs_again_trains_nothing(job, make_plan, tmp_path: Path):
    settings = {"HULK_CHECKPOINT_URL": f"file://{tmp_path}/checkpoints"}
    job.run_ranks(make_plan((1,), shares=[2]), **settings)
    (again,) = job.run_ranks(make_plan((1,), shares=[2], attempt=2), **settings)
    assert not again.losses()


def test_sigterm_on_one_rank_stops_all_at_one_step_with_a_checkpoint(job, make_plan, make_training, tmp_path: Path):
    settings = {"HULK_CHECKPOINT_URL": f"file://{tmp_path}/checkpoints", "HULK_CHECKPOINT_EVERY_STEPS": "100000"}
    ranks = job.start_ranks(make_plan((1, 1), training=make_training(steps=100_000)), **settings)
    ranks[0].wait_for("step=3 ")
    ranks[1].popen.send_signal(signal.SIGTERM)
    assert [rank.wait() for rank in ranks] == [143, 143]
    last = max(ranks[0].losses())
    assert f"checkpoint step={last} " in ranks[0].output
    plan = make_plan((1, 1), attempt=2, training=make_training(steps=last + 1))
    resumed = job.run_ranks(plan, **settings)
    assert list(resumed[0].losses()) == [last + 1]


def test_sigterm_before_the_first_step_ends_at_once(job, make_plan):
    """Rank 0 waits for a rank that never comes, inside C, where Python runs no signal handler."""
    job.write_plan(make_plan((1, 1)))
    waiting = job.start("-m", "hulk_runtime.examples.gpt", RANK="0")
    wait_until(lambda: listens(int(job.environment["MASTER_PORT"])))
    waiting.popen.send_signal(signal.SIGTERM)
    assert waiting.wait() == 143


def test_preflight_is_offered_and_training_waits_for_go(job, make_plan, make_training):
    plan = make_plan((1, 1), preflight=True, training=make_training(steps=100_000))
    ranks = job.start_ranks(plan, HULK_START_SECONDS="100000")
    port = int(ranks[0].environment["HULK_METRICS_PORT"])
    wait_until(lambda: get(port, "/preflight")[0] == 200)
    offered = json.loads(get(port, "/preflight")[1])
    assert offered["attempt"] == 1
    assert len(offered["computeSeconds"]) == 2
    assert min(offered["computeSeconds"]) > 0
    assert max(offered["computeSeconds"]) <= offered["slowestSeconds"]
    assert not ranks[0].losses(), "nothing is trained before the prediction is written"
    assert get(port, "/start", order(attempt=7))[0] == 409
    assert get(port, "/start", b"go")[0] == 400
    assert get(port, "/start", b'{"attempt": 1}')[0] == 403
    assert not ranks[0].losses(), "nobody but the operator lets it begin"
    assert get(port, "/start", order(attempt=1))[0] == 204
    ranks[0].wait_for("step=1 ")
    for rank in ranks:
        rank.popen.send_signal(signal.SIGTERM)
    assert [rank.wait() for rank in ranks] == [143, 143]


def test_without_go_training_starts_by_itself(job, make_plan):
    ranks = job.run_ranks(make_plan((1, 1), preflight=True), HULK_START_SECONDS="0.1")
    assert "no go from the operator within 0.1 s" in ranks[0].output
    assert len(ranks[0].losses()) == 6


def test_rank_0_shows_the_job_and_other_workers_their_process(job, make_plan, make_training):
    plan = make_plan((1, 1), training=make_training(steps=100_000))
    ranks = job.start_ranks(plan)
    ranks[0].wait_for("step=5 ")
    page, other = (get(int(rank.environment["HULK_METRICS_PORT"]), "/metrics")[1] for rank in ranks)
    for rank in ranks:
        rank.popen.send_signal(signal.SIGTERM)
    assert [rank.wait() for rank in ranks] == [143, 143]
    values = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in page.splitlines() if line[0] != "#"}
    assert float(values["hulk_worker_step"]) >= 5
    for name in ("step_seconds", "step_seconds_last", "loss", "sent_bytes_total"):
        assert float(values[f"hulk_worker_{name}"]) > 0
    for rank in (0, 1):
        assert float(values[f'hulk_worker_compute_seconds{{rank="{rank}"}}']) > 0
        link = f'{{source="node-{rank}",target="node-{1 - rank}"}}'
        assert 0 < float(values[f"hulk_worker_link_rtt_seconds{link}"]) < 1
        assert float(values[f"hulk_worker_link_bandwidth_bytes_per_second{link}"]) > 0
    assert 'hulk_worker_info{all_reduce="ring",attempt="1",backend="gloo",version="' in page
    assert "process_cpu_seconds_total" in other
    of_hulk = [line for line in other.splitlines() if line.startswith("hulk_worker_")]
    (own,) = (line for line in of_hulk if not line.startswith("hulk_worker_background_failures_total"))
    name, _, step = own.rpartition(" ")
    assert name == 'hulk_worker_own_step{attempt="1"}'
    assert float(step) >= float(values["hulk_worker_step"]) - 1  # it was read later


def test_a_lost_peer_ends_the_others_with_a_named_error(job, make_plan, make_training):
    ranks = job.start_ranks(make_plan((1, 1), training=make_training(steps=100_000)))
    ranks[0].wait_for("step=3 ")
    ranks[1].popen.kill()
    assert ranks[0].wait() == 69
    assert "PeerLostError: " in ranks[0].output


def test_a_peer_that_falls_silent_ends_the_others_within_the_bound(job, make_plan, make_training):
    """A stopped process keeps its connections open, as a machine behind a cut link does; nothing resets them."""
    plan = make_plan((1, 1), training=make_training(steps=100_000))
    plan = make_plan(
        (1, 1), training=make_training(steps=100_000), prediction={**plan["prediction"], "stepSeconds": 0.1}
    )
    ranks = job.start_ranks(plan, HULK_SILENCE_SECONDS="2", HULK_RENDEZVOUS_SECONDS="100000")
    ranks[0].wait_for("step=3 ")
    ranks[1].popen.send_signal(signal.SIGSTOP)
    assert ranks[0].wait() == 69
    assert "PeerLostError: " in ranks[0].output


@pytest.mark.parametrize(
    ("step_s", "slowest_s", "preflight", "sync", "expected"),
    [
        (0.5, 0.0, False, None, 60.0),
        (30.0, 0.0, False, None, 300.0),
        (0.5, 9.0, True, None, 110.0),
        (1.0, 0.0, False, {"mode": "local", "innerSteps": 50}, 110.0),
    ],
    ids=["the default", "ten predicted steps", "ten times the slowest rank, and the wait for go", "two rounds more"],
)
def test_the_bound_on_silence_leaves_room_for_slow_steps(
    make_plan, encode_plan, step_s, slowest_s, preflight, sync, expected
):
    document = make_plan((1, 1), preflight=preflight, sync=sync)
    predicted = {**document["prediction"], "stepSeconds": step_s}
    document = make_plan((1, 1), preflight=preflight, sync=sync, prediction=predicted)
    assert peer_timeout_s(environment.read({}), wire.decode(encode_plan(document)), slowest_s) == expected


def test_a_rank_told_to_stop_saves_its_last_step_though_its_peer_has_left(
    job, make_plan, make_training, tmp_path: Path
):
    """Rank 1 stands still, so rank 0 waits inside a step; then rank 0 is told to stop and rank 1 dies."""
    settings = {"HULK_CHECKPOINT_URL": f"file://{tmp_path}/checkpoints", "HULK_CHECKPOINT_EVERY_STEPS": "100000"}
    ranks = job.start_ranks(make_plan((1, 1), training=make_training(steps=100_000)), **settings)
    ranks[0].wait_for("step=3 ")
    ranks[1].popen.send_signal(signal.SIGSTOP)
    ranks[0].popen.send_signal(signal.SIGTERM)
    ranks[1].popen.kill()
    assert ranks[0].wait() == 143
    assert f"checkpoint step={max(ranks[0].losses())} " in ranks[0].output


def test_ranks_that_never_come_are_waited_for_in_bounds(job, make_plan):
    job.write_plan(make_plan((1, 1)))
    alone = job.start("-m", "hulk_runtime.examples.gpt", RANK="1", HULK_RENDEZVOUS_SECONDS="1")
    assert alone.wait() == 69
    assert "did not answer within 1 s" in alone.output


def test_no_rank_imports_torchs_compiler(job, make_plan):
    """Importing it takes longer, at the CPU quota of a small worker, than everything else before the first step."""
    program = (
        "import sys; from hulk_runtime.examples import gpt; from hulk_runtime import entry\n"
        "entry.leave = lambda code: sys.exit(code or 'sympy' in sys.modules or 'torch._dynamo' in sys.modules)\n"
        "gpt.main()"
    )
    job.write_plan(make_plan((1,)))
    rank = job.start("-c", program, RANK="0", HULK_WORKER="0")  # the fork server has imported it
    assert rank.wait() == 0, rank.output


def test_ranks_that_made_different_models_refuse_to_train(job, make_plan):
    program = (
        "import os\n"
        "from hulk_runtime import entry\n"
        "from types import SimpleNamespace\n"
        "def make(plan, device):\n"
        "    import torch\n"
        "    torch.manual_seed(int(os.environ['RANK']) // 2)\n"
        "    return SimpleNamespace(module=torch.nn.Linear(2, 2), learning_rate=0.1)\n"
        "entry.leave(entry.run(make))\n"
    )
    ranks = job.start_ranks(make_plan((1, 1, 1)), "-c", program)
    assert [rank.wait() for rank in ranks] == [74, 74, 74]
    assert "ranks [2] do not hold rank 0's state of step 0" in ranks[0].output
