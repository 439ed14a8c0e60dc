"""What a training takes of an accelerator's memory as far as a user may state it; what is not stated is assumed.

of the model       bytes of each trained parameter: weights, gradients, optimizer, buckets; what of it is sharded
of a micro-batch   which part of activations each tensor-parallel rank keeps
of the framework   context, libraries, communication buffers, and what the allocator holds besides
of shards          layers whose parameters and gradients are whole for a while
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hulk_placement.accelerators.framework_memory import FrameworkMemory
from hulk_placement.model import OPTIMIZER_BYTES_PER_PARAMETER
from hulk_placement.model.layer import BYTES_PER_ACTIVATION, BYTES_PER_FP32, Layer
from hulk_placement.model.layers import OUTER_BYTES_PER_PARAMETER, SUM_BYTES_PER_PARAMETER
from hulk_placement.words import gib

SHARDED = ("none", "optimizer", "gradients", "parameters")
"""What replicas divide among them: each includes those before it (ZeRO's stages 1 to 3: Rajbhandari et al. 2020, arXiv
1910.02054, section 5; stage 1 is Megatron's distributed optimizer, stage 3 is FSDP)."""


@dataclass(frozen=True, slots=True)
class BytesPerParameter:
    """What one accelerator holds of each parameter that is trained and that it has."""

    weights: float
    gradients: float
    optimizer: float
    buckets: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.weights + self.gradients + self.optimizer + self.buckets


@dataclass(frozen=True, slots=True)
class Overhead:
    """What a process takes besides its tensors: so many bytes, and a share of what the tensors take.

    `gathered_bytes` are tensors too: layers of sharded parameters that are whole for a while (`cost.sharding`).

    >>> Overhead(10.0, 0.5).total(100.0), Overhead(10.0, 0.5).room(160.0)
    (160.0, 100.0)
    >>> Overhead(10.0, 0.5, 20.0).total(80.0), Overhead(10.0, 0.5, 20.0).room(160.0)
    (160.0, 80.0)
    """

    fixed_bytes: float = 0.0
    reserve_share: float = 0.0
    gathered_bytes: float = 0.0

    def total(self, tensor_bytes: float) -> float:
        """Bytes of the accelerator where tensors take so many."""
        held_bytes = tensor_bytes + self.gathered_bytes
        return held_bytes + self.fixed_bytes + self.reserve_share * held_bytes

    def words(self, tensor_bytes: float) -> str:
        """How much of the total is not the tensors', like ", 0.60 GiB of them the framework's and its allocator's"."""
        beside = self.total(tensor_bytes) - tensor_bytes - self.gathered_bytes
        return f", {gib(round(beside))} of them the framework's and its allocator's" if beside else ""

    def room(self, memory_bytes: float) -> float:
        """What is left for tensors of an accelerator's memory; a byte at least, infinite where 0 says: not known."""
        if not memory_bytes:
            return math.inf
        return max(1.0, (memory_bytes - self.fixed_bytes) / (1.0 + self.reserve_share) - self.gathered_bytes)


NO_OVERHEAD = Overhead()


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """What is stated; None is assumed.

    `weight_bytes`, `gradient_bytes`, `optimizer_bytes`, `bucket_bytes`: of each trained parameter. `sharded`: one of
    SHARDED. `is_sequence_parallel`: ranks that share layers also divide what surrounds the products (Korthikanti et al.
    2022, arXiv 2205.05198, equation 4). `activation_shares`: tensor degrees with the part of a layer's activations
    that each rank keeps, as it was measured. `framework_bytes`: besides the tensors; `reserve_share`: see Overhead.
    """

    weight_bytes: float | None = None
    gradient_bytes: float | None = None
    optimizer_bytes: float | None = None
    bucket_bytes: float | None = None
    sharded: str = "none"
    is_sequence_parallel: bool = False
    activation_shares: tuple[tuple[int, float], ...] = ()
    framework_bytes: float | None = None
    reserve_share: float | None = None

    def __post_init__(self) -> None:
        for name in ("weight_bytes", "gradient_bytes", "optimizer_bytes", "bucket_bytes", "framework_bytes"):
            stated = getattr(self, name)
            if stated is not None and not 0 <= stated < math.inf:
                raise ValueError(f"memory: {name} {stated} must be >= 0 and finite")
        if self.sharded not in SHARDED:
            raise ValueError(f"memory: sharded {self.sharded!r} must be one of {', '.join(SHARDED)}")
        if self.reserve_share is not None and not 0 <= self.reserve_share <= 1:
            raise ValueError(f"memory: the allocator's reserve, {self.reserve_share}, must be between 0 and 1")
        for tensor, share in self.activation_shares:
            if tensor < 1 or not 0 < share <= 1:
                raise ValueError(f"memory: share {share} of activations at tensor degree {tensor} must be > 0 and <= 1")

    def per_parameter(
        self,
        optimizer: str,
        precision: str,
        is_local: bool,
        data: int | None,
        shard: int = 1,
        in_flight: float = 0,
    ) -> BytesPerParameter:
        """The bytes by what is stated, else by the optimizer, its states in four bytes, and the precision.

        Weights and gradients have four bytes. In a shorter precision torch.autocast keeps a cast copy of the weights
        from the forward pass to the backward pass. The bucket is the copy that an all-reduce works on. What is sharded
        counts whole where the number of replicas is not known. Ranks of a shard group have neither copy nor bucket:
        layers are cast as they are gathered, and shards of gradients are summed where they are. Here they count whole.
        `in_flight`: the part of parameters that outer gradients and their sums are kept of while training goes on.

        >>> TrainingMemory().per_parameter("adamw", "fp32", is_local=False, data=None)
        BytesPerParameter(weights=4, gradients=4, optimizer=8, buckets=4)
        >>> zero = TrainingMemory(weight_bytes=2, optimizer_bytes=12, bucket_bytes=0, sharded="optimizer")
        >>> zero.per_parameter("adamw", "bf16", is_local=False, data=8)
        BytesPerParameter(weights=2, gradients=4, optimizer=1.5, buckets=0)
        """
        short, is_whole = BYTES_PER_ACTIVATION[precision], shard == 1
        copied = short if short < BYTES_PER_FP32 and is_whole else 0
        weights, gradients = _first(self.weight_bytes, BYTES_PER_FP32 + copied), self.gradient_bytes
        gradients, buckets = _first(gradients, BYTES_PER_FP32), _first(self.bucket_bytes, is_whole * BYTES_PER_FP32)
        states = _first(self.optimizer_bytes, OPTIMIZER_BYTES_PER_PARAMETER[optimizer])
        divided = SHARDED.index(self.sharded)
        parts = (states, gradients, weights)
        states, gradients, weights = (
            part / data if data is not None and data > 1 and number < divided else part
            for number, part in enumerate(parts)
        )
        buckets += in_flight * SUM_BYTES_PER_PARAMETER
        return BytesPerParameter(weights, gradients, states + is_local * OUTER_BYTES_PER_PARAMETER, buckets)

    def kept_bytes(self, layer: Layer, tensor: int) -> float:
        """Activations of a sequence that one of so many ranks keeps of a layer."""
        measured = dict(self.activation_shares).get(tensor)
        if measured is not None:
            return layer.activation_bytes * measured
        whole = 0 if self.is_sequence_parallel else layer.replicated_activation_bytes
        return whole + (layer.activation_bytes - whole) / tensor

    def input_bytes(self, layer: Layer, tensor: int) -> float:
        """What recomputation keeps of a sequence of the output of the layer before."""
        return layer.output_bytes / (tensor if self.is_sequence_parallel else 1)

    def overhead(self, framework: FrameworkMemory, num_channels: int) -> Overhead:
        """What a process takes besides tensors on an accelerator of so much framework memory, with NCCL's channels."""
        assumed = framework.context_bytes + framework.workspace_bytes
        assumed += num_channels * framework.channel_bytes
        return Overhead(
            float(_first(self.framework_bytes, assumed)), float(_first(self.reserve_share, framework.reserve_share))
        )


def gathered(layers: Sequence[Layer], precision: str, tensor: int = 1) -> float:
    """Bytes of sharded layers that are whole at the same time: two, one computes while the next one is gathered.

    Parameters in the precision, gradients in four bytes until they are reduce-scattered (Zhao et al. 2023, arXiv
    2304.11277, section 3.3: the next all-gather is issued before the current reduce-scatter, so one more layer is whole
    than computes). Of layers of 10, 30 and 20 parameters the last two:

    >>> layers = [Layer(str(n), n, 0.0, 0.0, 0, 0) for n in (10, 30, 20)]
    >>> gathered(layers, "fp32"), gathered(layers, "bf16"), gathered(layers[:1], "fp32")
    (400.0, 300.0, 80.0)
    """
    short = BYTES_PER_ACTIVATION[precision]
    each = [layer.num_parameters * short + layer.trained_parameters * BYTES_PER_FP32 for layer in layers]
    return max((a + b for a, b in pairwise(each)), default=sum(each)) / tensor


def _first(stated: float | None, assumed: float) -> float:
    return assumed if stated is None else stated
