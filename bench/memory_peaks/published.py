"""Peaks of accelerators' memory that others have measured and published, with the layout and the program of each.

BERT-large: Hugging Face's transformers documentation, "Efficient training on a single GPU", January 2022, one V100 with
16 GB: what nvidia-smi shows at the end of 512 sequences of 512 tokens. It measures 1,343 MiB of a process with one
tensor of one value.
LitGPT: "Resource tables", October 2023, LoRA of rank 8 on one A100 with 40 GB in bf16: torch's most bytes in tensors,
with Alpaca's longest sequence.
Megatron-LM: golden values of the functional tests at commit d98e8a64, August 2026, eight H100: torch's most bytes in
tensors of the last rank, which is of the last stage. Rows are those of Transformer Engine in bf16, one of each layout
and optimizer, without interleaved stages, experts, fp8, context parallelism, or a number of GPUs that is not stated.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

from hulk_placement.model import Architecture, Model, Trainable
from hulk_placement.model.architecture import Block, Embedding, Head, Kept, Names
from hulk_placement.model.hugging_face import from_config
from hulk_placement.model.parts import LAYER_NORM, Attention, FeedForward
from hulk_placement.training_memory import TrainingMemory

MIB = 1 << 20
ALLOCATED, DEVICE = "tensors", "device"
"""What was measured: torch.cuda.max_memory_allocated, or all that the driver counts."""


@dataclass(frozen=True, slots=True)
class Peak:
    """A published peak, and what is stated of the run."""

    source: str
    run: str
    measured: str
    peak_bytes: float
    product: str
    architecture: Architecture
    micro_batch: int
    precision: str
    optimizer: str = "adamw"
    data: int = 1
    pipeline: int = 1
    tensor: int = 1
    recompute: bool = False
    trainable: Trainable = field(default_factory=Trainable)
    kept: Kept = field(default_factory=Kept)
    memory: TrainingMemory = field(default_factory=TrainingMemory)

    def model(self, kept: Kept) -> Model:
        """The model, by what a program of it keeps."""
        return _model(self.architecture, self.precision, self.trainable, kept)


@cache
def _model(architecture: Architecture, precision: str, trainable: Trainable, kept: Kept) -> Model:
    return Model.of(replace(architecture, kept=kept), precision, trainable)


def peaks() -> tuple[Peak, ...]:
    """All of them."""
    return (*_bert_large(), *_litgpt(), *_megatron_small(), _megatron_7b())


BERT_LARGE = {
    "model_type": "bert",
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "max_position_embeddings": 512,
    "vocab_size": 30522,
    "attn_implementation": "eager",
}


def _bert_large() -> tuple[Peak, ...]:
    """(micro-batch, precision, optimizer, recomputed, MiB); one process, so no bucket."""
    rows = (
        (4, "fp32", "adamw", False, 14_949),
        (1, "fp32", "adamw", False, 8_681),
        (1, "fp32", "adamw", True, 6_775),
        (4, "fp16", "adamw", False, 13_939),
        (1, "fp16", "adamw", True, 7_275),
        (4, "fp32", "adafactor", False, 12_295),
        (1, "fp16", "adafactor", True, 4_847),
        (4, "fp32", "adamw-8bit", False, 13_085),
        (1, "fp16", "adamw-8bit", True, 5_363),
    )
    return tuple(
        Peak(
            source="transformers",
            run=f"BERT-large, {precision}, {optimizer}, {batch} x 512{', recomputed' if recompute else ''}",
            measured=DEVICE,
            peak_bytes=mib * MIB,
            product="Tesla-V100-SXM2-16GB",
            architecture=from_config(BERT_LARGE),
            micro_batch=batch,
            precision=precision,
            optimizer=optimizer,
            recompute=recompute,
            kept=Kept(has_dropout=True),
            memory=TrainingMemory(bucket_bytes=0, framework_bytes=1_343 * MIB),
        )
        for batch, precision, optimizer, recompute, mib in rows
    )


LLAMA_2_13B = {
    "model_type": "llama",
    "hidden_size": 5120,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "intermediate_size": 13824,
    "max_position_embeddings": 4096,
    "vocab_size": 32000,
}
LLAMA_2_7B = LLAMA_2_13B | {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
}
STABLELM_3B = {
    "model_type": "gpt_neox",
    "hidden_size": 4096,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "intermediate_size": 16384,
    "max_position_embeddings": 4096,
    "vocab_size": 50688,
    "use_parallel_residual": True,
}


LITGPT_LOGIT = 4
"""Chunks of logits and of their log-softmax, both kept in bf16."""

PHI_1_5 = {
    "model_type": "phi",
    "hidden_size": 2048,
    "num_hidden_layers": 24,
    "num_attention_heads": 32,
    "intermediate_size": 8192,
    "max_position_embeddings": 2048,
    "vocab_size": 51200,
}


def _litgpt() -> tuple[Peak, ...]:
    """(model, its config, tokens, trained parameters, micro-batch, GB); everything in bf16."""
    rows = (
        ("phi-1.5", PHI_1_5, 1_044, 1_572_864, 1, 4.82),
        ("phi-1.5", PHI_1_5, 1_044, 1_572_864, 2, 6.76),
        ("phi-1.5", PHI_1_5, 1_044, 1_572_864, 4, 10.68),
        ("StableLM 3B", STABLELM_3B, 1_034, 2_097_152, 1, 9.69),
        ("StableLM 3B", STABLELM_3B, 1_034, 2_097_152, 2, 12.10),
        ("StableLM 3B", STABLELM_3B, 1_034, 2_097_152, 4, 16.92),
        ("Llama 2 7B", LLAMA_2_7B, 1_304, 4_194_304, 1, 21.30),
        ("Llama 2 7B", LLAMA_2_7B, 1_304, 4_194_304, 2, 29.07),
        ("Llama 2 13B", LLAMA_2_13B, 1_304, 6_553_600, 1, 38.12),
    )
    return tuple(
        Peak(
            source="LitGPT",
            run=f"{name} LoRA, {batch} x {tokens:,}",
            measured=ALLOCATED,
            peak_bytes=gigabytes * 1e9,
            product="NVIDIA-A100-SXM4-40GB",
            architecture=from_config({**config, "sequence_length": tokens}),
            micro_batch=batch,
            precision="bf16",
            trainable=Trainable(num_trained / Model.of(from_config(config), "bf16").num_parameters),
            kept=Kept(logit_bytes=LITGPT_LOGIT),
            memory=TrainingMemory(weight_bytes=2, gradient_bytes=2, optimizer_bytes=4, bucket_bytes=0),
        )
        for name, config, tokens, num_trained, batch, gigabytes in rows
    )


def _gpt(
    layers: int, hidden: int, heads: int, groups: int, tokens: int, vocabulary: int, *, is_tied: bool
) -> Architecture:
    """Megatron's GPT: LayerNorm, biases, learned positions, an MLP of four widths with GELU."""
    attention = Attention(heads=heads, key_value_heads=groups, head_dim=hidden // heads, bias=True, output_bias=True)
    block = Block(attention=attention, mlp=FeedForward(width=4 * hidden, bias=True), norm=LAYER_NORM)
    return Architecture(
        hidden=hidden,
        vocabulary=vocabulary,
        sequence_length=tokens,
        names=Names(embedding="embedding", decoder="layers", head="output"),
        decoder=(block,) * layers,
        embedding=Embedding(positions=tokens),
        head=Head(norm=LAYER_NORM, matrix="tied" if is_tied else "own"),
    )


MEGATRON_LOGIT = 6
"""Two bytes of a logit in bf16 and four of its softmax, in whose place its gradient comes."""
MEGATRON_SCORE = 5
"""Where attention is not fused: softmax and its dropped-out copy in two bytes, and a mask (Korthikanti et al. 2022)."""


def _sixteen_bit(*, sharded: bool) -> TrainingMemory:
    """Two bytes of a weight, four of its gradient, twelve of its master copy and Adam's moments."""
    return TrainingMemory(
        weight_bytes=2,
        gradient_bytes=4,
        optimizer_bytes=12,
        bucket_bytes=0,
        sharded="optimizer" if sharded else "none",
    )


def _megatron_small() -> tuple[Peak, ...]:
    """(tensor, pipeline, whether the optimizer is sharded, recomputed, scores kept, head untied, GB); 64 million."""
    rows = (
        (1, 1, False, True, False, False, 2.561334272),
        (1, 1, True, False, False, False, 2.691792384),
        (1, 1, True, False, True, False, 4.70243072),
        (1, 2, False, False, False, False, 2.598238208),
        (1, 4, False, False, False, True, 2.210100224),
        (2, 2, False, False, False, False, 1.428171264),
        (4, 1, True, False, False, False, 1.041940992),
        (4, 1, True, False, True, False, 1.54341632),
        (4, 2, True, False, False, False, 0.844288512),
    )
    return tuple(
        Peak(
            source="Megatron-LM",
            run=_words("64M", tensor, pipeline, sharded=sharded, recompute=recompute) + ", scores kept" * scores,
            measured=ALLOCATED,
            peak_bytes=gigabytes * 1e9,
            product="NVIDIA-H100-80GB-HBM3",
            architecture=_gpt(12, 512, 8, 8, 1024, 50_304, is_tied=not untied),
            micro_batch=4,
            precision="bf16",
            data=8 // (tensor * pipeline),
            pipeline=pipeline,
            tensor=tensor,
            recompute=recompute,
            kept=Kept(has_dropout=True, score_bytes=MEGATRON_SCORE * scores, logit_bytes=MEGATRON_LOGIT),
            memory=_sixteen_bit(sharded=sharded),
        )
        for tensor, pipeline, sharded, recompute, scores, untied, gigabytes in rows
    )


def _megatron_7b() -> Peak:
    return Peak(
        source="Megatron-LM",
        run=_words("6.7B", 4, 1, sharded=True, recompute=False),
        measured=ALLOCATED,
        peak_bytes=57.143791616e9,
        product="NVIDIA-H100-80GB-HBM3",
        architecture=_gpt(32, 4096, 32, 8, 8192, 131_584, is_tied=False),
        micro_batch=2,
        precision="bf16",
        data=2,
        tensor=4,
        kept=Kept(has_dropout=True, score_bytes=0, logit_bytes=MEGATRON_LOGIT),
        memory=_sixteen_bit(sharded=True),
    )


def _words(size: str, tensor: int, pipeline: int, *, sharded: bool, recompute: bool) -> str:
    beside = (", sharded optimizer" if sharded else "") + (", recomputed" if recompute else "")
    return f"GPT {size}, tensor {tensor}, pipeline {pipeline}{beside}"
