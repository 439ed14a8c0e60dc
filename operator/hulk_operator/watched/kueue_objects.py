"""Workloads that stand for HulkJobs in Kueue's queues, and the flavors that they are admitted to.

They are followed from the first job on that names a queue: a cluster without Kueue is not asked for its kinds.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.cluster import Newest
from hulk_operator.kueue import Flavor, Placement, WorkloadState, flavor, placement, workload_name, workload_state

NOT_READ: Final = "Kueue's objects are not read yet"
HULKS_WORKLOADS: Final = f"{names.LABEL_JOB},{names.LABEL_MANAGED_BY}={names.MANAGER}"


@dataclass(frozen=True, slots=True)
class Standing:
    """How a job stands with Kueue. `lack`: why nothing is known of it; empty: what follows is known.

    `placement`: what its Workload is admitted to, once all that it names is known.
    """

    lack: str = ""
    workload: WorkloadState | None = None
    placement: Placement | None = None


class KueueObjects:
    """As last told. `news` is told the key of a job whose Workload changed, `room` that its plan may be another one."""

    def __init__(self, news: Callable[[str], None], room: Callable[[], None]) -> None:
        self._news, self._room = news, room
        self.workloads: Newest[WorkloadState] = Newest(workload_state, self._told)
        self.flavors: Newest[Flavor] = Newest(flavor, self._told_flavor)
        self.wanted = asyncio.Event()
        self.lack = NOT_READ

    def standing(self, job: HulkJob) -> Standing:
        """How this very job stands, also one that has left its queue and whose Workload is still there."""
        if job.queue:
            self.wanted.set()
        if self.lack:
            return Standing(self.lack if job.queue else "")
        found = self.workloads.get(names.key(job.namespace, workload_name(job)))
        return Standing("", found, self._placement(found))

    def placement(self, job: HulkJob) -> Placement | None:
        """What the job was admitted to."""
        return self.standing(job).placement if job.queue else None

    def _placement(self, state: WorkloadState | None) -> Placement | None:
        return None if state is None else placement(state, dict(self.flavors.items()))

    def _told(self, key: str, was: WorkloadState | None, now: WorkloadState | None) -> None:
        known = now or was
        assert known is not None, f"nothing was told of {key}"
        self._news(names.key(names.namespace_of(key), known.job))
        if (was and was.admission) != (now and now.admission):
            self._room()

    def _told_flavor(self, name: str, was: Flavor | None, now: Flavor | None) -> None:
        if was == now:
            return
        for key in self._jobs_of(name):
            self._news(key)
        self._room()

    def _jobs_of(self, flavor_name: str) -> Iterator[str]:
        for key, state in self.workloads.items():
            if state.admission is not None and flavor_name in state.admission.flavors:
                yield names.key(names.namespace_of(key), state.job)
