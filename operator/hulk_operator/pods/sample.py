"""HulkJob -> a worker's pod before there is a plan: what the API server is asked about, and never creates."""

from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot

from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.cluster import Object
from hulk_operator.pods.instrumentation import (
    DEFAULT_INSTRUMENTATION,
    Instrumentation,
    instrumented,
    may_be_instrumented,
)
from hulk_operator.pods.manifests import pods

_NOWHERE = "not-planned-yet"


def sample_pod(job: HulkJob, instrumentation: Instrumentation = DEFAULT_INSTRUMENTATION) -> Object:
    """Worker 0 of the job's next attempt, as if it were the only one, with all that a plan may give it."""
    num_ranks = job.spec.workers.accelerators_per_worker
    plan = Plan(
        key=job.key,
        attempt=min(job.status.attempt + 1, names.MAX_ATTEMPT),
        workers=(WorkerSlot(_NOWHERE, _NOWHERE, num_ranks),),
        shares=(1,) * num_ranks,
        micro_batch=1,
        num_buckets=1,
        prediction=NOT_PREDICTED,
        layout=Layout(num_ranks),
    )
    (pod,) = pods(job, plan, [0])
    return {**pod, "spec": instrumented(pod["spec"], instrumentation)} if may_be_instrumented(job) else pod
