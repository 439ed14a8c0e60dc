"""A module -> the same one, of which each rank of a mesh has a shard: its layers are gathered one by one (fully_shard).

Gradients are summed, not averaged: losses are weighed. They are reduce-scattered in every backward pass, so that no
rank keeps whole ones from one micro-batch to the next.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from hulk_runtime.pipeline.stages import Layers

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def shard(
    module: nn.Module,
    layers: Sequence[nn.Module],
    mesh: "DeviceMesh",
    precision: torch.dtype | None,
    ends: Sequence[nn.Module] = (),
    reshard_after_forward: bool | None = None,
) -> None:
    """Shard its layers, and what is in none of them, over the ranks of a mesh.

    Layers are gathered in the precision of the training, and their gradients are reduced in that of the parameters.
    What goes from layer to layer is as autocast leaves it, as in a model that is not sharded: a residual stays in the
    parameters' precision. So do `ends`, such as an embedding: they are gathered as they are. `reshard_after_forward` is
    torch's, of what is in no layer.
    """
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard  # slow to import

    kind = next(module.parameters()).dtype
    policy = MixedPrecisionPolicy(param_dtype=precision, reduce_dtype=kind, cast_forward_inputs=False)
    for layer in layers:
        if precision is not None:
            _cast_inputs_of_norms(layer, precision)
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    for end in ends:
        fully_shard(end, mesh=mesh)
    fully_shard(module, mesh=mesh, reshard_after_forward=reshard_after_forward)
    for one in module.modules():
        if isinstance(one, FSDPModule):
            one.set_gradient_divide_factor(1.0)
            one.set_force_sum_reduction_for_comms(True)


def shard_stage(stage: nn.Module, mesh: "DeviceMesh", precision: torch.dtype | None) -> None:
    """Shard a stage, which is whole nowhere between two passes; of what is no list of layers all at once, as it is.

    The ends of the model's list, such as embedding and head, are gathered as they are. What several layers share is
    whole while the stage computes.
    """
    if next(stage.parameters(), None) is None:
        return
    layers, ends = (stage.layers, stage.ends) if isinstance(stage, Layers) else ({}, ())
    num_uses = Counter(id(parameter) for layer in layers.values() for parameter in layer.parameters())
    own = {
        number: layer
        for number, layer in layers.items()
        if {num_uses[id(parameter)] for parameter in layer.parameters()} == {1}
    }
    inner = [layer for number, layer in own.items() if number not in ends]
    outer = [layer for number, layer in own.items() if number in ends]
    shard(stage, inner, mesh, precision, outer, reshard_after_forward=True)


def _cast_inputs_of_norms(layer: nn.Module, precision: torch.dtype) -> None:
    """On CPUs autocast leaves norms as they are, and with parameters of few bits these take no others."""

    def lowered(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(values.to(precision) if values.device.type == "cpu" else values for values in inputs)

    for module in layer.modules():
        if isinstance(module, nn.LayerNorm | nn.GroupNorm | nn.RMSNorm):
            module.register_forward_pre_hook(lowered)
