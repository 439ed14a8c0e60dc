"""How much of its data sheet an accelerator reaches: seconds of a layer by micro-batch and tensor degree.

An assumption until it is measured: it ranks products and says about how long a step takes. A layer is taken as one
product of M rows with a square matrix of all its P parameters, whose columns t tensor-parallel ranks share:

    M = micro-batch x forward FLOPs / (2 P)      n = sqrt(P)      1 / I = 1 / M + 1 / n + t / n

I is the product's arithmetic intensity: multiply-adds per value that it reads or writes. Of the peak it reaches

    eff(I) = eff_max x I / (I + I_half),     I_half = eff_max x peak x bytes per value / (2 x memory bandwidth)

which is the roofline (Williams, Waterman and Patterson 2009) with its two terms added in place of the larger of them,
because a kernel loads before it computes. A mixture of experts has many parameters for its FLOPs, so few rows for each.
Beside the matrices there are operations that only move what is kept for the backward pass, and the launch of kernels.
No layer takes less time per sequence in a smaller micro-batch, nor less time of all ranks in a larger tensor degree.

eff_max is 0.75, and 0.6 of Hopper and Blackwell, whose power does not suffice for more. Anchors, all of whole training
steps (`tests/placement/test_accelerators_anchors.py`): Megatron on one V100, 62.4 TFLOP/s
(nv-adlr.github.io/MegatronLMV1), and on A100s, 135 to 142 (Narayanan et al. 2021, arXiv 2104.04473, table 1);
llm-foundry's benchmarks of 125 M to 13 B parameters, 45 to 64 % of the peak on A100s and 38 to 46 % on H100s. The
curve, which knows neither what ranks exchange nor the optimizer, is 4 to 17 % above them where that is little.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hulk_placement.accelerators.table import Accelerator
from hulk_placement.model import Layer

Floats = NDArray[np.float64]

BYTES_PER_VALUE = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}

FORWARD_MOVES, BACKWARD_MOVES = 2, 4
"""How often a kept value crosses the memory's bus: written, and read by the next kernel; read once more, its gradient
written and read, and as much as once for what lies between two kept values."""

LAUNCH_S = 5e-5
"""The launch of a layer's forward kernels: ten of 5 us. Its backward pass has twice as many."""


def layer_seconds(
    accelerator: Accelerator, precision: str, layers: Sequence[Layer], micro_batch: float, tensor: int = 1
) -> tuple[Floats, Floats]:
    """Forward and backward seconds of every layer, (layers,) each, for one micro-batch of so many sequences.

    With a tensor degree: what one rank computes, without the all-reduces between the ranks. ValueError unless the
    micro-batch is above 0 and the degree at least 1.
    """
    if not micro_batch > 0 or tensor < 1:
        raise ValueError(f"micro-batch {micro_batch} must be > 0 and tensor degree {tensor} >= 1")
    columns = np.array([_figures(layer) for layer in layers], dtype=np.float64).reshape(-1, 5).T
    parameters, forward_flops, backward_flops, split_bytes, whole_bytes = columns
    reached = _share(accelerator, precision, parameters, micro_batch * forward_flops, tensor)
    flops_s = micro_batch / tensor / (accelerator.peak(precision) * reached)
    bytes_s = micro_batch * (whole_bytes + split_bytes / tensor) / accelerator.memory_bandwidth_bytes_per_s
    return (
        forward_flops * flops_s + FORWARD_MOVES * bytes_s + LAUNCH_S,
        backward_flops * flops_s + BACKWARD_MOVES * bytes_s + 2 * LAUNCH_S,
    )


def seconds(
    accelerator: Accelerator, precision: str, layer: Layer, micro_batch: float, tensor: int = 1
) -> tuple[float, float]:
    """Forward and backward seconds of one layer; see `layer_seconds`."""
    forward_s, backward_s = layer_seconds(accelerator, precision, (layer,), micro_batch, tensor)
    return float(forward_s[0]), float(backward_s[0])


def _figures(layer: Layer) -> tuple[float, ...]:
    """Parameters that the layer uses, FLOPs, and the activation bytes that tensor-parallel ranks share or each keep."""
    whole_bytes = layer.replicated_activation_bytes
    split_bytes = layer.activation_bytes - whole_bytes
    used = layer.num_parameters + layer.tied_parameters
    return used, layer.forward_flops, layer.backward_flops, split_bytes, whole_bytes


def _share(accelerator: Accelerator, precision: str, parameters: Floats, flops: Floats, tensor: int) -> Floats:
    """Of the peak, what matrix products of these sizes reach. What has no parameters, or no FLOPs, is not held back."""
    per_row = np.divide(2 * parameters, flops, out=np.zeros_like(flops), where=flops > 0)
    per_column = np.divide(1 + tensor, np.sqrt(parameters), out=np.zeros_like(flops), where=parameters > 0)
    bytes_per_s = accelerator.memory_bandwidth_bytes_per_s
    half = accelerator.eff_max * accelerator.peak(precision) * BYTES_PER_VALUE[precision] / (2 * bytes_per_s)
    return accelerator.eff_max / (1 + half * (per_row + per_column))
