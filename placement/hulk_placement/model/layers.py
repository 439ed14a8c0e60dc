"""A model as the planner sees it: its layers in the order they run, and what they sum up to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum

from hulk_placement.model import transformer
from hulk_placement.model.architecture import EVERYTHING, Architecture
from hulk_placement.model.layer import BYTES_PER_ACTIVATION, BYTES_PER_FP32, Layer
from hulk_placement.model.times import LayerTimes
from hulk_placement.model.trainable import Trainable, partly_frozen
from hulk_placement.model.transformer import Transformer

OPTIMIZER_BYTES_PER_PARAMETER = {
    "adamw": 2 * BYTES_PER_FP32,
    "adam": 2 * BYTES_PER_FP32,
    "sgd": 0,
    "sgd-momentum": BYTES_PER_FP32,
    "adamw-bf16": 4,
    "adamw-8bit": 2,
    "adafactor": 0,
}
"""What each keeps of a parameter: Adam two moments, SGD one or none (Rajbhandari et al. 2020, arXiv 1910.02054, section
3.1); in blocks of eight bits a byte each (Dettmers et al. 2022, arXiv 2110.02861); Adafactor sums of rows and columns,
which do not count (Shazeer and Stern 2018, arXiv 1804.04235)."""
OUTER_BYTES_PER_PARAMETER = 2 * BYTES_PER_FP32
"""Of local SGD: from where the round began, and the outer velocity (Douillard et al. 2023, arXiv 2311.08105)."""

SUM_BYTES_PER_PARAMETER = 2 * BYTES_PER_FP32
"""Of one whose sum is under way: a replica's own outer gradient, and what becomes the sum."""

BACKWARD_SHARE = 2 / 3
"""Of the FLOPs of a forward and a backward pass (Kaplan et al. 2020, arXiv 2001.08361, section 2.1)."""


class Known(StrEnum):
    """How much of a model is known; the rest of its figures are stand-ins, of which no plan speaks.

    RANK and SEQUENCE: bytes of gradients and seconds of compute were measured, but neither layers nor memory. By RANK a
    rank computes as much whatever its share of the batch, as where a script has a batch for each rank.
    """

    TRAFFIC = "traffic"
    RANK = "traffic and the compute of a rank"
    SEQUENCE = "traffic and the compute of a sequence"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Source:
    """What a model was counted from."""

    architecture: Architecture
    precision: str
    trainable: Trainable


@dataclass(frozen=True, slots=True)
class Model:
    """The layers that are trained. `shape`: its dimensions where it is the GPT that Hulk brings along.

    `sequence_length`: tokens of a training sequence, 0 where that is not known. `source`: what it was counted from,
    None of a profile. `notes`: sentences that a user should know of how it was counted.
    `times`: measured seconds of the layers. FLOPs may be 0 only where there are such. `num_heads`: attention heads that
    ranks which share layers divide among them, of blocks with different numbers what divides all; None: not known.
    `known`: how much of its figures is the model's own; memory is counted only where that is all.
    Parameters, gradients and optimizer state are 4-byte values in every precision (torch.autocast keeps fp32 masters).
    """

    layers: tuple[Layer, ...]
    shape: Transformer | None = None
    times: LayerTimes | None = None
    num_heads: int | None = None
    sequence_length: int = field(default=0, compare=False)
    source: Source | None = field(default=None, compare=False, repr=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    known: Known = Known.ALL

    def __post_init__(self) -> None:
        if self.num_heads is not None and self.num_heads < 1:
            raise ValueError(f"model: {self.num_heads} attention heads must be >= 1")
        flops, least = self.flops_per_sequence, "> 0" if self.times is None else ">= 0"
        if self.num_parameters < 1 or not 0 <= flops < math.inf or (flops == 0 and self.times is None):
            raise ValueError(
                f"model: {self.num_parameters} parameters must be > 0, {flops} FLOPs a sequence must be {least} and "
                f"finite, in {self.num_layers} layers"
            )
        if self.num_trained < 1:
            raise ValueError(f"model: none of {self.num_parameters:,} parameters is trained")
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
    def of(cls, what: Transformer | Architecture, precision: str = "fp32", trainable: Trainable = EVERYTHING) -> Model:
        """The model of a bundled GPT's dimensions, or of an architecture.

        An architecture with the bundled GPT's structure is counted as that GPT, under its own names.
        """
        described = transformer.architecture(what) if isinstance(what, Transformer) else what
        shape = transformer.shape_of(described)
        bundled = shape and replace(transformer.architecture(shape), names=described.names, kept=described.kept)
        counted = bundled or described
        return cls(
            counted.layers(precision, trainable),
            shape=shape,
            num_heads=counted.num_heads,
            sequence_length=counted.sequence_length,
            source=Source(counted, precision, trainable),
            notes=described.notes,
        )

    @classmethod
    def of_totals(cls, num_parameters: int, flops_per_sequence: float, activation_bytes_per_sequence: int = 0) -> Model:
        """A model of one layer, of which only sums are known. FLOPs are of a forward and a backward pass."""
        if not 0 < flops_per_sequence < math.inf:
            raise ValueError(f"model: {flops_per_sequence} FLOPs a sequence must be > 0 and finite")
        forward, backward = split_flops(flops_per_sequence)
        return cls((Layer("model", num_parameters, forward, backward, 0, activation_bytes_per_sequence),))

    def at_length(self, tokens: int) -> Model:
        """The same for training sequences of so many tokens.

        What is counted is counted anew; the figures of a profile change in proportion. ValueError where a profile does
        not say of how many tokens its figures are.
        """
        if tokens == self.sequence_length:
            return self
        if self.source is not None:
            return Model.of(self.source.architecture.at_length(tokens), self.source.precision, self.source.trainable)
        if not self.sequence_length:
            raise ValueError(
                f"sequences of {tokens:,} tokens beside a profile that does not say of how many its figures are; add "
                "sequenceLength to the profile"
            )
        ratio = tokens / self.sequence_length
        times = self.times and LayerTimes(tuple(row.times(ratio) for row in self.times.rows))
        layers = tuple(layer.of_length(ratio) for layer in self.layers)
        return replace(self, layers=layers, times=times, sequence_length=tokens)

    def shares_heads(self, tensor: int) -> bool:
        """Whether so many ranks can have as many whole heads each; True where the heads are not known.

        >>> layer = Layer("block", 1, 1.0, 2.0, 0, 0)
        >>> [Model((layer,), num_heads=25).shares_heads(tensor) for tensor in (1, 2, 5)]
        [True, False, True]
        """
        return self.num_heads is None or self.num_heads % tensor == 0

    @property
    def is_counted(self) -> bool:
        """Whether all its figures are the model's own."""
        return self.known is Known.ALL

    @property
    def is_timed(self) -> bool:
        """Whether times can be predicted."""
        return self.known is not Known.TRAFFIC

    @property
    def num_layers(self) -> int:
        """How many layers there are, embedding and head among them."""
        return len(self.layers)

    @property
    def num_parameters(self) -> int:
        """Of all layers; what layers share counts once."""
        return sum(layer.num_parameters for layer in self.layers)

    @property
    def num_trained(self) -> int:
        """Those that have a gradient."""
        return sum(layer.trained_parameters for layer in self.layers)

    def training(self, trainable: Trainable, precision: str) -> Model:
        """The same of which only a part is trained, where no more than layers is known of it: a profile's."""
        layers = partly_frozen(self.layers, trainable, BYTES_PER_ACTIVATION[precision])
        return replace(self, layers=layers)

    def without_activations(self) -> Model:
        """The same, of which nothing is kept for a backward pass."""
        bare = (replace(layer, activation_bytes=0, replicated_activation_bytes=0) for layer in self.layers)
        return replace(self, layers=tuple(bare))

    def state_bytes(self, per_trained: float) -> float:
        """So many bytes of each parameter that is trained, and the values of the frozen ones."""
        return sum(layer.held_bytes(per_trained) for layer in self.layers)

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
        return self.num_trained * BYTES_PER_FP32

    @property
    def trained_sizes(self) -> dict[str, int]:
        """Parameters that have a gradient, of each layer that has any."""
        return {layer.name: layer.trained_parameters for layer in self.layers if layer.trained_parameters}


def split_flops(flops: float) -> tuple[float, float]:
    """FLOPs of a forward and a backward pass as those of each, whose sum is the same to the last bit.

    >>> split_flops(300)
    (100.0, 200.0)
    """
    backward = flops * BACKWARD_SHARE
    return flops - backward, backward
