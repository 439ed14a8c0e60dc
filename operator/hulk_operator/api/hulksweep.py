"""HulkSweep: a template HulkJob and the variations of it that are tried, and what came of them.

A parameter reaches a trial in two ways, and in at least one of them: as `$(sweep.NAME)` in any text of the template's
PodSpec, and through `fields`, which names a field of the HulkJob that takes its value.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from hulk_operator import names
from hulk_operator.api.base import (
    ANY_TIME,
    NEVER,
    Count,
    Number,
    Positive,
    Reason,
    Resource,
    Series,
    Time,
    list_map,
)
from hulk_operator.api.hulkjob import HulkJobSpec
from hulk_operator.api.meta import Condition
from hulk_operator.api.rules import validated_by
from hulk_operator.api.sweep_rules import MAX_GRID, PARAMETERS, SHARED_DEVICES, SWEEP_SPEC
from hulk_operator.api.template import TemplateMeta

MAX_PARAMETERS = 16
MAX_VALUE = 256
MAX_ROWS = 100
MAX_PLACE = 64
MAX_SWEEP_CONDITIONS = 8
MAX_PARALLELISM = 1_000

ParameterName = Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Value = Annotated[str, Field(max_length=MAX_VALUE)]
FieldPath = Literal[
    "model.transformer.layers",
    "model.transformer.hidden",
    "model.transformer.heads",
    "model.transformer.sequenceLength",
    "model.transformer.vocabulary",
    "model.transformer.feedForward",
    "training.globalBatch",
    "training.microBatch",
    "training.precision",
    "training.optimizer",
]


class Parameter(Resource):
    """One axis of a grid."""

    name: Annotated[ParameterName, Field(description="Its name, as in $(sweep.NAME).")]
    values: Annotated[
        tuple[Value, ...],
        Field(min_length=1, max_length=names.MAX_TRIALS, description="Values, in order; a number is written as text."),
    ]


class Parameters(Resource):
    """The variations: every point of a grid, or those of a list."""

    model_config = ConfigDict(json_schema_extra=validated_by(PARAMETERS))

    grid: Annotated[
        tuple[Parameter, ...],
        Field(
            max_length=MAX_GRID,
            description=f"Each value with each of the others; at most {names.MAX_TRIALS} points.",
            json_schema_extra=list_map("name"),
        ),
    ] = ()
    list: Annotated[
        tuple[Annotated[dict[str, Value], Field(max_length=MAX_PARAMETERS)], ...],
        Field(
            max_length=names.MAX_TRIALS, description="One map of values by name for each trial, all of the same names."
        ),
    ] = ()


class FieldValue(Resource):
    """A field of the trial's HulkJob that takes a parameter's value."""

    path: Annotated[FieldPath, Field(description="The field of template.spec.")]
    parameter: Annotated[ParameterName, Field(description="The parameter.")]


class Objective(Resource):
    """What is compared."""

    metric: Annotated[
        Series,
        Field(
            description=(
                "A series without labels on rank 0's /metrics; in mode sharp always hulk_worker_loss, the trial's own."
            )
        ),
    ] = "hulk_worker_loss"
    goal: Annotated[Literal["minimize", "maximize"], Field(description="Which of two values is better.")] = "minimize"


class Halving(Resource):
    """Successive halving: all trials begin, one in `eta` goes on, and of these again one in `eta`."""

    eta: Annotated[int, Field(ge=2, le=100, description="One trial in so many goes on.")] = 3
    min_steps: Annotated[
        int,
        Field(
            ge=1,
            le=1_000_000_000,
            description="Steps before the first choice; before each further one it is eta times as many.",
        ),
    ]


class SharedDevices(Resource):
    """How the trials of mode sharp share the devices of one HulkJob's workers."""

    model_config = ConfigDict(json_schema_extra=validated_by(SHARED_DEVICES))

    model: Annotated[
        str,
        Field(
            max_length=256,
            pattern=r"^[A-Za-z0-9_.]+:[A-Za-z0-9_]+$",
            description=(
                "The function that makes a trial's model (hulk_runtime.sharp.Model) of its parameters, module:function."
            ),
        ),
    ]
    devices: Annotated[
        Literal["cuda", "host"],
        Field(
            description="cuda = the GPUs of a worker; host = as many parts of its memory, for tests and small models."
        ),
    ] = "cuda"
    device_memory_bytes: Annotated[
        Positive | None, Field(description="Memory of each device; absent = all of a GPU's. Needed for host.")
    ] = None
    scheduler: Annotated[
        Literal["lrtf", "random", "fifo"],
        Field(description="Which trial a device goes on with; lrtf = the one with the longest remaining time."),
    ] = "lrtf"
    double_buffer: Annotated[bool, Field(description="Whether transfers run while a device computes.")] = True
    seed: Annotated[Count, Field(description="Every trial's.")] = 0
    drift_percent: Annotated[
        int,
        Field(
            ge=1,
            le=10_000,
            description=(
                "Trials are divided among workers anew when a measured time differs by more than so much from what was "
                "planned with, beside the others', and that pays."
            ),
        ),
    ] = 25


class TrialTemplate(Resource):
    """The HulkJob of which trials are variations."""

    metadata: Annotated[TemplateMeta, Field(description="Labels and annotations of the trials' HulkJobs.")] = (
        TemplateMeta()
    )
    spec: Annotated[HulkJobSpec, Field(description="A HulkJob's spec, as above.")]


class HulkSweepSpec(Resource):
    """What is tried."""

    model_config = ConfigDict(json_schema_extra=validated_by(SWEEP_SPEC))

    suspend: Annotated[
        bool, Field(description="True: suspend the trials that run and begin no other.", json_schema_extra=ANY_TIME)
    ] = False
    mode: Annotated[
        Literal["jobs", "sharp"],
        Field(
            description=(
                "jobs = each trial is a HulkJob of its own; sharp = the trials share the devices of one HulkJob's "
                "workers, which run hulk_runtime.sharp."
            ),
            json_schema_extra=NEVER,
        ),
    ] = "jobs"
    parallelism: Annotated[
        int,
        Field(
            ge=1,
            le=MAX_PARALLELISM,
            description="Trials that run at once; mode sharp runs as many as its devices take.",
            json_schema_extra=ANY_TIME,
        ),
    ] = 1
    parameters: Annotated[Parameters, Field(description="The variations.", json_schema_extra=NEVER)]
    fields: Annotated[
        tuple[FieldValue, ...],
        Field(
            max_length=MAX_PARAMETERS,
            description="Fields of the HulkJob that take a parameter's value.",
            json_schema_extra=NEVER | list_map("path"),
        ),
    ] = ()
    objective: Annotated[Objective, Field(description="What is compared.", json_schema_extra=NEVER)] = Objective()
    halving: Annotated[
        Halving | None, Field(description="Absent = every trial runs to its end.", json_schema_extra=NEVER)
    ] = None
    sharp: Annotated[
        SharedDevices | None,
        Field(description="How trials share devices; for mode sharp.", json_schema_extra=NEVER),
    ] = None
    template: Annotated[
        TrialTemplate, Field(description="The HulkJob of which trials are variations.", json_schema_extra=NEVER)
    ]


class SweepPhase(StrEnum):
    """Where a sweep is."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class SweepCondition(StrEnum):
    """What is said of a sweep."""

    VALID = "Valid"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class TrialPhase(StrEnum):
    """Where a trial is."""

    PENDING = "Pending"
    RUNNING = "Running"
    PAUSED = "Paused"
    SUCCEEDED = "Succeeded"
    STOPPED = "Stopped"
    FAILED = "Failed"


class TrialCounts(Resource):
    """How many trials are where."""

    total: Annotated[Count, Field(description="All trials.")] = 0
    pending: Annotated[Count, Field(description="Not begun.")] = 0
    running: Annotated[Count, Field(description="Begun, and not at an end.")] = 0
    paused: Annotated[Count, Field(description="Waiting for others before a choice, or suspended.")] = 0
    succeeded: Annotated[Count, Field(description="Ended well.")] = 0
    stopped: Annotated[Count, Field(description="Ended by halving.")] = 0
    failed: Annotated[Count, Field(description="Failed, or the metric is not a finite number.")] = 0

    @property
    def by_phase(self) -> dict[TrialPhase, int]:
        """The same, each where its phase is named."""
        return {phase: getattr(self, phase.value.lower()) for phase in TrialPhase}


class TrialStatus(Resource):
    """One trial."""

    name: Annotated[str, Field(max_length=63, description="Its name; in mode jobs that of its HulkJob.")]
    phase: Annotated[TrialPhase, Field(description="Where it is.")]
    metric: Annotated[Number | None, Field(description="The objective's metric when it was read last.")] = None
    step: Annotated[Count, Field(description="Step that it was read after.")] = 0
    rung: Annotated[Count, Field(description="How often it was promoted.")] = 0
    place: Annotated[
        str, Field(max_length=MAX_PLACE, description="Regions, or worker and devices, it is planned on.")
    ] = ""
    reason: Annotated[Reason | None, Field(description="Why it failed or stopped.")] = None


class BestTrial(Resource):
    """The trial with the best metric of those that have not failed."""

    name: Annotated[str, Field(max_length=63, description="Its name.")]
    metric: Annotated[Number, Field(description="Its metric.")]
    step: Annotated[Count, Field(description="Step that it was read after.")]
    parameters: Annotated[dict[str, Value], Field(max_length=MAX_PARAMETERS, description="Its parameters.")]


class SchedulePlan(Resource):
    """Which trial shares which devices (mode sharp)."""

    version: Annotated[Count, Field(description="How often it was made; 1 = from estimates alone.")]
    makespan_seconds: Annotated[Count, Field(description="When the last trial ends, by this plan.")]
    bound_seconds: Annotated[Count, Field(description="No plan ends sooner, by the same times.")]
    measured: Annotated[Count, Field(description="Trials whose time was measured.")] = 0
    drift: Annotated[Number | None, Field(description="Largest measured / planned time when it was made.")] = None
    made_at: Annotated[Time, Field(description="When it was made.")]


class HulkSweepStatus(Resource):
    """What came of it."""

    observed_generation: Annotated[Count, Field(description="metadata.generation that was acted on.")] = 0
    phase: Annotated[SweepPhase, Field(description="Where the sweep is; derived from the conditions.")] = (
        SweepPhase.PENDING
    )
    conditions: Annotated[
        tuple[Condition, ...],
        Field(max_length=MAX_SWEEP_CONDITIONS, description="What holds, and why.", json_schema_extra=list_map("type")),
    ] = ()
    trials: Annotated[TrialCounts, Field(description="How many trials are where.")] = TrialCounts()
    best: Annotated[BestTrial | None, Field(description="The best trial so far.")] = None
    plan: Annotated[SchedulePlan | None, Field(description="Which trial shares which devices (mode sharp).")] = None
    table: Annotated[
        tuple[TrialStatus, ...],
        Field(
            max_length=MAX_ROWS,
            description=f"The trials; of more than {MAX_ROWS} the best, then those that run, failed, wait.",
            json_schema_extra=list_map("name"),
        ),
    ] = ()
    start_time: Annotated[Time | None, Field(description="When the first trial was begun.")] = None
    completion_time: Annotated[Time | None, Field(description="When the last trial ended.")] = None
