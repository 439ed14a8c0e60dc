"""Local SGD between real ranks: it is what the paper writes down, saves what it goes on with, and stops at a round."""

import re
import signal
from pathlib import Path
from typing import Any

import pytest
from hulk_runtime.plan import wire

FOREVER = 100_000


def local(inner_steps: int) -> dict[str, Any]:
    """The plan's `sync`."""
    return {"mode": "local", "innerSteps": inner_steps}


def state_of(folder: Path, step: int) -> bytes:
    """The saved state after a step."""
    (path,) = folder.glob(f"**/state-*-{step:010d}")
    return path.read_bytes()


# Three ranks with shares 1, 2 and 3 of 6 sequences, rounds of 3, 3 and 1 steps, the inner vectors averaged after step 3
# and after the last; against the same in one process with torch's own optimizers.
PROGRAM = """
import copy, os, sys, torch, torch.distributed as dist
from types import SimpleNamespace
from hulk_runtime.plan import wire
from hulk_runtime.collective.process_group import Group
from hulk_runtime.training.local_sgd import LocalStepper

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
plan = wire.load(os.environ["HULK_PLAN"])
torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3))
models = [copy.deepcopy(module) for _ in range(world)]

def loss_of(model, step, sequences):
    generator = torch.Generator().manual_seed(step)
    x, y = torch.randn(6, 5, generator=generator), torch.randn(6, 3, generator=generator)
    mine = slice(sequences.start, sequences.stop)
    return torch.nn.functional.mse_loss(model(x[mine]), y[mine])

task = SimpleNamespace(module=module, learning_rate=0.01, loss=lambda step, mine: loss_of(module, step, mine))
group = Group(rank, world, "gloo", torch.device("cpu"), {r: None for r in range(world) if r != rank})
stepper = LocalStepper(plan, group, task, 0)
shares, starts = (1, 2, 3), (0, 1, 3)
inner = [torch.optim.AdamW(model.parameters(), lr=0.01) for model in models]
anchor = copy.deepcopy(models[0])
lr, momentum = map(float, sys.argv[1:])
outer = torch.optim.SGD(anchor.parameters(), lr=lr, momentum=momentum, nesterov=True)
warm = plan.sync.warmup_steps
for step in range(1, warm + 1):
    _, report = stepper.together(step, stop=False, save=False)
    assert report.of_all
    for model, share, start in zip(models, shares, starts):
        model.zero_grad()
        (loss_of(model, step, range(start, start + share)) * share / 6).backward()
    for same in zip(*(model.parameters() for model in models)):
        total = sum(p.grad for p in same)
        for p in same:
            p.grad.copy_(total)
    for optimizer in inner:
        optimizer.step()
with torch.no_grad():
    for target, p in zip(anchor.parameters(), models[0].parameters()):
        target.copy_(p)
for step in range(warm + 1, warm + 8):
    _, report = stepper.together(step, stop=False, save=step == warm + 3)
    losses = []
    for model, optimizer, share, start in zip(models, inner, shares, starts):
        optimizer.zero_grad()
        losses.append(loss_of(model, step, range(start, start + share)))
        losses[-1].backward()
        optimizer.step()
    ends = step - warm in (3, 6, 7)
    assert report.of_all == ends and report.save == (step - warm == 3), report
    expected = sum(l * s / 6 for l, s in zip(losses, shares)) if ends else losses[rank]
    assert abs(report.loss - float(expected)) < 1e-5, (report.loss, expected)
    if step - warm in (3, 7):
        for states in zip(*([o.state[p] for p in m.parameters()] for o, m in zip(inner, models))):
            for name in ("exp_avg", "exp_avg_sq"):
                mean = sum(state[name] * s / 6 for state, s in zip(states, shares))
                for state in states:
                    state[name].copy_(mean)
    if ends:
        with torch.no_grad():
            for target, *own in zip(anchor.parameters(), *(model.parameters() for model in models)):
                target.grad = sum((target - p) * s / 6 for p, s in zip(own, shares))
            outer.step()
            for model in models:
                for target, p in zip(anchor.parameters(), model.parameters()):
                    p.copy_(target)
        for ours, theirs in zip(module.parameters(), anchor.parameters()):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    if step - warm in (3, 7):
        every = group.gather(torch.cat(stepper.vectors))
        assert torch.equal(every, every[:1].expand_as(every)), "what is saved is what every rank goes on with"
print("as the paper has it")
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("outer", "rate_and_momentum"),
    [
        ({}, ("0.7", "0.9")),
        ({"outerLearningRate": 0.5, "outerMomentum": 0.6, "warmupSteps": 4}, ("0.5", "0.6")),
    ],
)
def test_it_is_what_the_paper_writes_down(job, make_plan, make_training, outer, rate_and_momentum):
    training = make_training(3, steps=7 + outer.get("warmupSteps", 0), microBatch=2)
    plan = make_plan((1, 1, 1), shares=[1, 2, 3], sync={**local(3), **outer}, training=training)
    for rank in job.run_ranks(plan, "-c", PROGRAM, *rate_and_momentum):
        assert "as the paper has it" in rank.output


def test_between_outer_steps_nothing_is_sent_and_rank_0_says_whose_figures_it_shows(job, make_plan, make_training):
    plan = make_plan((1, 1), sync=local(4), training=make_training(steps=22))
    first, other = job.run_ranks(plan)
    rows = re.findall(r"^step=(\d+) loss=(\S+) .* bytes=(\d+)( of=rank0)?$", first.output, re.MULTILINE)
    assert [int(step) for step, *_ in rows] == list(range(1, 23))
    for step, _, num_bytes, own in rows:
        assert bool(own) == (int(step) not in (4, 8, 12, 16, 20, 22))
        assert bool(own) == (int(num_bytes) == 0) or step == "1", "the first step counts what resuming has sent"
    assert float(rows[-1][1]) < float(rows[0][1]) - 0.8
    assert " inner_steps=4 " in first.output
    assert not other.losses()


@pytest.mark.parametrize(("precision", "optimizer"), [("fp16", "adamw"), ("bf16", "sgd")])
def test_other_precisions_and_optimizers_train(job, make_plan, make_training, precision, optimizer):
    training = make_training(precision=precision, optimizer=optimizer, steps=12, microBatch=1)
    first, _ = job.run_ranks(make_plan((1, 1), sync=local(3), training=training))
    losses = [float(loss) for loss in first.losses().values()]
    assert losses[-1] < losses[0] - 0.1


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_killed_run_resumes_bit_for_bit(job, make_plan, make_training, tmp_path: Path, precision):
    """The ranks' own inner vectors and loss scales are lost with them, and yet nothing differs."""

    def plan(steps: int, attempt: int = 1) -> dict[str, Any]:
        return make_plan(
            (1, 1), attempt=attempt, sync=local(4), training=make_training(steps=steps, precision=precision)
        )

    def settings(name: str) -> dict[str, str]:
        return {"HULK_CHECKPOINT_URL": f"file://{tmp_path}/{name}", "HULK_CHECKPOINT_EVERY_STEPS": "6"}

    ranks = job.start_ranks(plan(FOREVER), **settings("killed"))
    ranks[0].wait_for("checkpoint step=12 ")
    for rank in ranks:
        rank.popen.kill()
        rank.wait()
    last = int(re.findall(r"checkpoint step=(\d+)", ranks[0].output)[-1]) + 10
    resumed = job.run_ranks(plan(last, attempt=2), **settings("killed"))[0]
    whole = job.run_ranks(plan(last), **settings("whole"))[0]
    resumed_losses = resumed.losses()
    assert min(resumed_losses) > 8
    assert resumed_losses == {step: loss for step, loss in whole.losses().items() if step in resumed_losses}
    assert state_of(tmp_path / "killed", last) == state_of(tmp_path / "whole", last)


def test_a_run_resumes_in_another_mode_and_another_world(job, make_plan, make_training, tmp_path: Path):
    """Local, then synchronous (the outer velocity is dropped), then local again (it begins at rest)."""
    settings = {"HULK_CHECKPOINT_URL": f"file://{tmp_path}/checkpoints"}
    job.run_ranks(make_plan((1, 1), sync=local(4), training=make_training(steps=8)), **settings)
    synchronous = make_plan((1,), attempt=2, shares=[4], training=make_training(steps=12))
    (alone,) = job.run_ranks(synchronous, **settings)
    assert "resumed after step 8" in alone.output
    again = make_plan((1, 1), attempt=3, sync=local(4), training=make_training(steps=24))
    first, _ = job.run_ranks(again, **settings)
    assert "resumed after step 12" in first.output
    num_values = len(state_of(tmp_path / "checkpoints", 12)) // 3
    assert len(state_of(tmp_path / "checkpoints", 24)) == 4 * num_values
    assert float(first.losses()[24]) < float(alone.losses()[9])


def test_sigterm_on_one_rank_stops_all_at_the_end_of_a_round(job, make_plan, make_training, tmp_path: Path):
    settings = {"HULK_CHECKPOINT_URL": f"file://{tmp_path}/checkpoints", "HULK_CHECKPOINT_EVERY_STEPS": str(FOREVER)}
    ranks = job.start_ranks(make_plan((1, 1), sync=local(5), training=make_training(steps=FOREVER)), **settings)
    ranks[0].wait_for("step=6 ")
    ranks[1].popen.send_signal(signal.SIGTERM)
    assert [rank.wait() for rank in ranks] == [143, 143]
    last = max(ranks[0].losses())
    assert last % 5 == 0
    assert f"checkpoint step={last} " in ranks[0].output


def test_a_rank_told_to_stop_saves_the_last_outer_step_though_its_peer_has_left(
    job, make_plan, make_training, tmp_path: Path
):
    settings = {"HULK_CHECKPOINT_URL": f"file://{tmp_path}/checkpoints", "HULK_CHECKPOINT_EVERY_STEPS": str(FOREVER)}
    ranks = job.start_ranks(make_plan((1, 1), sync=local(5), training=make_training(steps=FOREVER)), **settings)
    ranks[0].wait_for("step=6 ")
    ranks[1].popen.send_signal(signal.SIGSTOP)
    ranks[0].popen.send_signal(signal.SIGTERM)
    ranks[1].popen.kill()
    assert ranks[0].wait() == 143
    last = max(ranks[0].losses())
    assert f"checkpoint step={last // 5 * 5} " in ranks[0].output


@pytest.mark.parametrize(
    ("sync", "expected"), [(None, None), (local(50), 50), ({"mode": "wan"}, None)], ids=["none", "local", "every step"]
)
def test_the_plan_says_how_long_a_round_is(make_plan, encode_plan, sync, expected):
    assert wire.decode(encode_plan(make_plan(sync=sync))).inner_steps == expected
