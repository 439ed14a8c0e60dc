"""A job as the planner sees it: a model to train, how, on how many machines, and where it may run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from hulk_placement import transformer
from hulk_placement.sync import Sync
from hulk_placement.topology import is_positive
from hulk_placement.transformer import BYTES_PER_FP32, Transformer

OPTIMIZER_BYTES_PER_PARAMETER = {"adamw": 2 * BYTES_PER_FP32, "sgd": 0}
PRECISIONS = tuple(transformer.BYTES_PER_ACTIVATION)


@dataclass(frozen=True, slots=True)
class Model:
    """What the planner must know of a model. `flops_per_sequence` is one forward and backward pass.

    Parameters, gradients and optimizer state are 4-byte values in every precision (torch.autocast keeps fp32 masters).
    """

    num_parameters: int
    flops_per_sequence: float
    activation_bytes_per_sequence: int
    shape: Transformer | None = None

    def __post_init__(self) -> None:
        positive = self.num_parameters >= 1 and is_positive(self.flops_per_sequence)
        if not positive or self.activation_bytes_per_sequence < 0:
            raise ValueError(
                f"model: {self.num_parameters} parameters and {self.flops_per_sequence} FLOPs a sequence must be > 0 "
                f"and finite, {self.activation_bytes_per_sequence} bytes of activations >= 0"
            )

    @classmethod
    def of(cls, shape: Transformer, precision: str = "fp32") -> Model:
        """The model of a transformer's dimensions, counted by `hulk_placement.transformer`."""
        return cls(
            num_parameters=transformer.num_parameters(shape),
            flops_per_sequence=transformer.flops_per_sequence(shape),
            activation_bytes_per_sequence=transformer.activation_bytes_per_sequence(shape, precision),
            shape=shape,
        )

    @property
    def gradient_bytes(self) -> int:
        """Bytes that one all-reduce of all gradients reduces."""
        return self.num_parameters * BYTES_PER_FP32

    def memory_bytes(self, micro_batch: int, optimizer: str) -> int:
        """Bytes one data-parallel rank holds at its peak.

        Parameters + gradients + the all-reduce's bucket copy of them, 4 bytes each; optimizer state (two moments for
        AdamW, none for plain SGD: Rajbhandari et al. 2020, arXiv 1910.02054, section 3.1); a micro-batch's activations.

        >>> Model(1000, 1.0, 500).memory_bytes(micro_batch=2, optimizer="adamw")
        21000
        """
        per_parameter = 3 * BYTES_PER_FP32 + OPTIMIZER_BYTES_PER_PARAMETER[optimizer]
        return self.num_parameters * per_parameter + micro_batch * self.activation_bytes_per_sequence


@dataclass(frozen=True, slots=True)
class Workload:
    """A model, its training configuration, and the machines its pods may run on.

    `candidates` maps the name of each such machine to how many of the job's workers its cpu, memory and pod slots
    admit (accelerators are counted by the planner). `flops_per_s` is the speed per accelerator measured with this very
    workload, by machine: it stands before the machine's own. `pins` are machine names in rank order; `regions` empty
    means any. `kept` says how many workers of an earlier plan wait on each machine: the topology does not count their
    accelerators as free, but for this workload they are. `micro_batch` None lets the planner choose. Higher `priority`
    goes first, then the older `created_s`.
    """

    key: str
    model: Model
    global_batch: int
    candidates: Mapping[str, int]
    min_workers: int = 1
    max_workers: int = 1
    accelerators_per_worker: int = 1
    attempt: int = 1
    created_s: float = 0.0
    priority: int = 0
    micro_batch: int | None = None
    precision: str = "fp32"
    optimizer: str = "adamw"
    pipeline: int = 1
    tensor: int = 1
    allow_unknown_links: bool = False
    pins: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    flops_per_s: Mapping[str, float] = field(default_factory=dict)
    kept: Mapping[str, int] = field(default_factory=dict)
    sync: Sync = field(default_factory=Sync)

    def __post_init__(self) -> None:
        if not 1 <= self.min_workers <= self.max_workers:
            raise ValueError(
                f"{self.key}: workers min {self.min_workers} and max {self.max_workers} must be 1 <= min <= max"
            )
        if self.accelerators_per_worker < 1 or self.global_batch < 1 or self.attempt < 1:
            raise ValueError(
                f"{self.key}: {self.accelerators_per_worker} accelerators a worker, global batch {self.global_batch} "
                f"and attempt {self.attempt} must be >= 1"
            )
        if self.micro_batch is not None and self.micro_batch < 1:
            raise ValueError(f"{self.key}: micro-batch {self.micro_batch} must be >= 1")
        for machine, flops_per_s in self.flops_per_s.items():
            if not is_positive(flops_per_s):
                raise ValueError(f"{self.key}: speed {flops_per_s} FLOP/s on {machine} must be > 0 and finite")
        if self.precision not in PRECISIONS or self.optimizer not in OPTIMIZER_BYTES_PER_PARAMETER:
            raise ValueError(f"{self.key}: precision {self.precision!r} or optimizer {self.optimizer!r} is not known")

    @property
    def digest(self) -> str:
        """What decides a rank's speed, hashed: model, precision, optimizer, micro-batch. 16 hex digits."""
        asked = [asdict(self.model), self.precision, self.optimizer, self.micro_batch]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]
