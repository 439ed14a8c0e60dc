"""Reads the plan that the operator wrote: gzip JSON with a version, the only thing the two sides share at run time.

A runtime reads exactly the versions in `READABLE`. Any other is refused before anything is started, with both sides
named, because a rank that guesses at a plan trains the wrong thing. Unknown keys of a readable version are ignored.
docs/reference/plan-wire.md describes every field.
"""

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Final, Literal

from hulk_runtime import dependencies
from hulk_runtime.errors import PlanError
from hulk_runtime.plan.document import FULL, DocumentError, Must, Natural, Positive, read
from hulk_runtime.plan.flows import CollectivePlan
from hulk_runtime.plan.flows_document import CollectiveDocument
from hulk_runtime.plan.pipeline_schedule import READABLE as READABLE_SCHEDULES
from hulk_runtime.plan.pipeline_schedule import Schedule

VERSION: Final = 3
"""Says that a stage of a replica is several ranks, in a mesh; 2: that bytes between regions must be encrypted; 1: none
of these."""
READABLE: Final = (1, 2, VERSION)
MAX_BYTES: Final = 16 << 20
"""Of unpacked JSON, far above any plan: what is read may not be what was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Degrees of data, pipeline, tensor and sharded parallelism; their product is the number of ranks."""

    data: Positive
    pipeline: Positive
    tensor: Positive
    shard: Positive = 1

    @property
    def num_ranks(self) -> int:
        """World size."""
        return self.data * self.pipeline * self.width

    @property
    def width(self) -> int:
        """Ranks of a stage of a replica."""
        return self.shard * self.tensor

    @property
    def ranks_apart(self) -> int:
        """From a rank to its like in the next stage, or in the next replica: whose link it is that it sends over."""
        return self.width if self.pipeline * self.data > 1 else 1

    @property
    def mesh(self) -> tuple[tuple[str, int], ...]:
        """The dimensions of a DeviceMesh in the order in which ranks run, the last one fastest."""
        return (("dp_replicate", self.data), ("pp", self.pipeline), ("dp_shard", self.shard), ("tp", self.tensor))


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One pod: its node, the node's region, and how many ranks it runs."""

    node: str
    region: str
    accelerators: Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What the user asked for; `micro_batch` is sequences per forward pass, absent means a rank's whole share."""

    global_batch: Positive
    micro_batch: Positive | None = None
    precision: Literal["fp32", "bf16", "fp16"]
    optimizer: Literal["adamw", "sgd"]
    steps: Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Dimensions of a transformer; `feed_forward` absent means 4 x hidden."""

    layers: Positive
    hidden: Positive
    heads: Positive
    sequence_length: Positive
    vocabulary: Positive
    feed_forward: Positive | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the planner expects of one step."""

    step_seconds: float
    compute_seconds: float
    communication_seconds: float
    calibrated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """How often the replicas come together: `local` only every `inner_steps` steps, the others in every step.

    The rest is of `local`: the outer step, for scripts how many fragments come together in turn, merged how many steps
    late, and the first steps, which all take together.
    """

    mode: Literal["ring", "wan", "local"]
    inner_steps: Positive = 1
    outer_learning_rate: Annotated[float, Must("be > 0", lambda rate: rate > 0)] = 0.7
    outer_momentum: Annotated[float, Must("be >= 0 and < 1", lambda momentum: 0 <= momentum < 1)] = 0.9
    fragments: Positive = 1
    delay_steps: Natural = 0
    warmup_steps: Natural = 0

    def __post_init__(self) -> None:
        if self.fragments > self.inner_steps or self.delay_steps >= self.inner_steps:
            raise ValueError(
                f"{self.fragments} fragments, merged {self.delay_steps} steps late, in rounds of {self.inner_steps}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """What the plan assumes: the network interface, where it names one, and the size of a bucket of gradients.

    `buckets_at_a_time` is what the transport does by itself: gloo reduces two at a time, Hulk's own one after another.
    """

    interface: str | None = None
    bucket_bytes: Positive
    buckets_at_a_time: Positive = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """What only pipelines have: the first layer of each stage, the ring of its replicas, and the order of blocks.

    Without rings replicas go by their numbers. Ranks run (replica, stage, shard, tensor): of 3 stages of one rank each
    rank 5 is stage 2 of replica 1. Each shard has its part of every micro-batch.
    """

    stages: Annotated[tuple[Natural, ...], Must("hold two or more", lambda stages: len(stages) > 1)]
    rings: tuple[tuple[int, ...], ...]
    recompute: bool = False
    name: str
    schedule: Schedule

    def __post_init__(self) -> None:
        if self.schedule.version not in READABLE_SCHEDULES:
            raise ValueError(f"schedule of version {self.schedule.version}, this runtime reads {READABLE_SCHEDULES}")
        rings = self.rings or self.stages
        if not len(self.stages) == len(rings) == self.schedule.num_devices:
            raise ValueError(
                f"{len(self.stages)} stages, {len(self.rings)} rings, a schedule of {self.schedule.num_devices} devices"
            )
        if self.stages[0] or list(self.stages) != sorted(set(self.stages)):
            raise ValueError(f"stages begin at layers {self.stages}: the first at 0, each behind the one before it")
        if self.recompute:
            raise ValueError("stages that compute activations anew: this runtime keeps them")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Who does what. Workers are in rank order, which is ring order where every rank holds the whole model.

    `shares` are sequences of each replica: of each rank, but for pipelines. `nearest_stores`: regions whose checkpoints
    go to the store of another one, and that one.
    """

    version: int
    operator_version: str
    job: str
    attempt: Positive
    layout: Layout
    mesh: tuple[tuple[str, Positive], ...] | None = None
    algorithm: Literal["ring", "wan"]
    workers: Annotated[tuple[Worker, ...], FULL]
    shares: tuple[int, ...]
    training: Training
    model: Model | None = None
    num_buckets: Positive
    sync: Sync | None = None
    collective: CollectiveDocument | None = None
    pipeline: Stages | None = None
    transport: Transport | None = None
    prediction: Prediction | None = None
    nearest_stores: tuple[tuple[str, str], ...] = ()
    preflight: bool
    digest: str

    @property
    def num_ranks(self) -> int:
        """World size."""
        return sum(worker.accelerators for worker in self.workers)

    @property
    def inner_steps(self) -> int | None:
        """Steps from one coming together of the replicas to the next, in local SGD; None when every step is one."""
        return self.sync.inner_steps if self.sync and self.sync.mode == "local" else None

    @property
    def warmup_steps(self) -> int:
        """First steps of local SGD, which all replicas take together."""
        return self.sync.warmup_steps if self.sync and self.sync.mode == "local" else 0

    def collective_plan(self) -> CollectivePlan | None:
        """The all-reduce between regions; None where gloo's or NCCL's own is planned."""
        if self.algorithm != "wan" or self.collective is None:
            return None
        return self.collective.plan(self.regions_by_rank())

    def __post_init__(self) -> None:
        layout = self.layout
        if layout.num_ranks != self.num_ranks:
            degrees = "x".join(str(degree) for _, degree in layout.mesh)
            raise ValueError(f"layout {degrees} is not {self.num_ranks} ranks")
        if self.mesh not in (None, layout.mesh):
            raise ValueError(f"mesh {self.mesh} is not that of the layout, {layout.mesh}")
        if len(self.shares) != layout.data or min(self.shares) < 1:
            smallest = min(self.shares, default=0)
            raise ValueError(f"{len(self.shares)} shares (smallest {smallest}) for {layout.data} replicas")
        if sum(self.shares) != self.training.global_batch:
            raise ValueError(f"shares sum to {sum(self.shares)}, global batch {self.training.global_batch}")
        self._require_flows()
        self._require_stages()

    def _require_flows(self) -> None:
        """Algorithm wan, and no other, has flows, over the regions of the workers."""
        if (self.algorithm == "wan") != (self.collective is not None):
            raise ValueError(f"algorithm {self.algorithm} {'without' if self.collective is None else 'with'} flows")
        regions = tuple(dict.fromkeys(worker.region for worker in self.workers))
        if self.collective is not None and self.collective.regions != regions:
            raise ValueError(f"flows over regions {self.collective.regions}, workers in {regions}")
        self.collective_plan()  # or ValueError

    def _require_stages(self) -> None:
        """A pipeline says how it runs, and nothing else does; its replicas come together in every step, in rings."""
        num_stages, told = self.layout.pipeline, self.pipeline
        if (num_stages > 1) != (told is not None) or (told and len(told.stages) != num_stages):
            raise ValueError(f"{num_stages} stages, and the plan tells of {len(told.stages) if told else 'none'}")
        if told is None:
            return
        if self.algorithm != "ring" or self.inner_steps:
            raise ValueError(f"{num_stages} stages with all-reduces of algorithm {self.algorithm}, local {self.sync}")
        if min(self.shares) < told.schedule.num_micro_batches:
            raise ValueError(
                f"a replica has {min(self.shares)} sequences for {told.schedule.num_micro_batches} micro-batches"
            )

    def ranks_of(self, worker: int) -> range:
        """The ranks that one worker runs.

        With 2, 1 and 3 accelerators the workers run ranks 0-1, 2 and 3-5.
        """
        first = sum(w.accelerators for w in self.workers[:worker])
        return range(first, first + self.workers[worker].accelerators)

    def regions_by_rank(self) -> tuple[str, ...]:
        """The region of each rank."""
        return tuple(worker.region for worker in self.workers for _ in range(worker.accelerators))

    def nodes_by_rank(self) -> tuple[str, ...]:
        """The node of each rank."""
        return tuple(worker.node for worker in self.workers for _ in range(worker.accelerators))


def runtime_version() -> str:
    """Version of the distribution: where an init container brought it, it is not listed among the image's own."""
    beside = metadata.distributions(name="hulk-runtime", path=[str(dependencies.FOLDER)])
    return next((found.version for found in beside), None) or metadata.version("hulk-runtime")


def digest_of(body: Mapping[str, object]) -> str:
    """SHA-256 of a plan's JSON object without its `digest`, keys sorted, no spaces."""
    return hashlib.sha256(json.dumps(body, separators=(",", ":"), sort_keys=True).encode()).hexdigest()


def load(path: str | Path) -> Plan:
    """Read and check a plan file. Raises PlanError."""
    try:
        compressed = Path(path).read_bytes()
    except OSError as error:
        raise PlanError(f"plan {path} cannot be read: {error.strerror}") from error
    return decode(compressed)


def decode(compressed: bytes) -> Plan:
    """Decode and check a plan's bytes. Raises PlanError."""
    try:
        document = json.loads(_unpacked(compressed))
    except (RecursionError, zlib.error, ValueError) as error:
        raise PlanError(f"plan of {len(compressed)} bytes is not gzip JSON: {error}") from error
    if not isinstance(document, Mapping):
        raise PlanError(f"plan is a JSON {type(document).__name__}, not an object")
    _require_readable(document)
    _require_whole(document)
    try:
        return read(Plan, document)
    except DocumentError as error:
        raise PlanError(f"plan of operator {document.get('operatorVersion')}: {error}") from error


def _unpacked(compressed: bytes) -> bytes:
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # gzip's framing
    text = stream.decompress(compressed, MAX_BYTES)
    if not stream.eof:
        raise ValueError(f"cut off, or more than {MAX_BYTES} bytes unpacked")
    return text


def _require_readable(document: Mapping[str, object]) -> None:
    version = document.get("version")
    if type(version) is int and version in READABLE:  # JSON's true would pass for 1
        return
    raise PlanError(
        f"operator {document.get('operatorVersion', 'unknown')} wrote the plan in wire version {version}, "
        f"runtime {runtime_version()} reads version {', '.join(map(str, READABLE))}: "
        f"use an image with the operator's version of hulk-runtime"
    )


def _require_whole(document: Mapping[str, object]) -> None:
    body = {key: value for key, value in document.items() if key != "digest"}
    digest = digest_of(body)
    if document.get("digest") != digest:
        raise PlanError(f"plan says digest {document.get('digest')}, its content has {digest}: it was altered")
