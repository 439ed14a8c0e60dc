"""The summary of a plan in HulkJob's status: bounded by regions and stages, never by workers."""

from typing import Annotated, Literal

from pydantic import Field

from hulk_operator import names
from hulk_operator.api.base import (
    LIST_SET,
    Attempt,
    Count,
    Decimal,
    Digest,
    ObjectName,
    Place,
    Positive,
    Region,
    Resource,
    list_map,
)
from hulk_operator.api.model import MAX_STEPS

MAX_PLACES = 16
MAX_PLACE_REGIONS = 4
MAX_STAGES = 16
MAX_SCHEDULE = 16

Share = Annotated[int, Field(ge=0, le=1_048_576)]


class Layout(Resource):
    """Degrees of parallelism of a plan."""

    data: Annotated[Positive, Field(description="Replicas.")]
    pipeline: Annotated[Positive, Field(description="Stages.")] = 1
    shard: Annotated[Positive, Field(description="Ranks that divide a replica's parameters.")] = 1
    tensor: Annotated[Positive, Field(description="Tensor-parallel ranks.")] = 1


class RegionShare(Resource):
    """What a plan uses of one region."""

    name: Annotated[Region, Field(description="Region.")]
    workers: Annotated[Count, Field(description="Workers there.")]
    accelerators: Annotated[Count, Field(description="Accelerators there.")]


class LayersPlace(Resource):
    """Where layers are that every replica has in the same regions."""

    layers: Annotated[str, Field(max_length=16, description="Their numbers, both ends among them, such as 0-13.")]
    num_nodes: Annotated[Count, Field(description="Nodes that have them.")]
    num_regions: Annotated[Count, Field(description="Regions that have them.")]
    regions: Annotated[
        tuple[Region, ...],
        Field(max_length=MAX_PLACE_REGIONS, description="The first four of these.", json_schema_extra=LIST_SET),
    ]


class StagePlace(Resource):
    """A pipeline stage: its layers, and where they are in all replicas together."""

    stage: Annotated[int, Field(ge=0, le=MAX_STAGES - 1, description="Number; 0 has the first layers.")]
    layers: Annotated[str, Field(max_length=16, description="Their numbers, both ends among them, such as 0-13.")]
    num_accelerators: Annotated[Count, Field(description="Accelerators that have them.")]
    num_nodes: Annotated[Count, Field(description="Nodes that have them.")]
    num_regions: Annotated[Count, Field(description="Regions that have them.")]
    regions: Annotated[
        tuple[Region, ...],
        Field(max_length=MAX_PLACE_REGIONS, description="The first four of these.", json_schema_extra=LIST_SET),
    ]


class Bottleneck(Resource):
    """The link that decides the communication time."""

    source: Annotated[Place, Field(description="Node that sends.")]
    target: Annotated[Place, Field(description="Node that receives.")]
    rtt_microseconds: Annotated[Count, Field(description="Round-trip time.")]
    bandwidth_bytes_per_second: Annotated[Count, Field(description="TCP payload rate.")]


class HostPorts(Resource):
    """Ports of an attempt whose pods are on their nodes' own network."""

    first: Annotated[int, Field(ge=names.FIRST_HOST_PORT, le=names.LAST_HOST_PORT, description="The first, rank 0's.")]
    count: Annotated[Positive, Field(description="How many: the others are for metrics.")]

    @property
    def run(self) -> range:
        """All of them."""
        return range(self.first, self.first + self.count)


def gap_text(gap: float) -> str:
    """An optimality gap as text: 0 only for a plan that is proven best, however small the gap.

    >>> gap_text(0.0), gap_text(0.00004), gap_text(0.0123)
    ('0.0000', '0.0001', '0.0123')
    """
    return f"{max(gap, 0.0001) if gap > 0 else 0.0:.4f}"


class RoundsSummary(Resource):
    """How replicas that train apart come together."""

    inner_steps: Annotated[
        int, Field(ge=1, le=100_000, description="Steps of a round, in which each fragment is summed once.")
    ]
    fragments: Annotated[int, Field(ge=1, le=1000, description="Parts of the layers that come together in turn.")]
    delay_steps: Annotated[
        int, Field(ge=0, le=100_000, description="Steps that training goes on while a fragment is summed.")
    ]
    compression: Annotated[str, Field(max_length=4, description="What crosses regions.")]
    warmup_steps: Annotated[
        int, Field(ge=0, le=MAX_STEPS, description="First steps, in each of which gradients are summed.")
    ] = 0
    outer_learning_rate: Annotated[Decimal | None, Field(description="Of the outer step.")] = None
    outer_momentum: Annotated[Decimal | None, Field(description="Nesterov's, of the outer step.")] = None


class PlanSummary(Resource):
    """The running attempt's plan; the full one is in the ConfigMap `name`."""

    name: Annotated[ObjectName, Field(description="ConfigMap of the full plan.")]
    digest: Annotated[Digest, Field(description="Digest of the full plan.")]
    attempt: Annotated[Attempt, Field(description="Attempt that it belongs to.")]
    made_of: Annotated[
        str,
        Field(max_length=17, description="Digest of the fields of spec that it and its pods are made of."),
    ] = ""
    algorithm: Annotated[str, Field(max_length=32, description="All-reduce that is used.")]
    objective: Annotated[
        Literal["time", "throughputPerMoney"], Field(description="What it was to do best (spec.placement.objective).")
    ] = "time"
    price_per_hour: Annotated[
        Decimal | None, Field(description="Price of its accelerators, by the HulkTopology; absent = one has none.")
    ] = None
    host_ports: Annotated[
        HostPorts | None,
        Field(description="What its pods take of their nodes' own; absent = they have a network of their own."),
    ] = None
    num_workers: Annotated[Count, Field(description="Workers.")]
    num_accelerators: Annotated[Count, Field(description="Accelerators over all workers.")]
    layout: Annotated[Layout, Field(description="Degrees of parallelism.")]
    schedule: Annotated[
        str,
        Field(
            max_length=MAX_SCHEDULE,
            description="Order of the stages' micro-batches: 1f1b, gpipe, or explicit: found for it. Empty = none.",
        ),
    ] = ""
    rounds: Annotated[
        RoundsSummary | None, Field(description="Of sync.mode local; absent = replicas come together in every step.")
    ] = None
    smallest_share: Annotated[
        Share, Field(description="Fewest sequences of a step that a replica has; 0 = not told.")
    ] = 0
    largest_share: Annotated[Share, Field(description="Most sequences of a step that a replica has; 0 = not told.")] = 0
    regions: Annotated[
        tuple[RegionShare, ...],
        Field(max_length=names.MAX_REGIONS, description="What is used per region.", json_schema_extra=list_map("name")),
    ] = ()
    layers: Annotated[
        tuple[LayersPlace, ...],
        Field(
            max_length=MAX_PLACES,
            description="Where every layer is, neighbours in the same regions folded; the first 16.",
            json_schema_extra=list_map("layers"),
        ),
    ] = ()
    stages: Annotated[
        tuple[StagePlace, ...],
        Field(
            max_length=MAX_STAGES,
            description="Pipeline stages, the first 16; layout.pipeline says how many. Empty = no stages.",
            json_schema_extra=list_map("stage"),
        ),
    ] = ()
    order: Annotated[
        tuple[Region, ...],
        Field(
            max_length=64,
            description="Regions in ring order, with stages of the first one's ring; neighbours folded; the first 64.",
        ),
    ] = ()
    bottleneck: Annotated[Bottleneck | None, Field(description="Slowest link of the ring; absent = no link.")] = None
    optimality_gap: Annotated[
        Decimal | None,
        Field(
            description="Proven relative distance to the best plan (of as many workers where speeds are assumed); 0 = "
            "proven best."
        ),
    ] = None
