"""What the watches have told so far: the newest version of every job and sweep, every worker pod and node.

When something happened is when it was first seen here. The times in pods and nodes are by other machines' clocks.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from hulk_operator.api import HulkJob, HulkSweep
from hulk_operator.cluster import Listing, Newest, Object, object_key
from hulk_operator.inputs.node import is_cordoned, offered_products, ready_condition, taints
from hulk_operator.inputs.topology import is_kept
from hulk_operator.pods import WorkerPod, is_worker, job_key_of, worker_pod
from hulk_operator.reconcile.termination_record import Farewell, farewell
from hulk_operator.reconcile.types import NodeState


class Store:
    """The cluster as last seen: jobs, worker pods by job, nodes."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self.jobs: Newest[HulkJob] = Newest(HulkJob.model_validate)
        self.sweeps: Newest[HulkSweep] = Newest(HulkSweep.model_validate)
        self.nodes: Newest[NodeState] = Newest(self._node)
        self._pods: Newest[WorkerPod] = Newest(self._worker)
        self._pods_of: dict[str, set[str]] = {}
        self._held: dict[str, Object] = {}  # worker pods as they are, that are deleted and that finalizers keep
        self._farewells: dict[str, dict[str, Farewell]] = {}  # by job and its uid; kept when the pod is gone

    def job(self, key: str) -> HulkJob | None:
        """The job of that key."""
        return self.jobs.get(key)

    def all_jobs(self) -> Iterator[HulkJob]:
        """Every job, also those that have ended."""
        return (job for _, job in self.jobs.items())

    def pod(self, key: str) -> WorkerPod | None:
        """The worker pod of that key."""
        return self._pods.get(key)

    def pods_of(self, key: str) -> tuple[WorkerPod, ...]:
        """All known pods that carry the job's name, of a deleted job of that name as well."""
        found = (self._pods.get(pod) for pod in self._pods_of.get(key, ()))
        return tuple(pod for pod in found if pod is not None)

    def num_pods_of(self, key: str) -> int:
        """How many of them there are."""
        return len(self._pods_of.get(key, ()))

    def put_pod(self, pod: Object) -> bool:
        """Take over a worker pod."""
        if not is_worker(pod) or not self._pods.put(pod):
            return False
        self._pods_of.setdefault(job_key_of(pod), set()).add(object_key(pod))
        self._note(job_key_of(pod), self._pods.get(object_key(pod)))
        self._hold(pod)
        return True

    def delete_pod(self, pod: Object) -> bool:
        """Forget a worker pod that was deleted."""
        if not is_worker(pod) or not self._pods.delete(pod):
            return False
        self._pods_of.get(job_key_of(pod), set()).discard(object_key(pod))
        self._held.pop(object_key(pod), None)
        self._note(job_key_of(pod), self._worker(pod))
        return True

    def replace_pods(self, listing: Listing) -> set[str]:
        """Take over a listing of all worker pods; answers the jobs of what changed."""
        workers = tuple(pod for pod in listing.items if is_worker(pod))
        changed = self._pods.replace(Listing(workers, listing.resource_version))
        for pod in workers:
            self._pods_of.setdefault(job_key_of(pod), set()).add(object_key(pod))
            self._note(job_key_of(pod), self._pods.get(object_key(pod)))
            if object_key(pod) in changed:
                self._hold(pod)
        jobs = {job for job, pods in self._pods_of.items() if pods & changed}
        known = {key for key, _ in self._pods.items()}
        self._held = {key: pod for key, pod in self._held.items() if key in known}
        self._pods_of = {job: alive for job, pods in self._pods_of.items() if (alive := pods & known)}
        return jobs

    def held(self) -> tuple[Object, ...]:
        """The worker pods that are deleted and that finalizers keep, of jobs that are deleted as well."""
        return tuple(self._held.values())

    def farewell_of(self, job: HulkJob) -> Farewell | None:
        """What a worker of this very job said last when it ended."""
        return self._farewells.get(job.key, {}).get(job.metadata.uid or "")

    def forget(self, key: str) -> None:
        """There is no job of that key."""
        self._farewells.pop(key, None)

    def _hold(self, pod: Object) -> None:
        if is_kept(pod):
            self._held[object_key(pod)] = pod
        else:
            self._held.pop(object_key(pod), None)

    def _worker(self, pod: Object) -> WorkerPod:
        return worker_pod(pod, self._now(), self._pods.get(object_key(pod)))

    def _node(self, node: Object) -> NodeState:
        state, before = node_state(node), self.nodes.get(object_key(node))
        return replace(state, since=before.since if before and before.ready == state.ready else self._now())

    def _note(self, key: str, pod: WorkerPod | None) -> None:
        if pod is not None and (said := farewell(pod)):
            of_job = self._farewells.setdefault(key, {})
            of_job[pod.job_uid] = max(said, of_job.get(pod.job_uid, said))

    def node_states(self) -> Mapping[str, NodeState]:
        """Every node by name."""
        return dict(self.nodes.items())

    def jobs_on(self, node: str) -> set[str]:
        """Keys of the jobs that have a pod bound to a node, or one that is not bound yet: it may be planned for it."""
        return {
            job
            for job, pods in self._pods_of.items()
            if any((found := self._pods.get(pod)) is not None and found.node in (node, "") for pod in pods)
        }


def node_state(node: Object) -> NodeState:
    """What the reconcile must know of a node; one that never reported counts as ready (it is just new)."""
    ready = ready_condition(node).get("status", "True")
    return NodeState(ready, None, is_cordoned(node), taints(node), offered_products(node))
