"""The models of the real comparison: feed-forward blocks, alike but for their seeds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from hulk_runtime.sharp import Model, Trial
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hulk_runtime.sharp.trial import Batch


@dataclass(frozen=True, slots=True)
class Size:
    """Blocks of two linear layers, `width` to four times as wide and back, and the rows of a mini-batch."""

    width: int
    depth: int
    num_rows: int
    steps: int

    @property
    def flops(self) -> float:
        """Of the matrix products in all steps: forward, gradient of the weights and of the inputs."""
        first = 1 / 3 / (2 * self.depth)  # nobody needs the gradient of the first product's input
        return 3.0 * (1 - first) * self.steps * self.depth * 16 * self.width**2 * self.num_rows


class Block(nn.Module):
    """A feed-forward block beside a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows to rows."""
        inner: torch.Tensor = self.contract(functional.relu(self.expand(x)))
        return x + inner


def make(size: Size) -> Model:
    """The model."""
    blocks = [Block(size.width) for _ in range(size.depth)]
    return Model(blocks, functional.mse_loss, sgd, partial(batch, size))


def batch(size: Size, step: int) -> Batch:
    """Of a step."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(size.num_rows, size.width, generator=generator)
    return x, x.roll(1, 1)


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Plain gradient descent, which the published system has."""
    return torch.optim.SGD(parameters, lr=0.01)


def trials(size: Size, number: int) -> list[Trial]:
    """Some that differ by their seeds."""
    return [Trial(f"model-{i}", partial(make, size), size.steps, seed=i) for i in range(number)]
