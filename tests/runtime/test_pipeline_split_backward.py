"""Backward in two halves gives what backward gives, and computes no gradient of weights in its first half."""

import pytest
import torch
from hulk_runtime.pipeline.split_backward import Halves
from torch import nn


class TwoUses(nn.Module):
    """One weight, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.tanh(self.layer(x)))


class Apart(nn.Module):
    """A weight that no input has to do with, beside those that do."""

    def __init__(self) -> None:
        super().__init__()
        self.alone = nn.Parameter(torch.ones(4))
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.alone.exp()


def block() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4))


@pytest.mark.parametrize(
    ("make", "is_whole"), [(block, False), (Apart, False), (TwoUses, True), (nn.Tanh, False), (nn.Identity, False)]
)
def test_halves_equal_the_whole(make, is_whole):
    torch.manual_seed(0)
    module = make().double()
    given = torch.randn(3, 2, 4, dtype=torch.float64)
    x = given.clone().requires_grad_()
    module(x).square().sum().backward()
    expected = [x.grad, *(parameter.grad for parameter in module.parameters())]

    module.zero_grad()
    x = given.clone().requires_grad_()
    halves = Halves(module(x).square().sum(), (x,), list(module.parameters()))
    (found,) = halves.to_inputs()
    assert all(parameter.grad is None for parameter in module.parameters())
    halves.to_weights()
    assert halves._is_whole is is_whole
    for one, other in zip([found, *(parameter.grad for parameter in module.parameters())], expected, strict=True):
        assert (one - other).abs().max() < 1e-13
