"""An emulated accelerator: what a rank computes is done no sooner than the accelerator would be done with it.

The processor computes everything, then the rank sleeps. Sums over ranks are outside of what is timed: they begin when
the accelerator is done, and take what loopback takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

BACKWARD = 2
"""Times as long as forward: twice as many matrices are multiplied."""


class Accelerator:
    """Of one rank. `late_s`: by how much the processor was slower, in sum; then it was not emulated."""

    def __init__(self, flops_per_s: float) -> None:
        self._flops_per_s = flops_per_s
        self._begun_s = self.late_s = 0.0

    def begin(self) -> None:
        """Something begins."""
        self._begun_s = time.perf_counter()

    def wait(self, flops: float) -> None:
        """Until it would be done with what began."""
        left_s = self._begun_s + flops / self._flops_per_s - time.perf_counter()
        self.late_s += max(0.0, -left_s)
        time.sleep(max(0.0, left_s))


class Timed(nn.Module):
    """A module with one tensor in and one out that takes as long as on the accelerator, and backwards.

    `flops_per_sample` are those of its forward pass. Further inputs, such as targets, have no gradients.
    """

    def __init__(self, inner: nn.Module, flops_per_sample: float, accelerator: Accelerator) -> None:
        super().__init__()
        self.inner = inner
        self._flops_per_sample, self._accelerator = flops_per_sample, accelerator

    def forward(self, x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        """What the module gives out."""
        flops = self._flops_per_sample * len(x)
        self._accelerator.begin()
        if x.requires_grad:
            x = _Passed.apply(x, lambda: self._accelerator.wait(BACKWARD * flops))
        out: torch.Tensor = self.inner(x, *more)
        self._accelerator.wait(flops)
        return _Passed.apply(out, self._accelerator.begin) if out.requires_grad else out


class _Passed(torch.autograd.Function):
    """Hands a value on, and its gradient, before which something is done."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, before: Callable[[], None]) -> torch.Tensor:
        ctx.before = before
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.before()
        return gradient, None
