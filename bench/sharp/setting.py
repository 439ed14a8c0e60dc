"""The published setting, and what has to be assumed of it.

12 BERT-like models of 1 billion parameters on 8 devices of 11 GB (arXiv 2110.08633). Published: 7.46 times as fast as
model parallelism, GPipe 3.9 times; 1.85 hours, 4.8 without double buffering, 41.5 without alternation as well.

Assumed: fp32, plain gradient descent (the published system has no other), layers of width 1024 and an embedding,
mini-batches of 8 sequences of 512 tokens, 8 operations a parameter and token: every way makes activations again in the
backward pass, so that forward to backward is 1 to 3. A device as fast as needed for model parallelism to take
7.46 x 1.85 hours: this one number scales all hours and no ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.sharp.simulate import Work

NUM_MODELS: Final = 12
NUM_DEVICES: Final = 8
MEMORY_BYTES: Final = 11e9
PUBLISHED_RATIO: Final = 7.46
PUBLISHED_VIT_RATIO: Final = 7.36
PUBLISHED_GPIPE: Final = 3.9
PUBLISHED_H: Final = {"neither": 41.5, "one buffer": 4.8, "SHARP": 1.85}

WIDTH: Final = 1024
VOCABULARY: Final = 30_522
SEQUENCES: Final = 8
TOKENS: Final = SEQUENCES * 512
HEADS: Final = 16
DEVICE_FLOPS_PER_S: Final = 5.65e12
"""Half of what a GTX 1080 Ti of 11 GB has at most. It only decides what a copy takes beside a computation."""

PINNED_BYTES_PER_S: Final = 6e9
"""Host link with double buffering: pinned memory, PCIe 3.0 x16 (about 12 GB/s), shared by two devices."""

LAYER_PARAMETERS: Final = 12 * WIDTH**2 + 13 * WIDTH
LAYER_PARAMETER_BYTES: Final = 4 * LAYER_PARAMETERS
BOUNDARY_BYTES: Final = 4 * TOKENS * WIDTH
LAYER_ACTIVATION_BYTES: Final = 4 * TOKENS * (17 * WIDTH + 3 * HEADS * 512)
"""Inside one layer, while it goes backward."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Consecutive layers: their parameters, and those that a token is multiplied with."""

    num_layers: int
    parameter_bytes: float


def num_layers(parameters: float) -> int:
    """Of a model of so many parameters.

    >>> num_layers(1e9)
    77
    """
    return round((parameters - VOCABULARY * WIDTH) / LAYER_PARAMETERS)


def shards(layers: int) -> list[Shard]:
    """Layers are added until a device is full, as pilot runs do: parameters, gradients, and what is kept at each
    layer's begin, one layer's activations, and a slot for the parameters of the next.

    >>> [shard.num_layers for shard in shards(77)]
    [61, 16]
    """
    fixed_bytes = LAYER_ACTIVATION_BYTES + 3.0 * BOUNDARY_BYTES
    most = int((MEMORY_BYTES - fixed_bytes) // (3 * LAYER_PARAMETER_BYTES + BOUNDARY_BYTES))
    counts = [most] * (layers // most) + ([layers % most] if layers % most else [])
    return [Shard(count, count * float(LAYER_PARAMETER_BYTES)) for count in counts]


def forward_s(layers: int) -> float:
    """One mini-batch through so many layers."""
    return 2.0 * layers * LAYER_PARAMETERS * TOKENS / DEVICE_FLOPS_PER_S


def units(layers: int, steps: int, link_bytes_per_s: float) -> list[Work]:
    """A trial: parameters are brought in for each unit and home after a backward pass, with what goes on between."""
    cut = shards(layers)
    forward, backward = [], []
    for number, shard in enumerate(cut):
        kept_s = BOUNDARY_BYTES / link_bytes_per_s
        there_s, compute_s = shard.parameter_bytes / link_bytes_per_s, forward_s(shard.num_layers)
        forward.append(Work(number, there_s + kept_s, compute_s, kept_s))
        backward.append(Work(number, there_s + 2 * kept_s, 3 * compute_s, there_s + kept_s))
    return [*forward, *reversed(backward)] * steps


def gpipe_step_s(layers: int, num_micro_batches: int) -> float:
    """The slowest stage's micro-batches, after as many as there are stages before it.

    Stages have as equal numbers of layers as can be; a micro-batch is as efficient as a mini-batch.
    """
    slowest_s = 4 * forward_s(-(-layers // NUM_DEVICES)) / num_micro_batches
    return (num_micro_batches + NUM_DEVICES - 1) * slowest_s
