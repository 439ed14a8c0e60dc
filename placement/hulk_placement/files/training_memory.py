"""What a document says of the memory that a training takes <-> the planner's `TrainingMemory` and `Kept`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from hulk_placement.files.part import Amount, Count, OneOf, Part, Positive, plain
from hulk_placement.files.units import FRAMEWORK
from hulk_placement.model.architecture import AS_COUNTED, Kept
from hulk_placement.model.layer import BYTES_PER_FP32
from hulk_placement.training_memory import SHARDED, TrainingMemory

Share = Annotated[float, Field(gt=0, le=1)]
_EACH = {
    "weight_bytes": "weightBytes",
    "gradient_bytes": "gradientBytes",
    "optimizer_bytes": "optimizerBytes",
    "bucket_bytes": "bucketBytes",
}


class ActivationShare(Part):
    """What ranks that share layers keep, as it was measured."""

    tensor: Count
    """Tensor degree."""
    share: Share
    """The part of what one accelerator alone would keep of a layer's activations that each rank keeps."""


class MemoryPart(Part):
    """What a training takes of an accelerator; what is absent is assumed by product, optimizer and precision."""

    QUANTITIES: ClassVar[tuple[Any, ...]] = (FRAMEWORK,)

    framework_gibibytes: Amount | None = None
    """What a process takes besides tensors, GiB: CUDA context, libraries, NCCL's buffers; absent = by product."""
    framework_gigabytes: Amount | None = None
    """The same in 10^9 bytes."""
    framework_bytes: Amount | None = None
    """The same in bytes."""
    reserve_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """What torch's allocator holds beyond what tensors take, as a part of that; absent = 0.05 on GPUs."""
    bytes_per_parameter: Positive | None = None
    """Of each trained parameter, weights, gradients, optimizer and buckets in sum; instead of the four below."""
    weight_bytes: Amount | None = None
    """Weights, of each trained parameter; absent = 4, and with bf16 or fp16 the 2 of autocast's copy."""
    gradient_bytes: Amount | None = None
    """Gradients; absent = 4."""
    optimizer_bytes: Amount | None = None
    """Optimizer state, master weights among it where `weightBytes` is without them; absent = by the optimizer."""
    bucket_bytes: Amount | None = None
    """The copy of gradients that an all-reduce works on; absent = 4, as DDP has it."""
    sharded: Annotated[str, OneOf(SHARDED)] = "none"
    """What replicas divide, each with those before it (ZeRO 1 to 3, FSDP); counts where `parallelism.data` is given."""
    sequence_parallel: bool = False
    """Whether ranks that share layers also divide what surrounds the products."""
    activation_shares: tuple[ActivationShare, ...] = ()
    """What each rank keeps, by tensor degree, where it was measured; absent = counted."""
    dropout: bool = False
    """Whether dropout's masks are kept. This, bytesPerScore and bytesPerLogit are for models without a profile."""
    bytes_per_score: Amount | None = None
    """What attention keeps of each score; 0 = computed again (fused kernels); absent = as the model says."""
    bytes_per_logit: Amount | None = None
    """Of each logit with its softmax; absent = 8; a loss in chunks has 0."""

    @model_validator(mode="after")
    def _said_once(self) -> MemoryPart:
        given = self.given()
        parts = [key for key in _EACH.values() if key in given]
        if "bytesPerParameter" in given and parts:
            raise ValueError(f"bytesPerParameter is the sum of {' and '.join(parts)}: give the one or the other")
        degrees = [each.tensor for each in self.activation_shares]
        if len(set(degrees)) < len(degrees):
            raise ValueError(f"activationShares: tensor degree {max(degrees, key=degrees.count)} is there twice")
        return self


def to_memory(asked: MemoryPart | None) -> TrainingMemory:
    """What is stated; of a sum four bytes at most are weights and gradients each, and the rest is the optimizer's."""
    if asked is None:
        return TrainingMemory()
    each: dict[str, float | None] = {field: getattr(asked, field) for field in _EACH}
    if asked.bytes_per_parameter is not None:
        half = min(BYTES_PER_FP32, asked.bytes_per_parameter / 2)
        each = {
            "weight_bytes": half,
            "gradient_bytes": half,
            "optimizer_bytes": asked.bytes_per_parameter - 2 * half,
            "bucket_bytes": 0,
        }
    return TrainingMemory(
        **each,
        sharded=asked.sharded,
        is_sequence_parallel=asked.sequence_parallel,
        activation_shares=tuple((each.tensor, each.share) for each in asked.activation_shares),
        framework_bytes=asked.figure(FRAMEWORK),
        reserve_share=asked.reserve_share,
    )


def to_kept(asked: MemoryPart | None) -> Kept:
    """What a program keeps for the backward pass that the architecture leaves open."""
    if asked is None:
        return AS_COUNTED
    logit_bytes = AS_COUNTED.logit_bytes if asked.bytes_per_logit is None else asked.bytes_per_logit
    return Kept(has_dropout=asked.dropout, score_bytes=asked.bytes_per_score, logit_bytes=logit_bytes)


def memory_values(memory: TrainingMemory) -> dict[str, Any] | None:
    """The values that read back to the very same; None for nothing stated. What programs keep is in the model."""
    values: dict[str, Any] = dict(FRAMEWORK.write(memory.framework_bytes))
    stated = {key: getattr(memory, field) for field, key in _EACH.items()} | {"reserveShare": memory.reserve_share}
    values |= {key: plain(figure) for key, figure in stated.items() if figure is not None}
    if memory.sharded != "none":
        values["sharded"] = memory.sharded
    if memory.is_sequence_parallel:
        values["sequenceParallel"] = True
    if memory.activation_shares:
        values["activationShares"] = [{"tensor": tensor, "share": share} for tensor, share in memory.activation_shares]
    return values or None
