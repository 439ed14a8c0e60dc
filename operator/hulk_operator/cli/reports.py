"""What the commands say, as data: one source for `-o json`, `-o yaml` and the tables. Units are in the names."""

from dataclasses import dataclass
from typing import Literal

from hulk_placement.geography.light import Coordinates
from hulk_placement.plan import Plan
from hulk_placement.report.rows import View
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload
from pydantic import Field, InstanceOf

from hulk_operator.api import HulkJobStatus, Resource

LinkKnowledge = Literal["measured", "under load", "declared", "inferred", "unknown"]


class LinkRow(Resource):
    """One directed link between regions or nodes; a figure that is not known is absent."""

    source: str
    target: str
    kind: LinkKnowledge
    rtt_microseconds: int | None = None
    bandwidth_bytes_per_second: int | None = None
    streams: int | None = None
    age_seconds: int | None = None  # of the older figure


class BottleneckRow(LinkRow):
    """The link that a step spends most on, and for what; the slowest of the ring where only that is known."""

    part: str | None = None
    share: float | None = None  # of the step


class RegionRow(Resource):
    """One region: its nodes with accelerators."""

    name: str
    nodes: tuple[str, ...]
    free_accelerators: int


class RefusedLink(Resource):
    """A reported link that cannot be true."""

    source: str
    target: str
    reason: str
    message: str


class TopologyReport(Resource):
    """The matrix as measured."""

    regions: tuple[RegionRow, ...]
    region_links: tuple[LinkRow, ...]
    node_links: tuple[LinkRow, ...]
    refused: tuple[RefusedLink, ...] = ()


class WorkerRow(Resource):
    """One worker in rank order, and the link over which it sends to its neighbour in the ring."""

    worker: int
    node: str
    region: str
    accelerators: int
    sequences: int  # per step
    compute_microseconds: int | None = None
    sends_to: str | None = None
    link: LinkRow | None = None


class PredictionRow(Resource):
    """A step as predicted."""

    step_microseconds: int
    compute_microseconds: int
    bubble_microseconds: int | None = None  # while pipelines fill, drain and wait; absent without pipelines
    communication_microseconds: int
    memory_bytes: int | None = None
    calibrated: bool


class FlowRow(Resource):
    """How vectors up to a size go between regions, largest share first, and the time that no all-reduce can beat."""

    max_bytes: int
    predicted_microseconds: int
    bound_microseconds: int
    observed_microseconds: int | None = None  # of a running job: the median of the last ones
    flows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """What a report was made of, for whoever looks closer; no part of what is printed."""

    plan: Plan
    workload: Workload
    topology: Topology


class PlanReport(Resource):
    """One job's plan, or why there is none (`reason` and `message`)."""

    job: str
    planned: bool
    attempt: int | None = None
    reason: str | None = None
    message: str | None = None
    algorithm: str | None = None
    num_buckets: int | None = None
    prediction: PredictionRow | None = None
    bottleneck: BottleneckRow | None = None
    optimality_gap: str | None = None  # proven relative distance to the best, as in status.plan; "0" is proven best
    optimality_num_workers: int | None = None  # of plans of so many workers; absent: of all plans
    workers: tuple[WorkerRow, ...] = ()
    flows: tuple[FlowRow, ...] = ()  # of Hulk's own all-reduce
    why: tuple[str, ...] = ()
    details: View | None = None
    made: InstanceOf[Made] | None = Field(default=None, exclude=True, repr=False)


class PlanReports(Resource):
    """What `hulk plan` prints: all jobs of the files, planned together."""

    jobs: tuple[PlanReport, ...]
    coordinates: dict[str, Coordinates] = Field(default_factory=dict, exclude=True, repr=False)  # of regions, for a map


class ExplainReport(Resource):
    """A job's running plan, worker by worker, and its state."""

    job: str
    steps: int | None
    plan: PlanReport | None = None
    status: HulkJobStatus
