"""Every metric of the operator, in one table: the collector, the reference in docs and the tests are made from it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """Prometheus' types."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric. The name is without the suffixes that Prometheus adds (_total, _bucket)."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str

    @property
    def series(self) -> str:
        """The name as it is queried."""
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name


Labels = tuple[str, ...]
Rows = Iterable[tuple[Labels, float | None]]
"""What a series says: labels and a value; None where there is none yet."""

_JOB: Final = ("namespace", "job")
_SWEEP: Final = ("namespace", "sweep")
_LINK: Final = ("source", "target", "scope")

JOB_PHASE: Final = Definition("hulk_job_phase", Kind.GAUGE, (*_JOB, "phase"), "1 for the phase that the job is in.")
JOB_ATTEMPT: Final = Definition("hulk_job_attempt", Kind.GAUGE, _JOB, "Last attempt; 0 before the first.")
JOB_STEP: Final = Definition("hulk_job_step", Kind.GAUGE, _JOB, "Last completed step, as rank 0 reports it.")
JOB_LOSS: Final = Definition("hulk_job_loss", Kind.GAUGE, _JOB, "Training loss of that step.")
JOB_PREDICTED: Final = Definition(
    "hulk_job_predicted_step_seconds", Kind.GAUGE, _JOB, "Step time predicted before the first step of the attempt."
)
JOB_OBSERVED: Final = Definition(
    "hulk_job_observed_step_seconds", Kind.GAUGE, _JOB, "Median of the last observed step times."
)
JOB_ERROR: Final = Definition(
    "hulk_job_step_relative_error", Kind.GAUGE, _JOB, "(predicted - observed) / observed step time; none in a warm-up."
)
JOB_SUM_PREDICTED: Final = Definition(
    "hulk_job_all_reduce_predicted_seconds",
    Kind.GAUGE,
    (*_JOB, "max_bytes"),
    "What the plan predicted for an all-reduce between regions of a size class that is used.",
)
JOB_SUM_OBSERVED: Final = Definition(
    "hulk_job_all_reduce_observed_seconds",
    Kind.GAUGE,
    (*_JOB, "max_bytes"),
    "Median of the last of them, from the begin on the rank that began last.",
)
JOB_SUM_BOUND: Final = Definition(
    "hulk_job_all_reduce_bound_seconds",
    Kind.GAUGE,
    (*_JOB, "max_bytes"),
    "What no all-reduce of that size can beat on the links as planned.",
)
JOB_LINK_PLANNED: Final = Definition(
    "hulk_job_region_link_planned_bytes_per_second",
    Kind.GAUGE,
    (*_JOB, "source", "target"),
    "Rate of a link between regions in the plan. At most the 6 links of a job that are furthest from it.",
)
JOB_LINK_OBSERVED: Final = Definition(
    "hulk_job_region_link_observed_bytes_per_second",
    Kind.GAUGE,
    (*_JOB, "source", "target"),
    "What it carried while more waited to be sent.",
)
JOB_PIPELINE_PREDICTED: Final = Definition(
    "hulk_job_pipeline_predicted_seconds",
    Kind.GAUGE,
    (*_JOB, "part"),
    "What the stage that computes longest was predicted to wait in a step. bubble: for other stages and transfers; "
    "transfer: of that, what links between stages add.",
)
JOB_PIPELINE_OBSERVED: Final = Definition(
    "hulk_job_pipeline_observed_seconds",
    Kind.GAUGE,
    (*_JOB, "part"),
    "What the stage that computes longest waits in a step, by the same parts, over all replicas.",
)
JOB_CHECKPOINT: Final = Definition("hulk_job_checkpoint_step", Kind.GAUGE, _JOB, "Step of the last checkpoint.")
JOB_CHECKPOINT_REFUSED: Final = Definition(
    "hulk_job_checkpoint_refused",
    Kind.GAUGE,
    _JOB,
    "What the last attempt found in the checkpoints' folder that is not as the job wrote it.",
)
JOB_FAILURES: Final = Definition("hulk_job_failures", Kind.GAUGE, _JOB, "Failures that count towards backoffLimit.")
JOB_DISRUPTIONS: Final = Definition(
    "hulk_job_disruptions", Kind.GAUGE, _JOB, "Node losses, evictions and moves; they do not count as failures."
)
JOB_LEFT_OUT: Final = Definition(
    "hulk_job_workers_left_out",
    Kind.GAUGE,
    _JOB,
    "Workers of regions that were cut off and without which the attempt goes on.",
)
JOB_BOTTLENECK: Final = Definition(
    "hulk_job_bottleneck_link_info", Kind.GAUGE, (*_JOB, "source", "target"), "1 for the slowest link of the ring."
)
JOB_RING: Final = Definition(
    "hulk_job_ring_position",
    Kind.GAUGE,
    (*_JOB, "node", "region"),
    "First rank of the ring on the node; with stages, of the first stage's. Off above 64 nodes.",
)
JOB_QUEUE: Final = Definition("hulk_job_queue_position", Kind.GAUGE, _JOB, "Place among the jobs that wait, from 1.")
JOB_WAITING: Final = Definition("hulk_job_waiting_seconds", Kind.GAUGE, _JOB, "Since when it waits in the queue.")
JOB_SHARE: Final = Definition(
    "hulk_job_share",
    Kind.GAUGE,
    (*_JOB, "share"),
    "Part of the accelerators where jobs compete. given: what the queue gave the job; fair: by its namespace's weight.",
)
JOB_UTILITY: Final = Definition(
    "hulk_job_utility", Kind.GAUGE, _JOB, "What the job's steps so far are worth, by spec.utility."
)
JOB_JOULES: Final = Definition(
    "hulk_job_joules", Kind.GAUGE, _JOB, "Energy that training took, by utility.energy.wattsPerWorker."
)
QUEUE_WAITING: Final = Definition("hulk_queue_waiting_jobs", Kind.GAUGE, (), "Jobs that wait in the queue.")
QUEUE_MOVES: Final = Definition(
    "hulk_queue_moves", Kind.COUNTER, ("kind",), "What the queue did with jobs: start, grow, shrink, move, preempt."
)
SWEEP_TRIALS: Final = Definition(
    "hulk_sweep_trials", Kind.GAUGE, (*_SWEEP, "phase"), "Trials of the sweep that are in the phase."
)
SWEEP_BEST: Final = Definition(
    "hulk_sweep_best_metric", Kind.GAUGE, _SWEEP, "The objective's metric of the best trial so far."
)
SWEEP_MAKESPAN: Final = Definition(
    "hulk_sweep_plan_makespan_seconds", Kind.GAUGE, _SWEEP, "Mode sharp: how long the division takes, as planned."
)
SWEEP_BOUND: Final = Definition(
    "hulk_sweep_plan_bound_seconds", Kind.GAUGE, _SWEEP, "Mode sharp: no division is shorter, by the same times."
)
SWEEP_TRIAL_METRIC: Final = Definition(
    "hulk_sweep_trial_metric", Kind.GAUGE, (*_SWEEP, "trial"), "The objective's metric of a trial of the status' table."
)
SWEEP_TRIAL_STEP: Final = Definition(
    "hulk_sweep_trial_step", Kind.GAUGE, (*_SWEEP, "trial"), "The step that it was read after."
)
LINK_RTT: Final = Definition(
    "hulk_link_rtt_seconds", Kind.GAUGE, _LINK, "Median round-trip time without load. Nodes: off above 64."
)
LINK_BANDWIDTH: Final = Definition(
    "hulk_link_bandwidth_bytes_per_second",
    Kind.GAUGE,
    _LINK,
    "TCP payload rate from source to target without load. Nodes: off above 64.",
)
LINK_AGE: Final = Definition(
    "hulk_link_age_seconds", Kind.GAUGE, _LINK, "Time since the link's newest figure. Nodes: off above 64."
)
LINK_BANDWIDTH_AGE: Final = Definition(
    "hulk_link_bandwidth_age_seconds", Kind.GAUGE, _LINK, "Time since its bandwidth was measured. Nodes: off above 64."
)
LINKS_REFUSED: Final = Definition(
    "hulk_links_refused", Kind.GAUGE, ("reason",), "Links in NodeProfiles that are ignored because they cannot be true."
)
PROBING_TESTS: Final = Definition("hulk_probing_tests", Kind.COUNTER, (), "Bandwidth tests ordered.")
PROBING_PENDING: Final = Definition("hulk_probing_tests_pending", Kind.GAUGE, (), "Bandwidth tests under way.")
PROBING_WAITING: Final = Definition(
    "hulk_probing_links_waiting", Kind.GAUGE, ("reason",), "Links that are due for a test and have to wait."
)
OPERATOR_INFO: Final = Definition("hulk_operator_info", Kind.GAUGE, ("version",), "1; the operator's version.")
OPERATOR_LEASE: Final = Definition("hulk_operator_lease_held", Kind.GAUGE, (), "1 while this process holds the Lease.")
OPERATOR_QUEUE: Final = Definition("hulk_operator_queue_depth", Kind.GAUGE, (), "Jobs waiting for a reconcile.")
OPERATOR_RECONCILE: Final = Definition(
    "hulk_operator_reconcile_seconds", Kind.HISTOGRAM, (), "Duration of one reconcile of one job."
)
OPERATOR_PLANNING: Final = Definition(
    "hulk_operator_planning_seconds", Kind.GAUGE, (), "Duration of the newest planning pass."
)
OPERATOR_PASSES: Final = Definition(
    "hulk_operator_planning_pass_seconds", Kind.HISTOGRAM, (), "Duration of one planning pass over all waiting jobs."
)
OPERATOR_LAG: Final = Definition(
    "hulk_operator_event_loop_lag_seconds",
    Kind.HISTOGRAM,
    (),
    "How late the event loop would do what is due at a moment; 100 moments a second, those while it is blocked too.",
)
OPERATOR_WRITES: Final = Definition(
    "hulk_operator_api_writes", Kind.COUNTER, ("verb", "resource"), "Writes sent to the API server."
)
OPERATOR_BACKGROUND: Final = Definition(
    "hulk_operator_background_failures",
    Kind.COUNTER,
    ("task",),
    "Unexpected ends of a part of the operator, which is started again.",
)
OPERATOR_ERRORS: Final = Definition(
    "hulk_operator_errors", Kind.COUNTER, ("where",), "Passes that ended in an error and are repeated."
)

DEFINITIONS: Final = (
    JOB_PHASE,
    JOB_ATTEMPT,
    JOB_STEP,
    JOB_LOSS,
    JOB_PREDICTED,
    JOB_OBSERVED,
    JOB_ERROR,
    JOB_SUM_PREDICTED,
    JOB_SUM_OBSERVED,
    JOB_SUM_BOUND,
    JOB_LINK_PLANNED,
    JOB_LINK_OBSERVED,
    JOB_PIPELINE_PREDICTED,
    JOB_PIPELINE_OBSERVED,
    JOB_CHECKPOINT,
    JOB_CHECKPOINT_REFUSED,
    JOB_FAILURES,
    JOB_DISRUPTIONS,
    JOB_LEFT_OUT,
    JOB_BOTTLENECK,
    JOB_RING,
    JOB_QUEUE,
    JOB_WAITING,
    JOB_SHARE,
    JOB_UTILITY,
    JOB_JOULES,
    QUEUE_WAITING,
    QUEUE_MOVES,
    SWEEP_TRIALS,
    SWEEP_BEST,
    SWEEP_MAKESPAN,
    SWEEP_BOUND,
    SWEEP_TRIAL_METRIC,
    SWEEP_TRIAL_STEP,
    LINK_RTT,
    LINK_BANDWIDTH,
    LINK_AGE,
    LINK_BANDWIDTH_AGE,
    LINKS_REFUSED,
    PROBING_TESTS,
    PROBING_PENDING,
    PROBING_WAITING,
    OPERATOR_INFO,
    OPERATOR_LEASE,
    OPERATOR_QUEUE,
    OPERATOR_RECONCILE,
    OPERATOR_PLANNING,
    OPERATOR_PASSES,
    OPERATOR_LAG,
    OPERATOR_WRITES,
    OPERATOR_BACKGROUND,
    OPERATOR_ERRORS,
)
