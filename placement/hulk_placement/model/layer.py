"""One layer of a model in the figures that a plan is made of: what it holds, computes, keeps and passes on.

Every count is of one sequence. Bytes follow the precision that the layer was counted for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

BYTES_PER_FP32 = 4
BYTES_PER_ACTIVATION = {"fp32": 4, "bf16": 2, "fp16": 2}
PRECISIONS = tuple(BYTES_PER_ACTIVATION)


@dataclass(frozen=True, slots=True)
class Frozen:
    """Parameters of a layer that are not trained, those that it shares with an earlier one, and bytes of each."""

    num_parameters: int = 0
    tied_parameters: int = 0
    value_bytes: int = BYTES_PER_FP32


NOTHING_FROZEN = Frozen()


@dataclass(frozen=True, slots=True)
class Layer:
    """What one layer costs.

    `name` is its prefix in the model's state dict ("model.layers.3"), which pins match. `num_parameters` are its own:
    those that it shares with an earlier layer, number `tied_to`, are counted there, and `tied_parameters` says how many
    they are. FLOPs, bytes: per sequence. `output_bytes` is what the next layer gets; its gradient has as many.
    `activation_bytes` are kept for the backward pass, and `replicated_activation_bytes` of them by each rank of a
    tensor-parallel group, which divides the others. Such a group all-reduces `tensor_bytes` in a forward pass, in
    `num_tensor_allreduces` pieces, and as many in a backward pass. `frozen`: what of its parameters is not trained.
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
    frozen: Frozen = NOTHING_FROZEN

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
        if min(self.trained_parameters, self.trained_tied_parameters) < 0:
            raise ValueError(
                f"layer {self.name}: {self.frozen.num_parameters} frozen of {self.num_parameters} parameters, "
                f"{self.frozen.tied_parameters} of {self.tied_parameters} tied ones"
            )

    def of_length(self, ratio: float) -> Layer:
        """The same with figures of sequences so many times as long, in proportion."""
        return replace(
            self,
            forward_flops=self.forward_flops * ratio,
            backward_flops=self.backward_flops * ratio,
            output_bytes=round(self.output_bytes * ratio),
            activation_bytes=round(self.activation_bytes * ratio),
            replicated_activation_bytes=round(self.replicated_activation_bytes * ratio),
            tensor_bytes=round(self.tensor_bytes * ratio),
        )

    @property
    def trained_parameters(self) -> int:
        """Those of its own that have a gradient."""
        return self.num_parameters - self.frozen.num_parameters

    @property
    def trained_tied_parameters(self) -> int:
        """Those of an earlier layer that have a gradient here too."""
        return self.tied_parameters - self.frozen.tied_parameters

    def held_bytes(self, per_trained: float) -> float:
        """What its own parameters take: so many bytes each that is trained, its value alone each that is frozen."""
        return self.trained_parameters * per_trained + self.frozen.num_parameters * self.frozen.value_bytes

    def tied_held_bytes(self, per_trained: float) -> float:
        """The same of an earlier layer's."""
        return self.trained_tied_parameters * per_trained + self.frozen.tied_parameters * self.frozen.value_bytes


_COUNTS = (
    "num_parameters",
    "output_bytes",
    "activation_bytes",
    "replicated_activation_bytes",
    "tensor_bytes",
    "num_tensor_allreduces",
    "tied_parameters",
)
