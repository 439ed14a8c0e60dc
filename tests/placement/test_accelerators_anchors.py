"""The efficiency curve beside published training runs: figures of whole steps, by formulas of the same papers."""

from __future__ import annotations

import pytest
from hulk_placement.accelerators import look_up
from hulk_placement.cost.efficiency import layer_seconds, seconds
from hulk_placement.model import Layer

VALUE_BYTES, SCORE_BYTES = 2, 4


def block(hidden: int, heads: int, tokens: int) -> Layer:
    """A transformer's block: 12 h² parameters, 24 S h² + 4 S² h FLOPs; it keeps 16 h values a token, and the scores."""
    flops = 24.0 * tokens * hidden**2 + 4 * tokens**2 * hidden
    kept = 16 * tokens * hidden * VALUE_BYTES + heads * tokens**2 * SCORE_BYTES
    return Layer("block", 12 * hidden**2, flops, 2 * flops, 0, kept, 4 * tokens * hidden * VALUE_BYTES)


@pytest.mark.parametrize(
    ("product", "hidden", "heads", "tokens", "micro_batch", "tensor", "recomputed", "tflops", "others_at_most"),
    [
        # nv-adlr.github.io/MegatronLMV1: 1.2 B parameters on one V100; a step is blocks, head and optimizer
        ("Tesla-V100-SXM2-32GB", 1536, 16, 1024, 8, 1, 0, 62.4, 0.10),
        # arXiv 2104.04473, table 1: steps are also the all-reduces of tensor and data parallelism; each forward pass
        # is computed twice, and counted
        ("NVIDIA-A100-SXM4-80GB", 2304, 24, 2048, 16, 1, 1, 137, 0.20),
        ("NVIDIA-A100-SXM4-80GB", 3072, 32, 2048, 8, 2, 1, 138, 0.35),
        ("NVIDIA-A100-SXM4-80GB", 4096, 32, 2048, 4, 4, 1, 142, 0.35),
        ("NVIDIA-A100-SXM4-80GB", 6144, 48, 2048, 4, 8, 1, 135, 0.35),
    ],
)
def test_a_block_is_a_little_faster_than_a_whole_step_was(
    product: str,
    hidden: int,
    heads: int,
    tokens: int,
    micro_batch: int,
    tensor: int,
    recomputed: int,
    tflops: float,
    others_at_most: float,
) -> None:
    accelerator, layer = look_up(product), block(hidden, heads, tokens)
    assert accelerator is not None
    forward_s, backward_s = seconds(accelerator, "fp16", layer, micro_batch, tensor)
    flops = micro_batch * ((1 + recomputed) * layer.forward_flops + layer.backward_flops) / tensor
    reached = flops / ((1 + recomputed) * forward_s + backward_s)
    assert tflops <= reached / 1e12 <= tflops * (1 + others_at_most)


LLM_FOUNDRY = {  # hidden, layers
    "125m": (768, 12),
    "350m": (1024, 24),
    "760m": (1536, 24),
    "1b": (2048, 24),
    "3b": (2560, 32),
    "7b": (4096, 32),
    "13b": (5120, 40),
}


@pytest.mark.parametrize(
    ("product", "name", "micro_batch", "percent", "others_at_most"),
    [
        # github.com/mosaicml/llm-foundry, scripts/train/benchmarking: 8 accelerators (H100 760m and 3b: 16), 2048
        # tokens, bf16, nothing recomputed, no scores kept; "MFU" of whole steps of sharded data parallelism
        ("NVIDIA-A100-SXM4-80GB", "125m", 40, 44.79, 0.10),
        ("NVIDIA-A100-SXM4-80GB", "350m", 32, 51.62, 0.10),
        ("NVIDIA-A100-SXM4-80GB", "760m", 24, 56.85, 0.10),
        ("NVIDIA-A100-SXM4-80GB", "1b", 14, 59.86, 0.10),
        ("NVIDIA-A100-SXM4-80GB", "3b", 10, 62.11, 0.10),
        ("NVIDIA-A100-SXM4-80GB", "7b", 6, 64.23, 0.10),
        ("NVIDIA-A100-SXM4-80GB", "13b", 2, 59.57, 0.20),  # its shards are gathered for few tokens
        ("NVIDIA-H100-80GB-HBM3", "760m", 24, 37.89, 0.20),
        ("NVIDIA-H100-80GB-HBM3", "1b", 14, 41.82, 0.20),
        ("NVIDIA-H100-80GB-HBM3", "3b", 10, 43.73, 0.20),
        ("NVIDIA-H100-80GB-HBM3", "7b", 6, 46.44, 0.20),
        ("NVIDIA-H100-80GB-HBM3", "13b", 2, 39.79, 0.35),
    ],
)
def test_models_of_all_sizes_are_a_little_faster_than_whole_steps_were(
    product: str, name: str, micro_batch: int, percent: float, others_at_most: float
) -> None:
    (hidden, num_layers), accelerator = LLM_FOUNDRY[name], look_up(product)
    assert accelerator is not None
    tokens, vocabulary = 2048, 50368
    flops = 2.0 * tokens * vocabulary * hidden
    kept = tokens * (2 * hidden * VALUE_BYTES + 2 * vocabulary * SCORE_BYTES)
    head = Layer("head", vocabulary * hidden, flops, 2 * flops, 0, kept)
    layers = [*[block(hidden, 0, tokens)] * num_layers, head]
    passes = layer_seconds(accelerator, "bf16", layers, micro_batch)
    total = micro_batch * sum(layer.forward_flops + layer.backward_flops for layer in layers)
    reached = 100 * total / float(passes[0].sum() + passes[1].sum()) / accelerator.peak("bf16")
    assert percent <= reached <= percent * (1 + others_at_most)
