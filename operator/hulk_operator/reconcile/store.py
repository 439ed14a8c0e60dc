"""What the watches have told so far: the newest version of every job, every worker pod and every node.

Events and listings arrive through different connections, in any order: an object only ever replaces an older version of
itself, and a deleted one does not come back from a listing that was made before its deletion.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from hulk_operator.api import HulkJob
from hulk_operator.cluster import Listing, Object
from hulk_operator.inputs.node import ready_condition
from hulk_operator.pods import WorkerPod, is_worker, job_key_of, worker_pod
from hulk_operator.pods.worker import parse_time
from hulk_operator.reconcile.farewell import Farewell, farewell
from hulk_operator.reconcile.types import NodeState

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Collection(Generic[T]):
    """The newest known version of each object of one kind, parsed once; keys are `namespace/name` or `name`."""

    def __init__(self, parse: Callable[[Object], T]) -> None:
        self._parse = parse
        self._items: dict[str, tuple[int, T]] = {}
        self._deleted: dict[str, int] = {}

    def get(self, key: str) -> T | None:
        """The object, None when it is not known (any more)."""
        found = self._items.get(key)
        return found[1] if found else None

    def items(self) -> Iterator[tuple[str, T]]:
        """All objects by key."""
        return ((key, item) for key, (_, item) in self._items.items())

    def put(self, item: Object) -> bool:
        """Take over an object; False when the same or a newer version is known, a later deletion, or it is unreadable.

        One object that another version of the schema let through must not stop the operator for all others.
        """
        key, version = object_key(item), _version(item)
        known = self._items.get(key)
        if (known and known[0] >= version) or self._deleted.get(key, -1) >= version:
            return False
        try:
            self._items[key] = (version, self._parse(item))
        except ValueError as error:
            logger.warning("%s cannot be read and is left as it is: %s", key, error)
            return False
        return True

    def delete(self, item: Object) -> bool:
        """Forget an object that was deleted; False when a newer one of its name is known."""
        key, version = object_key(item), _version(item)
        self._deleted[key] = max(version, self._deleted.get(key, -1))
        known = self._items.get(key)
        if known is None or known[0] > version:
            return False
        del self._items[key]
        return True

    def replace(self, listing: Listing) -> set[str]:
        """Take over a listing; answers the keys of what changed, deletions included."""
        at = int(listing.resource_version)
        changed = {object_key(item) for item in listing.items if self.put(item)}
        listed = {object_key(item) for item in listing.items}
        gone = {key for key, (version, _) in self._items.items() if key not in listed and version <= at}
        for key in gone:
            del self._items[key]
        self._deleted = {key: version for key, version in self._deleted.items() if version > at}
        return changed | gone


class Store:
    """The cluster as last seen: jobs, worker pods by job, nodes."""

    def __init__(self) -> None:
        self.jobs: Collection[HulkJob] = Collection(HulkJob.model_validate)
        self.nodes: Collection[NodeState] = Collection(node_state)
        self._pods: Collection[WorkerPod] = Collection(worker_pod)
        self._pods_of: dict[str, set[str]] = {}
        self._farewells: dict[str, dict[str, Farewell]] = {}  # by job and its uid; kept when the pod is gone

    def job(self, key: str) -> HulkJob | None:
        """The job of that key."""
        return self.jobs.get(key)

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
        return True

    def delete_pod(self, pod: Object) -> bool:
        """Forget a worker pod that was deleted."""
        if not is_worker(pod) or not self._pods.delete(pod):
            return False
        self._pods_of.get(job_key_of(pod), set()).discard(object_key(pod))
        self._note(job_key_of(pod), worker_pod(pod))
        return True

    def replace_pods(self, listing: Listing) -> set[str]:
        """Take over a listing of all worker pods; answers the jobs of what changed."""
        workers = tuple(pod for pod in listing.items if is_worker(pod))
        changed = self._pods.replace(Listing(workers, listing.resource_version))
        for pod in workers:
            self._pods_of.setdefault(job_key_of(pod), set()).add(object_key(pod))
            self._note(job_key_of(pod), self._pods.get(object_key(pod)))
        jobs = {job for job, pods in self._pods_of.items() if pods & changed}
        known = {key for key, _ in self._pods.items()}
        self._pods_of = {job: alive for job, pods in self._pods_of.items() if (alive := pods & known)}
        return jobs

    def farewell_of(self, job: HulkJob) -> Farewell | None:
        """What a worker of this very job said last when it ended."""
        return self._farewells.get(job.key, {}).get(job.metadata.uid or "")

    def forget(self, key: str) -> None:
        """There is no job of that key."""
        self._farewells.pop(key, None)

    def _note(self, key: str, pod: WorkerPod | None) -> None:
        if pod is not None and (said := farewell(pod)):
            of_job = self._farewells.setdefault(key, {})
            of_job[pod.job_uid] = max(said, of_job.get(pod.job_uid, said))

    def node_states(self) -> Mapping[str, NodeState]:
        """Every node by name."""
        return dict(self.nodes.items())

    def jobs_on(self, node: str) -> set[str]:
        """Keys of the jobs that have a pod bound to a node."""
        return {
            job
            for job, pods in self._pods_of.items()
            if any((found := self._pods.get(pod)) is not None and found.node == node for pod in pods)
        }


def object_key(item: Object) -> str:
    """`namespace/name`, or the name of a cluster-scoped object."""
    namespace = item["metadata"].get("namespace")
    name: str = item["metadata"]["name"]
    return f"{namespace}/{name}" if namespace else name


def node_state(node: Object) -> NodeState:
    """What the reconcile must know of a node; one that never reported counts as ready (it is just new)."""
    ready = ready_condition(node)
    return NodeState(ready.get("status", "True"), parse_time(ready.get("lastTransitionTime")))


def _version(item: Object) -> int:
    return int(item["metadata"]["resourceVersion"])
