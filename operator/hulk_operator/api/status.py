"""HulkJob's status: a summary bounded by regions, never by workers, so that 1,000 workers stay below 64 KiB."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from hulk_operator import names
from hulk_operator.api.base import (
    LIST_SET,
    MAX_COUNT,
    MAX_MESSAGE,
    Attempt,
    Count,
    NodeName,
    Number,
    Positive,
    Reason,
    Region,
    Resource,
    Time,
    list_map,
)
from hulk_operator.api.meta import Condition
from hulk_operator.api.plan_summary import PlanSummary
from hulk_operator.api.queue_status import EnergyStatus, QueueStatus, ShareStatus

MAX_AVOIDED_NODES = 38
MAX_CONDITIONS = 10  # as many as there are types of
MAX_ALL_REDUCES = 4
MAX_REGION_LINKS = 6


class Phase(StrEnum):
    """Where a job is, derived from its conditions for `kubectl get`."""

    PENDING = "Pending"
    DEPLOYING = "Deploying"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class ConditionType(StrEnum):
    """The conditions a HulkJob can have."""

    PLANNED = "Planned"
    DEPLOYED = "Deployed"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUSPENDED = "Suspended"
    DEGRADED = "Degraded"
    GATED = "Gated"  # pods wait behind scheduling gates of others
    HELD = "Held"  # pods that have ended are held by finalizers of others
    SCALING_UP = "ScalingUp"  # new nodes are asked for


class PredictionSummary(Resource):
    """What the operator said a step would take; never edited afterwards.

    It is written before the first step, unless `source` is `assumed`: a script without Hulk's runtime tells nobody when
    it begins.
    """

    attempt: Annotated[Attempt, Field(description="Attempt that it belongs to.")]
    step_microseconds: Annotated[Positive, Field(description="One step.")]
    step_time: Annotated[str | None, Field(max_length=32, description="stepMicroseconds for people: `2.25 s`.")] = None
    compute_microseconds: Annotated[Count, Field(description="Of that, the slowest rank's compute.")]
    communication_microseconds: Annotated[Count, Field(description="Of that, the all-reduce.")]
    utilisation_percent: Annotated[
        int | None,
        Field(
            ge=0,
            le=100,
            description=(
                "The part of a step in which replicas do not wait for one another, rounded down; absent = they come "
                "together in every step."
            ),
        ),
    ] = None
    bubble_microseconds: Annotated[
        Count | None,
        Field(
            description=(
                "Of that, what the stage that computes longest waits for other stages and for transfers; absent = no "
                "stages."
            )
        ),
    ] = None
    transfer_microseconds: Annotated[
        Count | None, Field(description="Of the bubble, what links between stages add to it; absent = not known.")
    ] = None
    memory_bytes: Annotated[Count, Field(description="Memory of the fullest accelerator.")] = 0
    calibrated: Annotated[bool, Field(description="Whether compute was measured on these nodes.")]
    source: Annotated[
        Literal["preflight", "profile", "template", "assumed"],
        Field(
            description=(
                "Where compute comes from: this job's preflight, node profiles, what earlier steps of this template "
                "measured, or an assumption. All but assumed: written before the first step. assumed: the pods gave no "
                "preflight (a script without Hulk's runtime), so it is written some minutes after they were up, when "
                "steps may have been made already."
            )
        ),
    ]
    written_at: Annotated[Time, Field(description="When it was written.")]


class AllReduceTime(Resource):
    """What all-reduces of one size class take (Hulk's own, algorithm `wan`)."""

    max_bytes: Annotated[Positive, Field(description="Largest vector of the class, which names it.")]
    observed_microseconds: Annotated[
        Positive, Field(description="Median of the last ones, from the begin on the rank that began last.")
    ]
    predicted_microseconds: Annotated[Positive | None, Field(description="What the plan predicted.")] = None
    bound_microseconds: Annotated[Positive | None, Field(description="What none on the planned links can beat.")] = None


class RegionLinkRate(Resource):
    """What a directed link between regions carries."""

    source: Annotated[Region, Field(description="Region that sends.")]
    target: Annotated[Region, Field(description="Region that receives.")]
    planned_bytes_per_second: Annotated[Positive, Field(description="Rate in the plan.")]
    observed_bytes_per_second: Annotated[
        Positive | None, Field(description="Rate while more waited to be sent; paced just below the planned one.")
    ] = None


class WanObserved(Resource):
    """What all-reduces between regions do, beside what the plan says of them."""

    all_reduces: Annotated[
        tuple[AllReduceTime, ...],
        Field(
            max_length=MAX_ALL_REDUCES,
            description=f"By size class; of more than {MAX_ALL_REDUCES} the most frequent.",
            json_schema_extra=list_map("maxBytes"),
        ),
    ] = ()
    region_links: Annotated[
        tuple[RegionLinkRate, ...],
        Field(
            max_length=MAX_REGION_LINKS,
            description=f"Links that they use; of more than {MAX_REGION_LINKS} those furthest from the plan.",
            json_schema_extra=list_map("source", "target"),
        ),
    ] = ()


class PipelineObserved(Resource):
    """What the stage that computes longest waits for in a step, as predictions have it."""

    stage: Annotated[Count, Field(description="Its number.")]
    bubble_microseconds: Annotated[Count, Field(description="Waiting for other stages and for transfers.")]
    transfer_microseconds: Annotated[Count, Field(description="Of that, waiting for transfers.")]


class ObservedModel(Resource):
    """What the first steps of a job that says nothing of its model measured.

    Plans of the same template, in the same namespace, are made for this: the job's next attempt, and later jobs.
    """

    parameters: Annotated[Count, Field(description="Parameters that rank 0's optimizers update.")]
    gradient_bytes: Annotated[Count, Field(description="Bytes of their gradients.")]
    template: Annotated[str, Field(max_length=16, description="Digest of the template that was measured.")]
    step_microseconds: Annotated[Count | None, Field(description="A step; absent with compute.")] = None
    compute_microseconds: Annotated[
        Count | None, Field(description="Of that, rank 0's compute; absent = not measured, no step time is predicted.")
    ] = None
    sequences: Annotated[
        Positive | None, Field(description="Sequences that it computed; absent = training.globalBatch is not given.")
    ] = None
    node: Annotated[NodeName | None, Field(description="Where it computed.")] = None
    product: Annotated[str | None, Field(max_length=63, description="Accelerator of that node.")] = None


class Observed(Resource):
    """What rank 0 reports."""

    step: Annotated[Count, Field(description="Last completed step.")]
    step_microseconds: Annotated[Count | None, Field(description="Median of the last steps.")] = None
    step_time: Annotated[str | None, Field(max_length=32, description="stepMicroseconds for people: `2.25 s`.")] = None
    compute_microseconds: Annotated[
        Count | None,
        Field(
            description="Of that, the slowest rank's compute; of steps that hulk-launch counts, rank 0's in first ones."
        ),
    ] = None
    loss: Annotated[Number | None, Field(description="Training loss of the last step.")] = None
    metric: Annotated[Number | None, Field(description="The series that spec.metric names.")] = None
    refused_checkpoints: Annotated[
        Count | None,
        Field(
            description="What the attempt found in its checkpoints' folder that is not the job's own; absent = nothing."
        ),
    ] = None
    relative_error: Annotated[
        Number | None, Field(description="(predicted - observed) / observed step time; none in a warm-up.")
    ] = None
    wan: Annotated[WanObserved | None, Field(description="All-reduces by algorithm `wan`; absent = none.")] = None
    pipeline: Annotated[
        PipelineObserved | None,
        Field(description="Waits of the stage that computes longest, over all replicas; absent = no stages."),
    ] = None
    model: Annotated[
        ObservedModel | None, Field(description="Measured where spec.model is absent; kept for plans of this template.")
    ] = None
    updated_at: Annotated[Time, Field(description="When it was read.")]


class Membership(Resource):
    """Who is left of an attempt that goes on without a region that was cut off."""

    epoch: Annotated[Positive, Field(description="How often the attempt lost regions.")]
    workers: Annotated[Count, Field(description="Workers that go on.")]
    without: Annotated[
        tuple[Region, ...],
        Field(max_length=names.MAX_REGIONS, description="Regions that were cut off.", json_schema_extra=LIST_SET),
    ]
    since: Annotated[Time, Field(description="When it was heard.")]


class CheckpointStatus(Resource):
    """The last committed checkpoint."""

    step: Annotated[Count, Field(description="Step that it holds.")]
    where: Annotated[str, Field(max_length=1024, description="URL.")]
    bytes: Annotated[Count, Field(description="Size.")] = 0


class LastFailure(Resource):
    """Why the last attempt failed, kept after its pods are gone."""

    attempt: Annotated[Attempt, Field(description="Attempt that failed.")]
    pod: Annotated[str, Field(max_length=63, description="Pod that failed first; empty = no pod.")] = ""
    node: Annotated[str, Field(max_length=253, description="Its node.")] = ""
    exit_code: Annotated[int | None, Field(ge=0, le=255, description="Exit code of its worker container.")] = None
    reason: Annotated[Reason, Field(description="Why, as one PascalCase word.")]
    message: Annotated[str, Field(max_length=2048, description="Last log lines or the API server's words.")] = ""
    time: Annotated[Time, Field(description="When it was seen.")]


class ReplanStatus(Resource):
    """What the last look at a plan in force came to, after links drifted or nodes were added."""

    attempt: Annotated[Attempt, Field(description="Attempt whose plan was looked at.")]
    verdict: Annotated[Literal["stay", "move"], Field(description="Whether the job goes on with it or moves.")]
    reason: Annotated[str, Field(max_length=MAX_MESSAGE, description="Why, with the numbers.")]
    step_microseconds: Annotated[
        Count | None, Field(description="A step by that plan, predicted for the links as they are now.")
    ] = None
    new_step_microseconds: Annotated[Count | None, Field(description="A step by the best other plan.")] = None
    gain_seconds: Annotated[
        int | None, Field(ge=-MAX_COUNT, le=MAX_COUNT, description="What the steps that are left would take less.")
    ] = None
    cost_seconds: Annotated[Count | None, Field(description="What the move takes.")] = None
    time: Annotated[Time, Field(description="When it was written.")]


class Startup(Resource):
    """How long an attempt took to train."""

    attempt: Annotated[Attempt, Field(description="Attempt.")]
    seconds: Annotated[Count, Field(description="From its plan to the first poll that told of a step.")]


class AvoidedNode(Resource):
    """A node that failed a start and is left out for a while."""

    name: Annotated[NodeName, Field(description="Node.")]
    until: Annotated[Time, Field(description="End of the back-off.")]


class HulkJobStatus(Resource):
    """What Hulk sees and did."""

    observed_generation: Annotated[Count, Field(description="metadata.generation that was acted on.")] = 0
    phase: Annotated[Phase, Field(description="Where the job is; derived from the conditions.")] = Phase.PENDING
    conditions: Annotated[
        tuple[Condition, ...],
        Field(max_length=MAX_CONDITIONS, description="What holds, and why.", json_schema_extra=list_map("type")),
    ] = ()
    attempt: Annotated[Attempt, Field(description="Last attempt that was started; 0 = none.")] = 0
    plan: Annotated[PlanSummary | None, Field(description="Summary of that attempt's plan.")] = None
    prediction: Annotated[PredictionSummary | None, Field(description="Predicted time of a step.")] = None
    observed: Annotated[Observed | None, Field(description="Observed progress.")] = None
    membership: Annotated[
        Membership | None, Field(description="Set while an attempt goes on without a region (`sync.onRegionLoss`).")
    ] = None
    checkpoint: Annotated[CheckpointStatus | None, Field(description="Last committed checkpoint.")] = None
    replan: Annotated[
        ReplanStatus | None, Field(description="Whether the plan is still the best, after a change of links or nodes.")
    ] = None
    startup: Annotated[Startup | None, Field(description="How long the last attempt took to begin.")] = None
    queue: Annotated[
        QueueStatus | None, Field(description="Set while it waits for accelerators that other jobs have.")
    ] = None
    share: Annotated[
        ShareStatus | None, Field(description="What it was given where jobs compete; absent = nobody competed.")
    ] = None
    energy: Annotated[
        EnergyStatus | None,
        Field(description="What training took; absent = utility.energy does not say what a worker draws."),
    ] = None
    failures: Annotated[Count, Field(description="Failures that count towards backoffLimit.")] = 0
    disruptions: Annotated[Count, Field(description="Node losses, evictions and moves; they do not count.")] = 0
    restarts: Annotated[Count, Field(description="Attempts after the first.")] = 0
    last_failure: Annotated[LastFailure | None, Field(description="Why the last failed attempt failed.")] = None
    start_time: Annotated[
        Time | None, Field(description="When its first plan was made, since the last resume if it was suspended.")
    ] = None
    completion_time: Annotated[Time | None, Field(description="When the job succeeded or failed.")] = None
    avoided_nodes: Annotated[
        tuple[AvoidedNode, ...],
        Field(
            max_length=MAX_AVOIDED_NODES,
            description="Nodes that failed a start, until their back-off ends.",
            json_schema_extra=list_map("name"),
        ),
    ] = ()
