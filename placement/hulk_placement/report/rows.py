"""The rows that a plan's report is made of. Units are in the names; programs get them in camelCase."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from hulk_placement.report.schedule.rows import ScheduleView


class Row(BaseModel):
    """Frozen; camelCase outside, snake_case inside."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, frozen=True)


class StepPartRow(Row):
    """A part of the step; the parts sum to it. `source` and `target`: the machines whose link it is spent on."""

    part: str
    microseconds: int
    share: float
    source: str | None = None
    target: str | None = None


class PlaceRow(Row):
    """Cells of a stage on one machine: how many replicas have it there."""

    machine: str
    region: str
    replicas: tuple[int, ...]


class VisitRow(Row):
    """A region on the way of a ring: as many replicas one after the other."""

    region: str
    replicas: int


class StageRow(Row):
    """A range of layers and where it is. `pins` are the job's, in words, as far as they bind these layers."""

    stage: int
    first_layer: int
    last_layer: int
    first_name: str
    last_name: str
    parameters: int
    compute_share: float  # of the step, on the machine that computes longest
    places: tuple[PlaceRow, ...]
    ring: tuple[VisitRow, ...] = ()  # in the direction of the data, the last to the first; absent without a ring
    pins: tuple[str, ...] = ()


class MemoryRow(Row):
    """What an accelerator holds, by component, of machines that are alike; their fullest cell counts."""

    machines: tuple[str, ...]
    product: str
    stage: int
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: int
    recompute_bytes: int
    buffer_bytes: int
    framework_bytes: int
    reserve_bytes: int
    total_bytes: int
    capacity_bytes: int | None = None  # None: not known
    fits: bool | None = None
    missing_bytes: int = 0


class LinkUseRow(Row):
    """A directed link between regions, or inside one, that the plan sends over; or two machines' own wire."""

    source: str
    target: str
    kind: str
    rtt_microseconds: int | None = None
    bandwidth_bytes_per_second: int | None = None
    flow_bytes_per_second: int | None = None  # what one flow gets of it, where that is known to be less
    stage_bytes: int  # activations and their gradients in a step
    sync_bytes: int  # gradients of parameters, of replicas and of stages that share them
    busy_share: float | None = None  # of the step, at full rate; inside a region each pair has its own link
    own_wire: bool = False


class PriceRow(Row):
    """A part of what a step costs."""

    what: str
    per_step: float


class PriceRows(Row):
    """What a step costs, in whatever money the topology's prices are in."""

    parts: tuple[PriceRow, ...]
    per_step: float
    per_hour: float


class FlowRow(Row):
    """A share of Hulk's own all-reduce and the way it goes."""

    share: float
    way: str


class AdviceRow(Row):
    """What one change would do; `share` of the time of a sequence is saved."""

    change: str
    step_microseconds: int
    share: float
    is_new_plan: bool


class AdviceRows(Row):
    """The changes that help, and how many were tried.

    `are_to_fit`: the plan does not fit its machines, and these would make it fit, whatever a step then takes.
    `searched_again`: what the search finds with nothing changed.
    """

    rows: tuple[AdviceRow, ...]
    num_tried: int
    are_to_fit: bool = False
    searched_again_microseconds: int | None = None


class View(Row):
    """Everything that a plan's report shows. `blocks`, what stages do when, is for the page alone."""

    job: str
    data: int
    pipeline: int
    tensor: int
    shard: int
    micro_batch: int
    global_batch: int
    schedule: str
    transport: str
    num_accelerators: int
    regions: tuple[str, ...]
    step_microseconds: int
    sequences_per_second: float
    calibrated: bool
    optimality_gap: float | None = None
    step: tuple[StepPartRow, ...]
    stages: tuple[StageRow, ...]
    memory: tuple[MemoryRow, ...]
    links: tuple[LinkUseRow, ...]
    flows: tuple[FlowRow, ...] = ()
    price: PriceRows | None = None
    advice: AdviceRows | None = None
    why: tuple[str, ...] = ()
    blocks: ScheduleView | None = Field(default=None, exclude=True, repr=False)
