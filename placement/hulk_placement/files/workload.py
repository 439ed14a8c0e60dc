"""The document `workload.yaml`: a model, how it is trained, and what a plan may do."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from hulk_placement.files.part import (
    API_VERSION,
    MOST_BLOCKS,
    Amount,
    Batch,
    Bytes,
    Count,
    Either,
    Name,
    Number,
    OneOf,
    Part,
    Positive,
)
from hulk_placement.files.profile import GroupedProfile
from hulk_placement.files.training_memory import MemoryPart
from hulk_placement.files.units import FlopsPerSecond
from hulk_placement.model import OPTIMIZER_BYTES_PER_PARAMETER, PRECISIONS
from hulk_placement.model.presets import PRESETS
from hulk_placement.nccl import ALGORITHMS, PROTOCOLS
from hulk_placement.sync import COMPRESSIONS, ENCRYPTIONS, MODES, ON_REGION_LOSS
from hulk_placement.workload import END_COLLECTIVES, SCHEDULES, SHARES, STAGE_TRANSPORTS

Names = Annotated[tuple[Name, ...], Field(min_length=1)]
Width = Annotated[int, Field(ge=1, le=1 << 20)]
"""Of a layer: 1,048,576, fifty times as wide as any that was trained."""
Tokens = Annotated[int, Field(ge=1, le=1 << 26)]
"""Of a sequence or a vocabulary: 67,108,864."""


class Dimensions(Part):
    """A GPT by its dimensions: the one that Hulk's own training script trains."""

    layers: Annotated[int, Field(ge=1, le=MOST_BLOCKS)]
    """Blocks; the embedding and the head are layers of their own, before and after them."""
    hidden: Width
    """Width."""
    heads: Width
    """Attention heads."""
    sequence_length: Tokens
    """Tokens of a sequence."""
    vocabulary: Tokens
    """Tokens that there are."""
    feed_forward: Width | None = None
    """Width inside the MLP; absent = 4 x hidden."""


class TrainablePart(Part):
    """Which parameters are trained: the others have no gradient, no optimizer state and no all-reduce."""

    EITHER: ClassVar[tuple[Either, ...]] = (Either("what is trained", ("parameters", "share"), required=True),)

    parameters: Names | None = None
    """Patterns of their names in the state dict, such as `*.q_proj.weight` or `lm_head`."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """The part of all parameters, as LoRA's are 0.005 of them."""


class ModelPart(Part):
    """What is trained, in one of several ways."""

    EITHER: ClassVar[tuple[Either, ...]] = (
        Either(
            "the model",
            ("preset", "transformer", "huggingFace", "configFile", "profile", "profileFile"),
            required=True,
        ),
    )

    preset: Annotated[str, OneOf(tuple(PRESETS))] | None = None
    """A published model by name."""
    transformer: Dimensions | None = None
    """A GPT by its dimensions."""
    hugging_face: dict[str, Any] | None = None
    """What a Hugging Face `config.json` holds."""
    config_file: str | None = None
    """A Hugging Face `config.json`; its path begins where this document is."""
    profile: GroupedProfile | None = None
    """Layers as they were measured."""
    profile_file: str | None = None
    """A file with such layers (`layers:`, `times:`); its path begins where this document is."""
    sequence_length: Tokens | None = None
    """Tokens of a training sequence; absent = as many as the model could have, or as many as the profile is of."""
    trainable: TrainablePart | None = None
    """What of it is trained; absent = all."""


class Training(Part):
    """How it is trained."""

    global_batch: Batch
    """Sequences of one optimizer step."""
    micro_batch: Count | None = None
    """Sequences that an accelerator computes at a time; absent = the plan chooses."""
    precision: Annotated[str, OneOf(PRECISIONS)] = "fp32"
    """Of activations and products; parameters, gradients and optimizer state have four bytes unless `memory` says."""
    optimizer: Annotated[str, OneOf(tuple(OPTIMIZER_BYTES_PER_PARAMETER))] = "adamw"
    """What it keeps for each parameter: adamw and adam two values, sgd-momentum one, sgd and adafactor none."""
    shares: Annotated[str, OneOf(SHARES)] = "planned"
    """How the batch falls on unequal replicas: so that the slowest is quickest (planned), or as many each (equal)."""
    steps: Count | None = None
    """Optimizer steps of the whole training; they say how long it takes and what it costs."""
    recompute: bool | None = None
    """Whether the backward pass computes activations anew; absent = the plan chooses."""
    memory: MemoryPart | None = None
    """What it takes of an accelerator's memory, where that is known better than by product, optimizer and precision."""
    stage_transport: Annotated[str, OneOf(STAGE_TRANSPORTS)] | None = None
    """What pipeline stages send each other tensors over; absent = nccl in plans whose sync is nccl, else gloo."""
    optimizer_seconds: Amount | None = None
    """What the optimizer's update takes in a step; absent = with NCCL by the bytes that it moves over the accelerators'
    memory bandwidth, else not counted."""
    step_overhead_seconds: Amount = 0
    """What a step takes besides, however many micro-batches it has: loading data, barriers, logging."""
    small_all_reduces: Annotated[int, Field(ge=0, le=1000)] = END_COLLECTIVES
    """All-reduces of a single value over a pipeline's ranks that end a step over NCCL: overflow and norm of the
    gradients in Megatron-LM and DeepSpeed, barriers in others. Each takes the links' latencies."""


class NcclPart(Part):
    """NCCL's settings, as its environment variables have them; see the log of NCCL_DEBUG=INFO for those in force."""

    algorithm: Annotated[str, OneOf(ALGORITHMS)] | None = None
    """NCCL_ALGO; absent = what NCCL's tuner takes."""
    protocol: Annotated[str, OneOf(tuple(PROTOCOLS))] | None = None
    """NCCL_PROTO; absent = what NCCL's tuner takes."""
    channels: Annotated[int, Field(ge=1, le=64)] = 2
    """Channels, each with a connection of its own to a peer (NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS)."""
    sockets_per_channel: Annotated[int, Field(ge=1, le=64)] = 1
    """NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD: 16 on AWS, 4 on Google's gVNIC, else 1, if not set."""
    buffer_bytes: Annotated[int, Field(ge=1 << 10, le=1 << 40)] = 4 << 20
    """NCCL_BUFFSIZE."""
    window_bytes: Annotated[int, Field(ge=1 << 10, le=1 << 40)] = 4 << 20
    """What a socket has in flight at most: the last figure of net.ipv4.tcp_wmem. It counts in all-reduces."""


class Parallelism(Part):
    """Degrees that are fixed; the plan chooses those that are absent."""

    data: Count | None = None
    """Replicas of the model."""
    pipeline: Count | None = None
    """Stages of each."""
    tensor: Count | None = None
    """Accelerators of one machine that share each layer."""
    shard: Count = 1
    """Ranks that divide a replica's parameters among them (FSDP), in one machine or on alike ones of a region."""
    schedule: Annotated[str, OneOf(SCHEDULES)] | None = None
    """The order of blocks in a pipeline; absent = searched for the links, where that is better."""


class Workers(Part):
    """How many workers (pods) a plan may have."""

    min: Count = 1
    """Fewest."""
    max: Count | None = None
    """Most; absent = as many as there is room for."""
    accelerators_per_worker: Count = 1
    """Accelerators of each, all on one machine; with 1 the limits are of accelerators."""


class SyncPart(Part):
    """How replicas bring their gradients together."""

    mode: Annotated[str, OneOf(MODES)] = "auto"
    """The stock ring, Hulk's own all-reduce (wan), several steps between two synchronisations (local), or the best."""
    inner_steps: Count | None = None
    """Of mode local: optimizer steps between two synchronisations; absent = 50."""
    fragments: Count | None = None
    """Of mode local: parts of the layers that come together in turn; absent = chosen by the links."""
    delay_steps: Number | None = None
    """Of mode local: steps that training goes on while a fragment is summed; absent = chosen by the links."""
    warmup_steps: Number | None = None
    """Of mode local: first steps, in each of which gradients are summed; absent = a fifth of training.steps."""
    compression: Annotated[str, OneOf(("auto", *COMPRESSIONS))] = "auto"
    """What Hulk's own all-reduce sends between regions; auto = none, in mode local whatever the links need."""
    on_region_loss: Annotated[str, OneOf(ON_REGION_LOSS)] = "restart"
    """What happens when a region is cut off."""
    fixed_shares: bool = False
    """Whether flows keep their shares whatever the links do."""
    encryption: Annotated[str, OneOf(ENCRYPTIONS)] = "wan"
    """Whether what Hulk's own all-reduce sends between regions is encrypted (wan), or sent as it is."""


class Pin(Part):
    """Layers that must be in one of some regions, or on one of some machines."""

    EITHER: ClassVar[tuple[Either, ...]] = (Either("the pinned layers", ("layers", "parameters"), required=True),)

    layers: Annotated[str, Field(pattern=r"^\d+(-\d+)?(,\d+(-\d+)?)*$")] | None = None
    """Numbers of layers, both ends among them: `0-5`, `0-5,8`, or "7" in quotes. 0 is the embedding."""
    parameters: Annotated[str, Field(min_length=1)] | None = None
    """A pattern of parameters' names, as in the state dict, such as `model.layers.[0-5]` or `*embed*`."""
    regions: Names | None = None
    """Regions where they may be."""
    machines: Names | None = None
    """Machines where they may be."""

    @model_validator(mode="after")
    def _has_places(self) -> Pin:
        if not (self.regions or self.machines):
            raise ValueError("a pin needs regions or machines")
        return self


class Constraints(Part):
    """What a plan must not do."""

    allowed_regions: Names | None = None
    """Regions that may be used; absent = all."""
    denied_regions: Names | None = None
    """Regions that may not."""
    allowed_machines: Names | None = None
    """Machines that may be used; absent = all."""
    denied_machines: Names | None = None
    """Machines that may not."""
    pins: tuple[Pin, ...] = ()
    """Where layers must be."""
    worker_machines: Names | None = None
    """The machine of every worker, in rank order; absent = the plan chooses."""
    max_price_per_hour: Positive | None = None
    """What the plan's accelerators may cost in an hour, together."""
    allow_unknown_links: bool = False
    """Whether links may be used of which nothing is known."""


class MeasuredSpeed(Part):
    """What an accelerator of a machine reached with this very workload."""

    machine: Name
    """The machine."""
    flops_per_second: FlopsPerSecond
    """FLOP/s of one accelerator."""
    micro_batch: Count | None = None
    """Sequences of the micro-batch that it was measured with, where that is known."""


class LikelySpeed(Part):
    """What an accelerator of a machine should reach with this workload, by what it did with others."""

    machine: Name
    """The machine."""
    flops_per_second: FlopsPerSecond
    """FLOP/s of one accelerator."""


class MovingPart(Part):
    """What a move to another plan takes, as it was measured; what is absent is assumed. For `hulk plan --from`."""

    stop_seconds: Amount | None = None
    """Until all ranks have stopped at a step and saved it; absent = 3."""
    image_seconds: Amount | None = None
    """Until a machine that has not run the job has its image; absent = 60."""
    start_seconds: Amount | None = None
    """Until pods and processes have started; absent = 15."""
    rendezvous_seconds: Amount | None = None
    """Until the ranks have found each other; absent = 5."""
    first_step_seconds: Amount | None = None
    """What the first steps take more than later ones; absent = 5."""
    checkpoint_bytes: Bytes | None = None
    """Size of a checkpoint; absent = parameters and optimizer state."""
    checkpoint_every_steps: Count | None = None
    """Steps between two checkpoints: half of them are made again when a machine is lost."""
    store_region: Name | None = None
    """The region where checkpoints are kept; absent = machines fetch layers that they lack from those that had them."""


class WorkloadFile(Part):
    """A model to train, and what is asked of its plan."""

    api_version: Literal["hulk.dev/files/v1"] = API_VERSION
    """Version of this format."""
    kind: Literal["Workload"] = "Workload"
    """What this document is."""
    description: str = ""
    """What this is, and where the figures come from."""
    name: Name
    """Name of the workload."""
    model: ModelPart
    """What is trained."""
    training: Training
    """How it is trained."""
    parallelism: Parallelism = Parallelism()
    """Degrees that are fixed."""
    workers: Workers = Workers()
    """How many workers a plan may have."""
    sync: SyncPart = SyncPart()
    """How replicas bring their gradients together."""
    nccl: NcclPart = NcclPart()
    """NCCL's settings, for plans whose sums or stages go over it."""
    objective: Literal["time", "throughputPerMoney"] = "time"
    """What a plan is to do best: the shortest step, or the most sequences for the price."""
    constraints: Constraints = Constraints()
    """What a plan must not do."""
    measured_speeds: tuple[MeasuredSpeed, ...] = ()
    """Speeds that were measured with this very workload; they stand before the topology's."""
    likely_speeds: tuple[LikelySpeed, ...] = ()
    """Speeds to expect from what other workloads reached on a machine, where this one was not measured."""
    priority: int = 0
    """Of several workloads the one with the higher priority is planned first."""
    moving: MovingPart | None = None
    """What a move to another plan takes."""
