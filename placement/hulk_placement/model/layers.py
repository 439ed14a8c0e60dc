"""A model as the planner sees it: its layers in the order they run, and what they sum up to."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hulk_placement.model import transformer
from hulk_placement.model.architecture import Architecture
from hulk_placement.model.layer import BYTES_PER_FP32, Layer
from hulk_placement.model.times import LayerTimes
from hulk_placement.model.transformer import Transformer

OPTIMIZER_BYTES_PER_PARAMETER = {"adamw": 2 * BYTES_PER_FP32, "sgd": 0}
OUTER_BYTES_PER_PARAMETER = 2 * BYTES_PER_FP32
"""Of local SGD: from where the round began, and the outer velocity (Douillard et al. 2023, arXiv 2311.08105)."""

BACKWARD_SHARE = 2 / 3
"""Of the FLOPs of a forward and a backward pass (Kaplan et al. 2020, arXiv 2001.08361, section 2.1)."""


@dataclass(frozen=True, slots=True)
class Model:
    """The layers that are trained. `shape`: its dimensions where it is the GPT that Hulk brings along.

    `times`: measured seconds of the layers. FLOPs may be 0 only where there are such. `num_heads`: attention heads that
    ranks which share layers divide among them, of blocks with different numbers what divides all; None: not known.
    `is_counted`: whether its figures are those of the model; else only what it sends may be, and no memory is counted.
    Parameters, gradients and optimizer state are 4-byte values in every precision (torch.autocast keeps fp32 masters).
    """

    layers: tuple[Layer, ...]
    shape: Transformer | None = None
    times: LayerTimes | None = None
    num_heads: int | None = None
    is_counted: bool = True

    def __post_init__(self) -> None:
        if self.num_heads is not None and self.num_heads < 1:
            raise ValueError(f"model: {self.num_heads} attention heads must be >= 1")
        flops, least = self.flops_per_sequence, "> 0" if self.times is None else ">= 0"
        if self.num_parameters < 1 or not 0 <= flops < math.inf or (flops == 0 and self.times is None):
            raise ValueError(
                f"model: {self.num_parameters} parameters must be > 0, {flops} FLOPs a sequence must be {least} and "
                f"finite, in {self.num_layers} layers"
            )
        names = [layer.name for layer in self.layers]
        if len(set(names)) < len(names):
            again = next(name for number, name in enumerate(names) if name in names[:number])
            raise ValueError(f"model: more than one of {len(names)} layers has the name {again!r}")
        if self.times is not None and len(self.times.rows[0].forward_s) != len(self.layers):
            raise ValueError(f"model: times of {len(self.times.rows[0].forward_s)} layers, of {len(self.layers)}")
        for number, layer in enumerate(self.layers):
            self._require_tied(number, layer)

    def _require_tied(self, number: int, layer: Layer) -> None:
        if layer.tied_to is None:
            return
        if not 0 <= layer.tied_to < number or self.layers[layer.tied_to].num_parameters < layer.tied_parameters:
            raise ValueError(
                f"layer {layer.name}, number {number}: {layer.tied_parameters} parameters tied to layer "
                f"{layer.tied_to}, which must come before it and have as many"
            )

    @classmethod
    def of(cls, what: Transformer | Architecture, precision: str = "fp32") -> Model:
        """The model of a bundled GPT's dimensions, or of an architecture.

        An architecture with the bundled GPT's structure is counted as that GPT, under its own names.
        """
        if isinstance(what, Transformer):
            return cls(transformer.architecture(what).layers(precision), shape=what, num_heads=what.heads)
        shape = transformer.shape_of(what)
        if shape is not None:
            what = replace(transformer.architecture(shape), names=what.names)
        return cls(what.layers(precision), shape=shape, num_heads=what.num_heads)

    @classmethod
    def of_totals(cls, num_parameters: int, flops_per_sequence: float, activation_bytes_per_sequence: int = 0) -> Model:
        """A model of one layer, of which only sums are known. FLOPs are of a forward and a backward pass."""
        if not 0 < flops_per_sequence < math.inf:
            raise ValueError(f"model: {flops_per_sequence} FLOPs a sequence must be > 0 and finite")
        forward, backward = split_flops(flops_per_sequence)
        return cls((Layer("model", num_parameters, forward, backward, 0, activation_bytes_per_sequence),))

    def shares_heads(self, tensor: int) -> bool:
        """Whether so many ranks can have as many whole heads each; True where the heads are not known.

        >>> layer = Layer("block", 1, 1.0, 2.0, 0, 0)
        >>> [Model((layer,), num_heads=25).shares_heads(tensor) for tensor in (1, 2, 5)]
        [True, False, True]
        """
        return self.num_heads is None or self.num_heads % tensor == 0

    @property
    def num_layers(self) -> int:
        """How many layers there are, embedding and head among them."""
        return len(self.layers)

    @property
    def num_parameters(self) -> int:
        """Trained values; what layers share counts once."""
        return sum(layer.num_parameters for layer in self.layers)

    @property
    def flops_per_sequence(self) -> float:
        """Of one forward and backward pass."""
        return sum(layer.forward_flops + layer.backward_flops for layer in self.layers)

    @property
    def activation_bytes_per_sequence(self) -> int:
        """What one sequence keeps for its backward pass."""
        return sum(layer.activation_bytes for layer in self.layers)

    @property
    def gradient_bytes(self) -> int:
        """Bytes that one all-reduce of all gradients reduces."""
        return self.num_parameters * BYTES_PER_FP32

    def memory_bytes(self, micro_batch: int, optimizer: str, is_local: bool = False) -> int:
        """Bytes one data-parallel rank holds at its peak.

        Parameters + gradients + the all-reduce's bucket copy of them, 4 bytes each; optimizer state (two moments for
        AdamW, none for plain SGD: Rajbhandari et al. 2020, arXiv 1910.02054, section 3.1), that of local SGD where
        `is_local`; a micro-batch's activations.

        >>> Model.of_totals(1000, 1.0, 500).memory_bytes(micro_batch=2, optimizer="adamw")
        21000
        """
        if not self.is_counted:
            return 0
        per_parameter = 3 * BYTES_PER_FP32 + optimizer_bytes_per_parameter(optimizer, is_local)
        return self.num_parameters * per_parameter + micro_batch * self.activation_bytes_per_sequence


def optimizer_bytes_per_parameter(optimizer: str, is_local: bool) -> int:
    """What an optimizer keeps of each parameter, and the outer one of local SGD.

    >>> [optimizer_bytes_per_parameter(name, is_local) for name in ("adamw", "sgd") for is_local in (False, True)]
    [8, 16, 0, 8]
    """
    return OPTIMIZER_BYTES_PER_PARAMETER[optimizer] + is_local * OUTER_BYTES_PER_PARAMETER


def split_flops(flops: float) -> tuple[float, float]:
    """FLOPs of a forward and a backward pass as those of each, whose sum is the same to the last bit.

    >>> split_flops(300)
    (100.0, 200.0)
    """
    backward = flops * BACKWARD_SHARE
    return flops - backward, backward
