"""A job as the planner sees it: a model to train, how, on how many machines, and where it may run."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hulk_placement.accelerators.framework_memory import FrameworkMemory, framework_memory
from hulk_placement.cost.fragments import fragment_shares, share_in_flight
from hulk_placement.layer_pins import LayerPin
from hulk_placement.model import OPTIMIZER_BYTES_PER_PARAMETER, PRECISIONS, Model
from hulk_placement.nccl import Nccl
from hulk_placement.sync import Sync
from hulk_placement.topology import Machine, is_amount, is_positive
from hulk_placement.training_memory import NO_OVERHEAD, BytesPerParameter, Overhead, TrainingMemory, gathered

OBJECTIVES = ("time", "throughput-per-money")
"""What a plan is to do best: take the least time for a step, or do the most sequences for its price."""

SCHEDULES = ("1f1b", "gpipe")
"""Usual orders of blocks: 1F1B holds few micro-batches; GPipe, which holds all, waits less for links between stages."""

SHARES = ("planned", "equal")
"""How a batch falls on unequal replicas: so that the slowest is quickest, or as equal as whole numbers allow."""

STAGE_TRANSPORTS = ("gloo", "nccl")
"""What stages send each other tensors over."""

END_COLLECTIVES = 2
"""Small all-reduces that end a step, where a workload does not say how many."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A model, its training configuration, and the machines its pods may run on.

    `candidates` maps the name of each such machine to how many of the job's workers its cpu, memory and pod slots admit
    (accelerators are counted by the planner). `flops_per_s` is the speed per accelerator measured with this very
    workload, by machine: it stands before the machine's own. `measured_micro_batch` is the one that it was measured
    with, where that is known. `likely_flops_per_s` is what other workloads on a machine lead to expect of this one:
    such a machine is not calibrated. `pins` are machine names in rank order; `regions` empty means any. `kept` says how
    many workers of an earlier plan wait on each machine: the topology does not count their accelerators as free, but
    for this workload they are. `shares` is one of SHARES. The planner chooses what is None of `micro_batch`,
    `recompute` and the degrees `data`, `pipeline`, `tensor` and `shard`; and the order of blocks in pipelines where
    `schedule` is, which else is one of SCHEDULES. With `stages_if_needed` it may have stages in place of one where no
    machine has the memory for a whole model, with `shards_if_needed` shards. `objective` is one of OBJECTIVES; a plan's
    accelerators together cost at most `max_price_per_hour`. `stage_transport` is one of STAGE_TRANSPORTS, None: NCCL
    where a plan's sums go over it, else gloo; `nccl` are NCCL's settings. `optimizer_s` are the seconds of an update
    where they are known, `step_overhead_s` what a step takes besides, `end_collectives` small all-reduces end it
    (`cost.overhead`). `sums_by_layer`: replicas of several ranks sum as torch's `fully_shard` does, each layer by
    itself (`cost.layer_sums`); so does a script of one's own, but not Hulk's training loop. Higher `priority` goes
    first, then the older `created_s`. `memory`: what is stated of the memory that a training takes. `num_steps` are
    those that are left to make, None where that is not known.
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
    shares: str = "planned"
    precision: str = "fp32"
    optimizer: str = "adamw"
    data: int | None = None
    pipeline: int | None = 1
    tensor: int | None = 1
    shard: int | None = 1
    schedule: str | None = None
    recompute: bool | None = None
    stages_if_needed: bool = False
    shards_if_needed: bool = False
    objective: str = "time"
    max_price_per_hour: float | None = None
    allow_unknown_links: bool = False
    pins: tuple[str, ...] = ()
    layer_pins: tuple[LayerPin, ...] = ()
    regions: tuple[str, ...] = ()
    flops_per_s: Mapping[str, float] = field(default_factory=dict)
    measured_micro_batch: Mapping[str, int] = field(default_factory=dict)
    likely_flops_per_s: Mapping[str, float] = field(default_factory=dict)
    kept: Mapping[str, int] = field(default_factory=dict)
    sync: Sync = field(default_factory=Sync)
    memory: TrainingMemory = field(default_factory=TrainingMemory)
    stage_transport: str | None = None
    nccl: Nccl = field(default_factory=Nccl)
    optimizer_s: float | None = None
    step_overhead_s: float = 0.0
    end_collectives: int = END_COLLECTIVES
    sums_by_layer: bool = False
    num_steps: float | None = None

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
        for machine, flops_per_s in (*self.flops_per_s.items(), *self.likely_flops_per_s.items()):
            if not is_positive(flops_per_s):
                raise ValueError(f"{self.key}: speed {flops_per_s} FLOP/s on {machine} must be > 0 and finite")
        for machine, micro_batch in self.measured_micro_batch.items():
            if micro_batch < 1:
                raise ValueError(f"{self.key}: speed on {machine} measured with micro-batch {micro_batch} must be >= 1")
        for name in ("data", "pipeline", "tensor", "shard"):
            degree = getattr(self, name)
            if degree is not None and degree < 1:
                raise ValueError(f"{self.key}: degree {name} {degree} must be >= 1")
        if self.memory.sharded != "none" and self.shard != 1:
            raise ValueError(
                f"{self.key}: memory sharded {self.memory.sharded} among all replicas and degree shard {self.shard} "
                "exclude each other"
            )
        if self.schedule is not None and self.schedule not in SCHEDULES:
            raise ValueError(f"{self.key}: schedule {self.schedule!r} must be one of {', '.join(SCHEDULES)}")
        if not self.model.shares_heads(self.tensor or 1):
            raise ValueError(f"{self.key}: {heads_words(self.model, self.tensor or 1)}")
        if self.sync.mode == "wan" and (self.pipeline or 1) > 1:
            raise ValueError(f"{self.key}: {wan_words(self.pipeline or 1)}")
        if self.shares not in SHARES:
            raise ValueError(f"{self.key}: shares {self.shares!r} must be one of {', '.join(SHARES)}")
        if self.objective not in OBJECTIVES:
            raise ValueError(f"{self.key}: objective {self.objective!r} must be one of {', '.join(OBJECTIVES)}")
        if self.max_price_per_hour is not None and not is_positive(self.max_price_per_hour):
            raise ValueError(f"{self.key}: at most {self.max_price_per_hour} an hour must be > 0 and finite")
        if self.stage_transport not in (None, *STAGE_TRANSPORTS):
            among = ", ".join(STAGE_TRANSPORTS)
            raise ValueError(f"{self.key}: stage transport {self.stage_transport!r} must be one of {among}")
        if not is_amount(self.optimizer_s or 0.0) or not is_amount(self.step_overhead_s) or self.end_collectives < 0:
            raise ValueError(
                f"{self.key}: an update of {self.optimizer_s} s, {self.step_overhead_s} s besides and "
                f"{self.end_collectives} small all-reduces must be >= 0 and finite"
            )
        if self.precision not in PRECISIONS or self.optimizer not in OPTIMIZER_BYTES_PER_PARAMETER:
            raise ValueError(f"{self.key}: precision {self.precision!r} or optimizer {self.optimizer!r} is not known")

    @property
    def goes_by_prices(self) -> bool:
        """Whether what machines cost decides, or limits, what is chosen: a machine without a price is not used then."""
        return self.objective != "time" or self.max_price_per_hour is not None

    @property
    def bytes_per_parameter(self) -> BytesPerParameter:
        """Of each trained parameter that an accelerator has; where the delay of a round is open, none."""
        sync, shard = self.sync, self.shard or 1
        in_flight = 0.0
        if sync.is_local and sync.rounds.least_delay:
            shares = fragment_shares(self.model.trained_sizes, sync.rounds.least_fragments)
            in_flight = share_in_flight(sync.inner_steps, sync.rounds.least_delay, shares)
        return self.memory.per_parameter(self.optimizer, self.precision, sync.is_local, self.data, shard, in_flight)

    def replica_bytes(self, micro_batch: int) -> int:
        """What the tensors of a rank that holds the whole model take at its peak; 0 where too little is known of it.

        Parameters, gradients, optimizer state and buckets, and the activations of a micro-batch.
        """
        if not self.model.is_counted:
            return 0
        kept = sum(self.memory.kept_bytes(layer, tensor=1) for layer in self.model.layers)
        return math.ceil(self.model.state_bytes(self.bytes_per_parameter.total) + micro_batch * kept)

    def overhead(
        self, framework: FrameworkMemory, tensor: int = 1, algorithm: str = "ring", shard: int = 1
    ) -> Overhead:
        """What a rank takes of an accelerator besides its tensors, by the framework memory of its product.

        Nothing where too little is known of the model. NCCL has a communicator of the ranks that share layers, one of
        those that shard them, and one of those that sum gradients with this algorithm, or pass activations on, where
        they do so over NCCL; gloo has no buffers there.
        """
        if not self.model.is_counted:
            return NO_OVERHEAD
        is_alone = self.max_workers * self.accelerators_per_worker == 1
        is_nccl = not is_alone and "nccl" in (algorithm, self.stage_transport)
        num_inside = (tensor > 1) + (shard > 1)
        num_channels = num_inside * framework.inside_channels + is_nccl * self.nccl.num_channels
        gathered_bytes = gathered(self.model.layers, self.precision, tensor) if shard > 1 else 0.0
        return replace(self.memory.overhead(framework, num_channels), gathered_bytes=gathered_bytes)

    def room_bytes(self, machine: Machine, tensor: int = 1, shard: int = 1) -> float:
        """What tensors may take of an accelerator of a machine; infinite where its memory is not known."""
        return self.overhead(framework_memory(machine.product), tensor, shard=shard).room(machine.memory_bytes)

    @property
    def digest(self) -> str:
        """What decides a rank's speed, hashed: the layers' figures, precision, optimizer, micro-batch. 16 hex digits.

        The names of layers do not count, nor what is sent between them.
        """
        figures = [
            (layer.num_parameters, float(layer.forward_flops), float(layer.backward_flops), layer.activation_bytes)
            for layer in self.model.layers
        ]
        asked = [figures, self.precision, self.optimizer, self.micro_batch]
        if self.model.num_trained < self.model.num_parameters:
            asked.append(self.model.num_trained)
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def replicas_words(data: int | None, micro_batch: int | None, global_batch: int, things: str = "replicas") -> str:
    """That so many replicas are more than a step has micro-batches; empty where they are not.

    >>> replicas_words(3, 2, 4)
    '3 replicas need a micro-batch each, and a global batch of 4 in micro-batches of 2 has 2'
    """
    each = min(micro_batch or 1, global_batch)
    num = math.ceil(global_batch / each)
    if data is None or data <= num:
        return ""
    batch = f"a global batch of {global_batch} in micro-batches of {each} has {num}"
    return f"{data} {things} need a micro-batch each, and {batch}"


def heads_words(model: Model, tensor: int) -> str:
    """That a tensor degree does not go with a model's heads."""
    return f"tensor degree {tensor} does not divide the model's {model.num_heads} attention heads"


def wan_words(pipeline: int) -> str:
    """That Hulk's own all-reduce does not go with stages."""
    return (
        f"sync mode wan and pipeline {pipeline} exclude each other: Hulk's own all-reduce sums the gradients of whole "
        "models, not of stages"
    )
