"""One layer of a model in the figures that a plan is made of: what it holds, computes, keeps and passes on.

Every count is of one sequence. Bytes follow the precision that the layer was counted for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

BYTES_PER_FP32 = 4
BYTES_PER_ACTIVATION = {"fp32": 4, "bf16": 2, "fp16": 2}
PRECISIONS = tuple(BYTES_PER_ACTIVATION)


@dataclass(frozen=True, slots=True)
class Layer:
    """What one layer costs.

    `name` is its prefix in the model's state dict ("model.layers.3"), which pins match. `num_parameters` are its own:
    those that it shares with an earlier layer, number `tied_to`, are counted there, and `tied_parameters` says how many
    they are. FLOPs, bytes: per sequence. `output_bytes` is what the next layer gets; its gradient has as many.
    `activation_bytes` are kept for the backward pass, and `replicated_activation_bytes` of them by each rank of a
    tensor-parallel group, which divides the others. Such a group all-reduces `tensor_bytes` in a forward pass, in
    `num_tensor_allreduces` pieces, and as many in a backward pass.
    """

    name: str
    num_parameters: int
    forward_flops: float
    backward_flops: float
    output_bytes: int
    activation_bytes: int
    replicated_activation_bytes: int = 0
    tensor_bytes: int = 0
    num_tensor_allreduces: int = 0
    tied_to: int | None = None
    tied_parameters: int = 0

    def __post_init__(self) -> None:
        flops = (self.forward_flops, self.backward_flops)
        if not all(0 <= figure < math.inf for figure in flops):
            raise ValueError(
                f"layer {self.name}: {flops[0]} forward and {flops[1]} backward FLOPs must be >= 0 and finite"
            )
        for field in _COUNTS:
            if getattr(self, field) < 0:
                raise ValueError(f"layer {self.name}: {field} {getattr(self, field)} must be >= 0")
        if self.replicated_activation_bytes > self.activation_bytes:
            raise ValueError(
                f"layer {self.name}: {self.replicated_activation_bytes} replicated bytes of activations are more than "
                f"all {self.activation_bytes}"
            )
        if (self.tied_to is None) != (self.tied_parameters == 0):
            raise ValueError(f"layer {self.name}: {self.tied_parameters} parameters tied to layer {self.tied_to}")


_COUNTS = (
    "num_parameters",
    "output_bytes",
    "activation_bytes",
    "replicated_activation_bytes",
    "tensor_bytes",
    "num_tensor_allreduces",
    "tied_parameters",
)
