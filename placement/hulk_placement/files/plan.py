"""The document `plan.yaml`: who trains which layers and sequences, in which order, and how gradients come together."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from hulk_placement.files.part import API_VERSION, Buckets, Count, Either, Name, Number, OneOf, Part, Quantity
from hulk_placement.files.topology import Link
from hulk_placement.files.units import UPLINK, Speed, Uplink
from hulk_placement.plan import ALGORITHMS

Names = Annotated[tuple[Name, ...], Field(min_length=1)]
Ring = Annotated[tuple[Number, ...], Field(min_length=1)]


class Layout(Part):
    """Degrees of parallelism; their product is the number of accelerators."""

    data: Count = 1
    """Replicas of the model."""
    pipeline: Count = 1
    """Stages of each replica."""
    tensor: Count = 1
    """Accelerators of one machine that share each layer."""
    shard: Count = 1
    """Ranks that divide a replica's parameters among them, each with sequences of its own (FSDP)."""


class Worker(Part):
    """Accelerators of one machine that are ranks one after the other."""

    machine: Name
    """The machine."""
    accelerators: Count = 1
    """How many of its accelerators."""


class ScheduleFile(Part):
    """The order of blocks of a pipeline, in a file of its own."""

    stages: Annotated[tuple[str, ...], Field(min_length=1)]
    """As `blocks` of the plan."""


class MadeOfMachine(Speed):
    """A machine that the plan might have used, with the speed that was stated of it."""

    name: Name
    """Its name."""
    region: Name
    """Its region."""
    accelerators: Number = 1
    """Accelerators that were free."""


class MadeOfRegion(Uplink):
    """A region with an uplink of its own."""

    QUANTITIES: ClassVar[tuple[Quantity, ...]] = (Quantity(UPLINK.name, UPLINK.units, required=True),)

    name: Name
    """Its name."""


class MadeOf(Part):
    """What a plan was made of, to tell later what has changed: `hulk plan --save` writes it, `--from` reads it."""

    machines: tuple[MadeOfMachine, ...]
    """Machines that there were."""
    links: tuple[Link, ...] = ()
    """Links between their regions, and those between two machines that the plan uses, as far as they were known."""
    regions: tuple[MadeOfRegion, ...] = ()
    """Regions whose uplinks were stated."""


class MadeOfGroup(Speed):
    """Machines that the plan might have used and that are alike."""

    names: Names
    """Their names."""
    region: Name
    """Their region."""
    accelerators: Number = 1
    """Accelerators that were free on each."""


class PackedMadeOf(Part):
    """As `MadeOf`, with thousands of machines in few lines."""

    groups: tuple[MadeOfGroup, ...]
    """Machines that there were."""
    links: tuple[Link, ...] = ()
    """As there."""
    regions: tuple[MadeOfRegion, ...] = ()
    """As there."""


class PlanFile(Part):
    """A plan of one step of training: nothing in it need be a good idea."""

    EITHER: ClassVar[tuple[Either, ...]] = (
        Either("what each stage holds", ("layersPerStage", "blocksPerStage", "firstLayers")),
        Either("who runs what", ("machines", "replicas", "workers"), required=True),
        Either("what each replica gets", ("shares", "microBatches")),
        Either("the schedule", ("schedule", "blocks", "scheduleFile")),
    )

    api_version: Literal["hulk.dev/files/v1"] = API_VERSION
    """Version of this format."""
    kind: Literal["Plan"] = "Plan"
    """What this document is."""
    description: str = ""
    """What this is, and where it comes from."""
    workload: Name | None = None
    """Name of the workload that it is a plan of; absent = whichever it is used with."""
    layout: Layout
    """Degrees of data, pipeline, tensor and sharded parallelism."""
    layers_per_stage: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None
    """Layers of each stage, embedding and head counted as the model's layers that they are; absent = as many each."""
    blocks_per_stage: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None
    """The same, counting numbered blocks alone: what is before one goes with it, what is after the last with that."""
    first_layers: Annotated[tuple[Number, ...], Field(min_length=1)] | None = None
    """Number of each stage's first layer, from 0."""
    machines: Names | None = None
    """The machine of every cell (one stage of one replica: `shard` x `tensor` accelerators), replica by replica, stage
    by stage. `gpu-[0-7]` stands for gpu-0 to gpu-7, `gpu-1 x 4` for four cells on gpu-1, and `gpu-[0-1] x 4` for four
    on each."""
    replicas: Annotated[tuple[Names, ...], Field(min_length=1)] | None = None
    """The same with a list for each replica."""
    workers: Annotated[tuple[Worker, ...], Field(min_length=1)] | None = None
    """The machines with how many accelerators of each, in the order of ranks (replica, stage, shard, tensor)."""
    shares: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None
    """Sequences of each replica; absent = as many each."""
    micro_batches: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None
    """The same in micro-batches."""
    micro_batch: Count | None = None
    """Sequences of a micro-batch; absent = the workload's."""
    schedule: Literal["1f1b", "gpipe"] | None = None
    """Order of the micro-batches' passes on each stage; absent = 1f1b."""
    blocks: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """An order of one's own: for each stage its blocks, like `F0 F1 B0 B1`, of all replicas."""
    schedule_file: str | None = None
    """A file with `stages:`, a list like `blocks`; its path begins where this document is."""
    rings: Annotated[tuple[Ring, ...], Field(min_length=1)] | None = None
    """For each stage the replicas in the order of its ring, or one order for all; absent = 0, 1, 2 and so on.
    Data go from each replica to the one before it."""
    sync: Annotated[str, OneOf(ALGORITHMS)] = "ring"
    """How gradients come together: gloo's ring, Hulk's own all-reduce (wan), gloo inside regions and between them,
    NCCL, or all to the first replica and back (parameter-server)."""
    collective: dict[str, Any] | None = None
    """Flows of Hulk's own all-reduce, as in docs/reference/plan-wire.md; absent = they are planned."""
    inner_steps: Count | None = None
    """Optimizer steps between two synchronisations; absent = every step is followed by one."""
    fragments: Count = 1
    """With innerSteps: parts of the layers that come together in turn."""
    delay_steps: Number = 0
    """With innerSteps: steps that training goes on while a fragment is summed."""
    buckets: Buckets = 1
    """Equal buckets of gradients: gloo reduces two at a time, Hulk's own, NCCL and a server one after the other."""
    overlap: bool = True
    """Whether stages compute while they send, and gradients are reduced while others are still computed; else a
    transfer holds the stage that sends and the one that receives until it has arrived."""
    recompute: bool = False
    """Whether the backward pass computes activations anew, keeping only the layers' inputs."""
    attempt: Count = 1
    """Which attempt of the job the plan is for."""
    made_of: MadeOf | None = None
    """What the plan was made of; absent = not known, and then only lost machines can be told from it."""
