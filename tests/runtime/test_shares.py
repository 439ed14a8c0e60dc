"""Unequal shares between real ranks: loss, gradients and parameters of one process that has the whole batch."""

from pathlib import Path

import pytest
from test_wan_training import wan

# Three ranks with 1, 2 and 5 of 8 sequences, two at a time, so that micro-batches are unequal too; three steps. Beside
# them one process in float64 with the whole batch.
PROGRAM = """
import copy, os, sys, torch
from types import SimpleNamespace
from hulk_runtime.collective import init_process_group
from hulk_runtime.job import environment
from hulk_runtime.plan import wire
from hulk_runtime.training.stepper import Stepper

torch.set_default_dtype(getattr(torch, sys.argv[1]))
tolerance = {"float64": 1e-12, "float32": 2e-6}[sys.argv[1]]
torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3))
whole = copy.deepcopy(module).double()

def loss_of(model, step, sequences, dtype):
    generator = torch.Generator().manual_seed(step)
    x, y = (torch.randn(8, n, generator=generator, dtype=torch.float64).to(dtype) for n in (5, 3))
    mine = slice(sequences.start, sequences.stop)
    return torch.nn.functional.mse_loss(model(x[mine]), y[mine])

def flat(values):
    return torch.cat([value.detach().double().reshape(-1) for value in values])

here, plan = environment.read(os.environ), wire.load(os.environ["HULK_PLAN"])
dtype = torch.get_default_dtype()
task = SimpleNamespace(module=module, learning_rate=0.05, loss=lambda step, mine: loss_of(module, step, mine, dtype))
with init_process_group.connect(here, plan) as group:
    assert (group.wan is not None) == (plan.algorithm == "wan")
    stepper = Stepper(plan, group, task, here.metrics_port)
    assert stepper.flat.gradients_N.dtype == dtype
    for step in (1, 2, 3):
        _, report = stepper.together(step, stop=False, save=False)
        loss = loss_of(whole, step, range(8), torch.float64)
        gradients = torch.autograd.grad(loss, list(whole.parameters()))
        expected = flat(gradients)
        assert torch.allclose(flat(p.grad for p in module.parameters()), expected, rtol=tolerance, atol=tolerance)
        with torch.no_grad():
            for parameter, gradient in zip(whole.parameters(), gradients):
                parameter -= 0.05 * gradient
        assert torch.allclose(flat(module.parameters()), flat(whole.parameters()), rtol=tolerance, atol=tolerance)
        assert abs(report.loss - float(loss)) < tolerance, (report.loss, float(loss))
    group.part()
print("as one process")
"""
SHARES = {"shares": [1, 2, 5]}


@pytest.mark.parametrize(
    ("algorithm", "dtype"), [("ring", "float64"), ("ring", "float32"), ("wan", "float32")]
)  # what is float64 Hulk's own all-reduce leaves to torch
def test_gradients_are_those_of_one_process(job, make_plan, make_training, algorithm: str, dtype: str) -> None:
    training = make_training(3, globalBatch=8, microBatch=2, optimizer="sgd")
    plan = make_plan((1, 1, 1), training=training, **SHARES, **(wan() if algorithm == "wan" else {}))
    for rank in job.run_ranks(plan, "-c", PROGRAM, dtype):
        assert "as one process\n" in rank.output


def test_a_run_that_resumes_with_other_shares_reads_the_same_sequences(job, make_plan, make_training, tmp_path: Path):
    """Eight steps at once; four with shares of 5 and 1, then the rest with 1, 3 and 2: the losses are the same."""
    whole = job.run_ranks(make_plan((1,), shares=[6], training=make_training(3, steps=8)))[0].losses()
    settings = {"HULK_CHECKPOINT_URL": f"file://{tmp_path}/checkpoints", "HULK_CHECKPOINT_EVERY_STEPS": "4"}
    before = job.run_ranks(make_plan((1, 1), shares=[5, 1], training=make_training(3, steps=4)), **settings)[0].losses()
    after = make_plan((1, 1, 1), attempt=2, shares=[1, 3, 2], training=make_training(3, steps=8))
    resumed = job.run_ranks(after, **settings)[0].losses()
    assert (list(before), list(resumed)) == ([1, 2, 3, 4], [5, 6, 7, 8])
    expected = [float(loss) for loss in whole.values()]
    assert [float(loss) for loss in [*before.values(), *resumed.values()]] == pytest.approx(expected, abs=2e-4)
