"""A task whose model a replica's ranks divide, as whoever writes it says what each of them has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import nn

from hulk_runtime.pipeline.micro_batches import Values

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


@dataclass(frozen=True, slots=True)
class DividedModel:
    """A module of which tensor-parallel ranks have their parts.

    `layers` are gathered one by one, in their order; what is in none of them is whole throughout a pass. `whole`: the
    parameters of the undivided model, in its order, each with those of `module` whose rows, one after the other, it is.
    """

    module: nn.Module
    layers: Sequence[nn.Module]
    whole: Mapping[str, tuple[str, ...]]


class ShardedTask(Protocol):
    """What is trained by replicas of several ranks: the model, what it gets, and the loss of what it gives out."""

    @property
    def learning_rate(self) -> float:
        """Step size of the optimizer."""

    def divided(self, mesh: "DeviceMesh | None") -> DividedModel:
        """A new model, with the same parameters on every rank, divided among a mesh of tensor ranks; None: of one."""

    def inputs(self, step: int, sequences: range) -> Values:
        """Of sequences, numbered within the step's global batch. Must not depend on the rank."""

    def loss_of(self, step: int, outputs: Values, sequences: range) -> torch.Tensor:
        """Mean loss over `sequences`, by what the module gives out."""
