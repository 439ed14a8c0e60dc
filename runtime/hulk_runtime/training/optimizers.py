"""AdamW and SGD on flat vectors; Nesterov's momentum, of local SGD's outer step, is in `diloco.outer_step`.

torch.optim does the same per parameter, but constructing any of its optimizers imports torch's compiler: 3.6 CPU
seconds before the first step. On one flat vector an update is a handful of tensor operations.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import torch
from torch import nn

from hulk_runtime.pipeline.shared_parameters import local, local_gradient
from hulk_runtime.training.data_parallel import as_divided

BETA_1: Final = 0.9
BETA_2: Final = 0.999
EPSILON: Final = 1e-8
WEIGHT_DECAY: Final = 0.01


class Optimizer(Protocol):
    """`states` are the vectors that a checkpoint must hold beside the parameters."""

    states: list[torch.Tensor]

    def update(self, parameters_N: torch.Tensor, gradients_N: torch.Tensor, step: int, learning_rate: float) -> None:
        """One update in place; `step` counts from 1."""


class AdamW:
    """Decoupled weight decay (Loshchilov & Hutter, arXiv 1711.05101, algorithm 2), decay on all parameters."""

    def __init__(self, parameters_N: torch.Tensor) -> None:
        self.states = [torch.zeros_like(parameters_N), torch.zeros_like(parameters_N)]

    def update(self, parameters_N: torch.Tensor, gradients_N: torch.Tensor, step: int, learning_rate: float) -> None:
        """One update in place."""
        mean_N, square_N = self.states
        mean_N.lerp_(gradients_N, 1 - BETA_1)
        square_N.mul_(BETA_2).addcmul_(gradients_N, gradients_N, value=1 - BETA_2)
        denominator_N = square_N.div(1 - BETA_2**step).sqrt_().add_(EPSILON)
        parameters_N.mul_(1 - learning_rate * WEIGHT_DECAY)
        parameters_N.addcdiv_(mean_N, denominator_N, value=-learning_rate / (1 - BETA_1**step))


class Sgd:
    """Plain stochastic gradient descent: no state."""

    def __init__(self, parameters_N: torch.Tensor) -> None:
        self.states: list[torch.Tensor] = []

    def update(self, parameters_N: torch.Tensor, gradients_N: torch.Tensor, step: int, learning_rate: float) -> None:
        """One update in place."""
        parameters_N.sub_(gradients_N, alpha=learning_rate)


OPTIMIZERS: Final[dict[str, Callable[[torch.Tensor], Optimizer]]] = {"adamw": AdamW, "sgd": Sgd}


class OptimizerOfParts:
    """Updates named parameters, of each of which this rank may have a part: no optimizer here needs the whole."""

    def __init__(self, kind: str, parameters: Mapping[str, nn.Parameter]) -> None:
        self._parameters = parameters
        self._optimizers = {name: OPTIMIZERS[kind](local(one.detach())) for name, one in parameters.items()}

    @property
    def num_vectors(self) -> int:
        """The parameters, and what is kept of them."""
        return 1 + len(next(iter(self._optimizers.values())).states)

    def vector(self, number: int) -> dict[str, torch.Tensor]:
        """What this rank has of the parameters, 0, or of one of the vectors that a checkpoint must hold beside them."""
        if number:
            return {name: optimizer.states[number - 1] for name, optimizer in self._optimizers.items()}
        return {name: local(parameter.detach()) for name, parameter in self._parameters.items()}

    def state_dict(self) -> dict[str, torch.Tensor]:
        """All vectors by name, divided among ranks as the parameters are; those kept beside as `optimizer.0.<name>`."""
        found: dict[str, torch.Tensor] = {name: parameter.detach() for name, parameter in self._parameters.items()}
        for number in range(1, self.num_vectors):
            for name, values in self.vector(number).items():
                found[f"optimizer.{number - 1}.{name}"] = as_divided(values, self._parameters[name])
        return found

    def digest(self, step: int) -> bytes:
        """Of all bits that this rank has after a step."""
        found = hashlib.sha256(f"{step} ".encode())
        for number in range(self.num_vectors):
            for values in self.vector(number).values():
                found.update(values.cpu().numpy().tobytes())
        return found.digest()

    def update(self, step: int, learning_rate: float) -> None:
        """One update in place, by the gradients that the parameters have; `step` counts from 1."""
        for name, parameter in self._parameters.items():
            own = local(parameter.detach()), local_gradient(parameter)
            self._optimizers[name].update(*own, step, learning_rate)
