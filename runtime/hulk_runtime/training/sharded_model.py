"""A task whose model a replica's ranks divide -> the module of one rank, its layers sharded by torch's fully_shard."""

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


def shard(model: DividedModel, mesh: "DeviceMesh", precision: torch.dtype | None) -> None:
    """Shard its layers, and what is in none of them, over the ranks of a mesh.

    Gradients are summed, not averaged: losses are weighed. Layers are gathered in the precision of the training, and
    their gradients are reduced in that of the parameters. What goes from layer to layer is as autocast leaves it, as in
    a model that is not sharded: a residual stays in the parameters' precision.
    """
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard  # slow to import

    kind = next(model.module.parameters()).dtype
    policy = MixedPrecisionPolicy(param_dtype=precision, reduce_dtype=kind, cast_forward_inputs=False)
    for layer in model.layers:
        if precision is not None:
            _cast_inputs_of_norms(layer, precision)
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model.module, mesh=mesh)
    for module in model.module.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def _cast_inputs_of_norms(layer: nn.Module, precision: torch.dtype) -> None:
    """On CPUs autocast leaves norms as they are, and with parameters of few bits these take no others."""

    def cast(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(values.to(precision) if values.device.type == "cpu" else values for values in inputs)

    for module in layer.modules():
        if isinstance(module, nn.LayerNorm | nn.GroupNorm | nn.RMSNorm):
            module.register_forward_pre_hook(cast)
