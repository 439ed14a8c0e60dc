"""Which ports the pods of an attempt listen on: Hulk's own everywhere, but not on their nodes' own network.

There (`hostNetwork`) pods of one job, of several jobs and whatever else a node runs share one set of ports. So each
attempt has a run of ports that no other job in force has: the first is rank 0's, where the ranks come together; the
others are for metrics, one for each worker of a node. The pods declare what they take, so that kube-scheduler keeps
them apart from pods that are not Hulk's. Hulk's own sums between regions listen on any port that is free.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from hulk_placement.plan import Plan

from hulk_operator import names
from hulk_operator.api import HostPorts, HulkJob


@dataclass(frozen=True, slots=True)
class Ports:
    """Rank 0's port, and the metrics port of each worker; empty: all have Hulk's own."""

    master: int = names.MASTER_PORT
    by_worker: tuple[int, ...] = ()

    def metrics(self, worker: int) -> int:
        """Where one worker serves its metrics."""
        return self.by_worker[worker] if self.by_worker else names.WORKER_METRICS_PORT

    @property
    def on_host(self) -> bool:
        """Whether the pods are on their nodes' own network."""
        return bool(self.by_worker)


OWN: Final = Ports()
"""The ports of pods that have an address of their own."""


def is_on_host(job: HulkJob) -> bool:
    """Whether the job's pods are on their nodes' own network."""
    return bool((job.spec.template.spec.model_extra or {}).get("hostNetwork"))


def ports(plan: Plan, run: HostPorts | None) -> Ports:
    """The ports of an attempt, from its run of its nodes' own; None: its pods have a network of their own.

    Workers on nodes a, b and a, from port 20000: rank 0 at 20000, metrics at 20001, 20001 and 20002.
    """
    if run is None:
        return OWN
    seen: Counter[str] = Counter()
    by_worker = []
    for slot in plan.workers:
        seen[slot.machine] += 1
        by_worker.append(run.first + seen[slot.machine])
    return Ports(run.first, tuple(by_worker))


def free_run(job: HulkJob, plan: Plan, taken: Collection[range]) -> HostPorts | None:
    """A run of ports for an attempt; None when none is free. `taken`: those of all other jobs in force.

    Another attempt begins elsewhere: what is left of the one before may still hold its ports.
    """
    num = 1 + max(Counter(slot.machine for slot in plan.workers).values())
    for first in _candidates(job, plan, num):
        if not any(first < run.stop and run.start < first + num for run in taken):
            return HostPorts(first=first, count=num)
    return None


def _candidates(job: HulkJob, plan: Plan, num: int) -> Iterator[int]:
    firsts = range(names.FIRST_HOST_PORT, names.LAST_HOST_PORT + 2 - num, num)
    start = crc32(f"{job.metadata.uid}:{plan.attempt}".encode()) % len(firsts)
    yield from firsts[start:]
    yield from firsts[:start]
