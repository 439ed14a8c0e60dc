"""What a reconcile sees (`View`), what it may do (`Action`), and what one step of it decides (`Outcome`).

A pass over one HulkJob is: gather a `View`, run the recipe's pure steps over it, let the executor carry out the
actions, write the status once. Nothing here does I/O.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from hulk_placement.plan import Plan

from hulk_operator import names
from hulk_operator.api import HulkJob, HulkJobStatus, PlanSummary, PredictionSummary
from hulk_operator.cluster import ApiResource, Object, Refused
from hulk_operator.inputs.shortage import Shortage
from hulk_operator.kueue import WorkloadState, as_admitted
from hulk_operator.observation import Observation, Preflight
from hulk_operator.pods.attempt_objects import metrics_readers
from hulk_operator.pods.instrumentation import DEFAULT_INSTRUMENTATION, Instrumentation
from hulk_operator.pods.orders import NO_ORDERS, Orders
from hulk_operator.pods.placeholders import DEFAULT_SCALE_UP, Placeholder, ScaleUp
from hulk_operator.pods.termination_record import Farewell
from hulk_operator.pods.worker import Reason, WorkerPod
from hulk_operator.reconcile.liveness import Hearing
from hulk_operator.reconcile.silence import GangWords, Output
from hulk_operator.watched import NodeState, Standing


@dataclass(frozen=True, slots=True)
class Timing:
    """Every duration of the reconcile, in seconds."""

    backoff_s: float = 10.0  # after the first failure; doubles
    max_backoff_s: float = 360.0
    late_s: float = 30.0  # a pod that is not up by then is asked after: its Secret may be made just after the job
    warnings_s: float = 60.0  # how old what was read of its warnings may be
    settle_s: float = 60.0  # how long the cause of a broken gang may stay hidden (a dead node is noticed late)
    alone_s: float = 5.0  # the same where peers wait for the next attempt, and so do not fail too
    silent_s: float = 3.0  # how long a node may not answer, and nobody train, before it counts as lost
    silent_poll_s: float = 1.0  # between polls while a node does not answer
    not_ready_s: float = 30.0  # how long a node may say that it is not ready before it counts as lost
    leftover_s: float = 30.0  # how long after its grace period a terminating pod is waited for
    region_loss_s: float = 30.0  # how long the survivors of a region may take to say that they go on
    avoid_node_s: float = 300.0
    poll_s: float = 3.0  # a lost node is noticed at the next poll and `silent_s` after that: within 10 s
    preflight_poll_s: float = 0.5
    preflight_wait_s: float = 300.0  # importing torch and finding one another may take minutes on a loaded node
    fresh_s: float = 5.0  # how old rank 0's word that it made no step may be when a prediction is written
    observe_write_s: float = 10.0
    review_s: float = 10.0  # between two looks at whether running jobs should move
    replan_write_s: float = 600.0  # between two sentences on why a plan is kept
    resync_s: float = 300.0
    retry_plan_s: float = 60.0
    node_request_s: float = 10.0  # between two looks at a ProvisioningRequest
    retry_node_request_s: float = 60.0  # after one, or a placeholder, was refused


@dataclass(frozen=True, slots=True)
class FullPlan:
    """A plan as it is given to the pods: `blob` is its wire form, `num_steps` the step that it ends with."""

    plan: Plan
    blob: bytes
    digest: str
    num_steps: int
    basis: bytes | None = None  # what it was made of, packed (`pack_basis`), where that is known

    @property
    def preflight(self) -> bool:
        """Whether the pods measure their compute before the first step."""
        return not self.plan.prediction.calibrated


@dataclass(frozen=True, slots=True)
class Share:
    """What a decision among competing jobs gives one of them: workers, and their part of all accelerators.

    `fair` is the part that its namespace's weight alone would give it.
    """

    workers: int
    of_cluster: float
    fair: float


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job that waits stands in the queue, from 1, and why it waits."""

    position: int
    reason: str
    message: str
    expected_start: datetime | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """The queue's word on an attempt that runs: it goes on with another number of workers, elsewhere, or later.

    `reason` is what Planned=False then says.
    """

    generation: int
    attempt: int
    reason: str
    message: str
    share: Share


@dataclass(frozen=True, slots=True)
class Planned:
    """The planning pass's answer: this plan, for this generation of the job. `share` None: nobody competed for it.

    `notes`: sentences that a user should know of how the model was read.
    """

    generation: int
    full: FullPlan
    summary: PlanSummary
    prediction: PredictionSummary | None  # None: written after the preflight
    share: Share | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unplanned:
    """The planning pass's answer: no plan, because. `place` None: it waits for nobody in the queue.

    `shortage`: what it lacks, where it would have a plan if there were more nodes of the kind that it can use.
    """

    generation: int
    reason: str
    message: str
    place: Place | None = None
    shortage: Shortage | None = None


@dataclass(frozen=True, slots=True)
class Review:
    """The planning pass's word on the plan of an attempt that runs, and its reason in a sentence.

    `step_us` by that plan and `new_step_us` by another one, as the cluster is now; `gain_s` over all steps left.
    """

    generation: int
    attempt: int
    verdict: Literal["stay", "move"]
    reason: str
    step_us: int | None = None
    new_step_us: int | None = None
    gain_s: float | None = None
    cost_s: float | None = None


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a poll of the workers brought. `error` says why a part is missing."""

    attempt: int
    time: datetime
    observation: Observation | None = None
    preflight: Preflight | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A preflight turned into a prediction, and into the speed (FLOP/s of one accelerator) of each node.

    `new`: the nodes whose speed with this workload was not known. `micro_batch`: sequences of a measured pass.
    """

    attempt: int
    prediction: PredictionSummary
    workload: str  # digest
    flops_per_s: Mapping[str, float]
    products: Mapping[str, str]
    new: frozenset[str] = frozenset()
    micro_batch: int | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """What the API server said of a worker's pod, by a dry run: nothing against it, or why it refuses it."""

    generation: int
    time: datetime
    refused: Refused | None = None
    num_refusals: int = 0  # of this generation, one after the other


@dataclass(frozen=True, slots=True)
class Warnings:
    """What kubelets last warned of, by the name of the pod of an attempt, when that was read."""

    attempt: int
    time: datetime
    of_pods: Mapping[str, Reason]


@dataclass(frozen=True, slots=True)
class Unqueued:
    """Why a job has no Workload, or not the one that it should have."""

    generation: int
    time: datetime
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """What became of asking for nodes, when that was last looked at, and in whose words.

    `state`: asked (it goes on), refused (it is tried again), over (it is not).
    """

    generation: int
    time: datetime
    state: Literal["asked", "refused", "over"]
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """What the operator knows of a job beside the API server; losing it costs time, never correctness."""

    uid: str = ""  # of the job: one that is made again under the same name begins anew
    swept_to: int | None = None  # children of every attempt but this one were deleted; 0: of every attempt
    admission: Admission | None = None
    warnings: Warnings | None = None
    unstable: int = 0  # attempts in a row that never ran
    unfit: int = 0  # of them: those that nodes held back, or a registry
    started: int = 0  # last attempt that was told to start
    ended: frozenset[tuple[int, int]] = frozenset()  # (attempt, worker) that ended well; their pods may be gone by now
    sighting: Sighting | None = None
    hearing: Hearing | None = None
    loss: tuple[int, datetime] | None = None  # attempt, and since when it lacks workers that it may go on without
    calibration: Calibration | None = None
    first_steps: tuple[Observation, ...] = ()  # of an attempt without a preflight
    kept: int = 0  # last attempt whose first steps became speeds
    output: Output | None = None  # of rank 0, looked at while no step is made
    looked: datetime | None = None  # when that was tried last
    unqueued: Unqueued | None = None
    node_request: NodeRequest | None = None
    words: GangWords | None = None


@dataclass(frozen=True)
class View:
    """One job and everything about it, at one moment. `status` is what the steps so far made of `job.status`."""

    job: HulkJob
    status: HulkJobStatus
    now: datetime
    pods: tuple[WorkerPod, ...] = ()  # of every attempt of this job
    leftovers: tuple[WorkerPod, ...] = ()  # of a deleted job of the same name
    nodes: Mapping[str, NodeState] = field(default_factory=dict)
    decision: Planned | Unplanned | None = None
    full: FullPlan | None = None  # of the attempt in force
    review: Review | None = None
    order: Order | None = None
    memory: Memory = Memory()
    timing: Timing = Timing()
    metrics_readers: tuple[Object, ...] = metrics_readers(names.DEFAULT_NAMESPACE)
    farewell: Farewell | None = None  # what a worker of this job said last
    orders: Orders = NO_ORDERS
    kueue: Standing = field(default_factory=Standing)
    may_use_class: bool = True  # whether the job's PriorityClass counts in a queue of Kueue's
    placeholders: tuple[Placeholder, ...] = ()
    scale_up: ScaleUp = DEFAULT_SCALE_UP
    instrumentation: Instrumentation = DEFAULT_INSTRUMENTATION
    pod_groups: bool = False  # whether the scheduler is told what is a gang

    @cached_property
    def gang(self) -> tuple[WorkerPod, ...]:
        """The pods of the attempt in force, by worker."""
        return tuple(
            sorted((pod for pod in self.pods if pod.attempt == self.status.attempt), key=lambda pod: pod.worker)
        )

    @cached_property
    def admitted_job(self) -> HulkJob:
        """The job as its pods are made: with what Kueue's admission adds, where it is in a queue."""
        return as_admitted(self.job, self.kueue.placement if self.job.queue else None)


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """Ask the planning pass for a plan."""


@dataclass(frozen=True, slots=True)
class TryPod:
    """Ask whether the API server would take a pod; the answer is in the next pass's memory."""

    body: Object


@dataclass(frozen=True, slots=True)
class ReadWarnings:
    """Read the last warning about each of these pods; the answer is in the next pass's memory."""

    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Create:
    """Create objects of one kind, in parallel; those that exist already are left as they are."""

    resource: ApiResource
    bodies: tuple[Object, ...]


@dataclass(frozen=True, slots=True)
class Write:
    """Create one object, or give the one of that name, if it is the job's, the content of this one."""

    resource: ApiResource
    body: Object


@dataclass(frozen=True, slots=True)
class MakeSecret:
    """Create the Secret that the job's workers know each other by; one that is there already is left, and not read."""


@dataclass(frozen=True, slots=True)
class Relabel:
    """Give pods, by name, other labels: they become workers of the attempt in force."""

    labels: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Sweep:
    """Delete the children of every attempt but `keep` (0: of every attempt)."""

    keep: int


@dataclass(frozen=True, slots=True)
class DeletePods:
    """Delete the pods of some workers of an attempt."""

    attempt: int
    workers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Poll:
    """Ask rank 0 how it goes; the answer is in the next pass's memory.

    `others` may know better, where rank 0 may be cut off: who is of the latest membership epoch is believed.
    `doors`: the address of a pod on each node of the gang, to knock at. It is asked `after_s` from now.
    """

    address: str
    attempt: int
    preflight: bool
    others: tuple[str, ...] = ()
    doors: Mapping[str, str] = field(default_factory=dict)
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ReadOutput:
    """Look at a pod's last line; it is in the next pass's memory."""

    pod: str


@dataclass(frozen=True, slots=True)
class AskGang:
    """Read each worker's last lines and own step; a worker is silent that wrote no line for `bound_s`."""

    pods: tuple[WorkerPod, ...]
    bound_s: float


@dataclass(frozen=True, slots=True)
class Calibrate:
    """Turn a preflight into a prediction; the answer is in the next pass's memory."""

    preflight: Preflight


@dataclass(frozen=True, slots=True)
class RecordSpeeds:
    """Write measured speeds into the NodeProfiles."""

    calibration: Calibration


@dataclass(frozen=True, slots=True)
class KeepSpeeds:
    """Turn what the first steps took into speeds of the nodes of which none is known, and write those down."""

    seen: Preflight


@dataclass(frozen=True, slots=True)
class Start:
    """Tell rank 0 to begin the first step."""

    address: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Create the job's Workload, or give the one that it has this spec; why that fails is in the next pass's memory."""

    body: Object
    known: WorkloadState | None = None


@dataclass(frozen=True, slots=True)
class TellKueue:
    """Patch the status of the Workload as it was seen; one that has changed since is left to the next pass."""

    state: WorkloadState
    change: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Dequeue:
    """Delete the Workload: the job is in no queue, or is to begin anew in one."""

    state: WorkloadState


@dataclass(frozen=True, slots=True)
class CreatePlaceholders:
    """Create pods that ask for nodes; whether that is refused is in the next pass's memory."""

    bodies: tuple[Object, ...]


@dataclass(frozen=True, slots=True)
class RequestNodes:
    """Create a ProvisioningRequest and its template, where they are not there; what is said of it is remembered."""

    template: Object
    request: Object


@dataclass(frozen=True, slots=True)
class EndScaleUp:
    """Delete what asks for nodes: all placeholders, and the ProvisioningRequest of that name."""

    request: str = ""


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the HulkJob itself."""

    uid: str


@dataclass(frozen=True, slots=True)
class Remember:
    """Replace fields of the job's memory."""

    fields: Mapping[str, Any]


Call = Poll | Start | ReadOutput | AskGang
"""What may take as long as the user's code likes: `worker_calls` makes it beside the passes."""
Action = (
    RequestPlan
    | TryPod
    | ReadWarnings
    | Create
    | Write
    | MakeSecret
    | Relabel
    | Sweep
    | Calibrate
    | RecordSpeeds
    | KeepSpeeds
    | DeleteJob
    | DeletePods
    | Enqueue
    | TellKueue
    | Dequeue
    | CreatePlaceholders
    | RequestNodes
    | EndScaleUp
    | Remember
    | Call
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one step decides. `status` None: unchanged; `stop`: no later step runs in this pass."""

    actions: tuple[Action, ...] = ()
    status: HulkJobStatus | None = None
    stop: bool = False
    requeue_after_s: float | None = None


NOTHING = Outcome()


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the recipe. `writes` are all API writes ("verb plural") that its actions may cause."""

    name: str
    decide: Callable[[View], Outcome]
    writes: tuple[str, ...] = ()
