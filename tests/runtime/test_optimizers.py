"""The flat optimizers are torch's own, without their imports."""

import pytest
import torch
from hulk_runtime.diloco.outer_step import Nesterov
from hulk_runtime.training.optimizers import OPTIMIZERS

ALL = {**OPTIMIZERS, "nesterov": lambda p: Nesterov(p, momentum=0.9)}


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("adamw", lambda p: torch.optim.AdamW([p], lr=0.01)),
        ("sgd", lambda p: torch.optim.SGD([p], lr=0.01)),
        ("nesterov", lambda p: torch.optim.SGD([p], lr=0.01, momentum=0.9, nesterov=True)),
    ],
)
def test_updates_equal_torchs(name, reference):
    torch.manual_seed(0)
    ours = torch.randn(50)
    theirs = torch.nn.Parameter(ours.clone())
    optimizer, torchs = ALL[name](ours), reference(theirs)
    for step in range(1, 21):
        theirs.grad = torch.randn(50)
        optimizer.update(ours, theirs.grad, step, learning_rate=0.01)
        torchs.step()
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "num_states"), [("adamw", 2), ("sgd", 0)])
def test_no_gradient_and_no_learning_rate_changes_nothing(name, num_states):
    """What the preflight measurement relies on."""
    parameters = torch.randn(50)
    before = parameters.clone()
    optimizer = OPTIMIZERS[name](parameters)
    optimizer.update(parameters, torch.zeros(50), step=1, learning_rate=0.0)
    assert torch.equal(parameters, before)
    assert len(optimizer.states) == num_states
    assert all(not state.any() for state in optimizer.states)
