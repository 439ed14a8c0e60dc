"""The outer step: the mean of what the replicas have moved is a gradient, which moves where all of them began.

DiLoCo (Douillard et al., arXiv 2311.08105) takes SGD with Nesterov's momentum for it; any of torch's optimizers will
do. Hulk's own loop and scripts take the same step.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch

Factory = Callable[[list[torch.Tensor]], torch.optim.Optimizer]
"""What makes one of torch's optimizers, of parameters."""


@dataclass(frozen=True, slots=True)
class Outer:
    """The outer step's learning rate and momentum; 1 and 0 are the mean of the replicas' parameters."""

    learning_rate: float
    momentum: float

    def __post_init__(self) -> None:
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate) and 0 <= self.momentum < 1):
            raise ValueError(
                f"outer step: learning rate {self.learning_rate} must be > 0, momentum {self.momentum} in [0, 1)"
            )


DILOCO: Final = Outer(0.7, 0.9)
"""The paper's."""
AT_ONCE: Final = Outer(1.0, 0.5)


def outer_for(delay: int) -> Outer:
    """The default where sums are merged so many steps late, as plans have it (`hulk_placement.sync`).

    In a few dozen rounds DiLoCo's own momentum carries a model too far, unless late merges hold it back: measured, in
    docs/benchmarks/compression.md.
    """
    return DILOCO if delay else AT_ONCE


class Nesterov:
    """SGD with Nesterov's momentum m, v = m v + g, p = p - lr (g + m v), as torch.optim.SGD has it.

    With m 0.9, lr 1, from p = 0 with g = 1 twice: v = 1, p = -1.9; then v = 1.9, p = -1.9 - 2.71 = -4.61.
    """

    def __init__(self, parameters_N: torch.Tensor, momentum: float) -> None:
        self.states = [torch.zeros_like(parameters_N)]
        self._momentum = momentum

    def update(self, parameters_N: torch.Tensor, gradients_N: torch.Tensor, step: int, learning_rate: float) -> None:
        """One update in place."""
        (velocity_N,) = self.states
        velocity_N.mul_(self._momentum).add_(gradients_N)
        parameters_N.sub_(gradients_N, alpha=learning_rate).sub_(velocity_N, alpha=learning_rate * self._momentum)


class OuterStep(Protocol):
    """The outer step of one fragment."""

    def take(self, gradients_N: torch.Tensor) -> None:
        """Move the anchor in place."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds of it."""

    def load(self, state: dict[str, Any]) -> None:
        """Go on from there."""


class FlatStep:
    """Nesterov's momentum on the whole anchor at once."""

    def __init__(self, anchor_N: torch.Tensor, outer: Outer) -> None:
        self._anchor_N, self._outer = anchor_N, outer
        self._nesterov = Nesterov(anchor_N, outer.momentum)

    def take(self, gradients_N: torch.Tensor) -> None:
        """As `Nesterov.update`."""
        self._nesterov.update(self._anchor_N, gradients_N, 0, self._outer.learning_rate)

    def state(self) -> dict[str, Any]:
        """The velocity, of all parameters in one vector."""
        return {"velocity": self._nesterov.states[0]}

    def load(self, state: dict[str, Any]) -> None:
        """A copy."""
        self._nesterov.states[0].copy_(state["velocity"])


class TorchStep:
    """One of torch's optimizers, of the parameters as the model has them."""

    def __init__(self, pieces: Sequence[torch.Tensor], make: Factory) -> None:
        self._pieces = [torch.nn.Parameter(piece, requires_grad=False) for piece in pieces]
        self._optimizer = make([piece for piece in self._pieces if piece.numel()] or [*self._pieces])
        if not isinstance(self._optimizer, torch.optim.Optimizer):
            raise ValueError(f"outer: makes {type(self._optimizer).__name__}, not one of torch's optimizers")

    def take(self, gradients_N: torch.Tensor) -> None:
        """As the optimizer does, by gradients that are views of the vector."""
        parts = torch.split(gradients_N, [piece.numel() for piece in self._pieces])
        for piece, part_N in zip(self._pieces, parts, strict=True):
            piece.grad = part_N.view(piece.shape)
        self._optimizer.step()
        self._optimizer.zero_grad()

    def state(self) -> dict[str, Any]:
        """The optimizer's own."""
        return self._optimizer.state_dict()

    def load(self, state: dict[str, Any]) -> None:
        """The optimizer's own."""
        self._optimizer.load_state_dict(state)
