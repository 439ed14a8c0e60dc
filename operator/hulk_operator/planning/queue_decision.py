"""A decision of the fleet's policy, and the jobs that it is about -> orders to gangs, grants and places for the others.

Where nobody waits and nobody could have more there is no contest, and every job is planned as if it were alone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

from hulk_placement.fleet.quotas import Quotas
from hulk_placement.fleet.types import Allocation, Job, Move, MoveKind, Settings
from hulk_placement.solution import Unplaced, precedence
from hulk_placement.topology import Topology
from hulk_placement.words import counted
from hulk_placement.workload import Workload

from hulk_operator.api import HulkJob
from hulk_operator.planning.fleet_jobs import Contestant, is_concerned, is_movable
from hulk_operator.reconcile.attempt_state import GROWN, MOVED, PREEMPTED_BY_PRIORITY, PREEMPTED_BY_UTILITY, SHRUNK
from hulk_operator.reconcile.types import Order, Place, Share

QUEUED: Final = "Queued"
CLUSTER_TOO_SMALL: Final = "ClusterTooSmall"
QUOTA_TOO_SMALL: Final = "QuotaTooSmall"
MAKING_ROOM: Final = "MakingRoom"
NOT_ENOUGH: Final = "NotEnoughAccelerators"  # in the planner's word
IN_LINE: Final = frozenset({NOT_ENOUGH, QUEUED, QUOTA_TOO_SMALL})
REASONS: Final = {MoveKind.GROW: GROWN, MoveKind.SHRINK: SHRUNK, MoveKind.MOVE: MOVED}
NUM_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Grant:
    """What a job that has no plan is given: so many workers on these machines. `is_free`: nobody holds them now."""

    machines: Mapping[str, int]
    is_free: bool
    share: Share
    making_room: Place

    def limited(self, workload: Workload) -> Workload:
        """The workload as it is to be planned; its own candidates say what nodes admit in truth."""
        num = sum(self.machines.values())
        admitted = {name: min(count, workload.candidates.get(name, 0)) for name, count in self.machines.items()}
        return replace(workload, min_workers=num, max_workers=num, candidates=admitted)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a decision means: orders by job that runs; grants and places by job that waits."""

    orders: Mapping[str, Order]
    grants: Mapping[str, Grant]
    places: Mapping[str, Place]


def is_contested(
    running: Sequence[tuple[HulkJob, int]], waiting: Sequence[tuple[HulkJob, int]], num_free: int, quotas: Quotas
) -> bool:
    """Whether there is something to decide. Each job of one kind of accelerator with its workers, or those it wants.

    `num_free` and `quotas`: what is left at the moment.
    """
    jobs = [job for job, _ in (*running, *waiting)]
    if not any(map(is_concerned, jobs)):
        return False
    if any(is_movable(job) and quotas.left.get(job.namespace, 0) < 0 for job, _ in running):
        return True
    if len(jobs) == 1 and jobs[0].status.share is None:
        return False
    wanted: Counter[str] = Counter()
    for job, num in waiting:
        wanted[job.namespace] += num * job.spec.workers.accelerators_per_worker
    if waiting:
        return wanted.total() > num_free or any(num > quotas.left.get(name, num) for name, num in wanted.items())
    return any(
        is_movable(job)
        and num < job.spec.workers.max
        and num_free >= job.spec.workers.accelerators_per_worker
        and quotas.workers(job.namespace, job.spec.workers.accelerators_per_worker) >= 1
        for job, num in running
    )


@dataclass(frozen=True)
class Contest:
    """What a verdict is about. `waiting`: jobs that ask for a plan; `free`: accelerators that nobody holds, by machine.
    `quotas`: what those of namespaces leave at the moment.

    `topology` is what all contestants may have together, `jobs` what the policy was told of them. `notes`: why some of
    them stop no others.
    """

    contestants: Mapping[str, Contestant]
    waiting: frozenset[str]
    jobs: Mapping[str, Job]
    topology: Topology
    free: Mapping[str, int]
    quotas: Quotas
    settings: Settings
    notes: Mapping[str, str] = field(default_factory=dict)

    def judge(self, found: Allocation) -> Verdict:
        """The decision in the operator's words."""
        grants = {key: found.workers[key] for key in sorted(self.waiting) if found.workers.get(key)}
        blocked = [key for key, machines in grants.items() if not self._can_start(key, machines)]
        givers = [move.job for move in found.moves if Counter(move.before) - Counter(move.after)]
        return Verdict(
            orders=self._orders(found),
            grants={
                key: Grant(
                    machines,
                    key not in blocked,
                    self._share(key, machines),
                    self._making_room(key, machines, blocked, givers),
                )
                for key, machines in grants.items()
            },
            places={key: self._place(key, found, len(blocked)) for key in sorted(self.waiting) if key not in grants},
        )

    def _orders(self, found: Allocation) -> dict[str, Order]:
        orders, quotas = {}, self.quotas.copy()
        for move in found.moves:
            one = self.contestants.get(move.job)
            if one is None or not move.before or move.job in self.waiting or not is_movable(one.job):
                continue
            more = Counter(move.after) - Counter(move.before)
            num_more = max(0, sum(move.after.values()) - sum(move.before.values()))
            if not self._is_free(move.job, more, num_more, quotas):
                continue  # it goes on until those who have that room have given it up
            quotas.take(one.job.namespace, num_more * self.jobs[move.job].accelerators_per_worker)
            orders[move.job] = Order(
                generation=one.job.metadata.generation,
                attempt=one.job.status.attempt,
                reason=self._reason(move, found),
                message=self._why(move, found),
                share=self._share(move.job, move.after),
            )
        return orders

    def _is_free(self, key: str, machines: Mapping[str, int], num_more: int, quotas: Quotas) -> bool:
        """Whether nobody holds these machines, nor what the quota admits."""
        job = self.jobs[key]
        if num_more > quotas.workers(job.namespace, job.accelerators_per_worker):
            return False
        return all(self.free.get(name, 0) >= num * job.accelerators_per_worker for name, num in machines.items())

    def _can_start(self, key: str, machines: Mapping[str, int]) -> bool:
        """Whether only its own pods, which stay from its last attempt, are on these machines."""
        return self.contestants[key].plan is not None or self._is_free(
            key, machines, sum(machines.values()), self.quotas
        )

    def _reason(self, move: Move, found: Allocation) -> str:
        if move.kind is not MoveKind.PREEMPT:
            return REASONS[move.kind]
        own = self.jobs[move.job].priority
        above = any(self.jobs[key].priority > own for key in self._winners(found))
        return PREEMPTED_BY_PRIORITY if above else PREEMPTED_BY_UTILITY

    def _winners(self, found: Allocation) -> list[str]:
        """The jobs that start or grow by the decision."""
        return [move.job for move in found.moves if move.kind in (MoveKind.START, MoveKind.GROW)]

    def _why(self, move: Move, found: Allocation) -> str:
        said = found.reasons.get(move.job, f"{move.kind} to {counted(sum(move.after.values()), 'worker')}")
        if move.kind not in (MoveKind.PREEMPT, MoveKind.SHRINK):
            return said
        return f"{said}; there start or grow {_few(self._winners(found))}"

    def _share(self, key: str, machines: Mapping[str, int]) -> Share:
        num = sum(machines.values())
        job = self.jobs[key]
        return Share(num, num * job.accelerators_per_worker / max(1, self._total), self._fair[job.namespace])

    @cached_property
    def _total(self) -> int:
        return sum(machine.num_accelerators for machine in self.topology.machines)

    @cached_property
    def _fair(self) -> Mapping[str, float]:
        """A job's part, by namespace, by the weights of those that have jobs here; the jobs of one are alike."""
        num_jobs = Counter(job.namespace for job in self.jobs.values())
        weights = {namespace: self.settings.shares.get(namespace, 1.0) for namespace in num_jobs}
        total = sum(weights.values())
        return {namespace: weight / total / num_jobs[namespace] for namespace, weight in weights.items()}

    def _making_room(self, key: str, machines: Mapping[str, int], blocked: list[str], givers: list[str]) -> Place:
        message = (
            f"starts with {counted(sum(machines.values()), 'worker')} as soon as others have given up their machines"
        )
        if others := [giver for giver in givers if giver != key]:
            message += f": {_few(others)}"
        position = 1 + (blocked.index(key) if key in blocked else len(blocked))
        return Place(position, MAKING_ROOM, message, None)

    def _place(self, key: str, found: Allocation, num_before: int) -> Place:
        at_s = found.expected_start_s.get(key)
        return Place(
            position=num_before + found.position.get(key, 1),
            reason=self._why_waiting(self.jobs[key]),
            message="; ".join(filter(None, (found.reasons.get(key, "waits for others"), self.notes.get(key)))),
            expected_start=None if at_s is None else _moment(at_s),
        )

    def _why_waiting(self, job: Job) -> str:
        each = job.accelerators_per_worker
        if self._num_fitting(job) < job.min_workers:
            return CLUSTER_TOO_SMALL
        return QUEUED if self.quotas.is_ever_enough(job.namespace, job.min_workers, each) else QUOTA_TOO_SMALL

    def _num_fitting(self, job: Job) -> int:
        """The workers that all machines hold; jobs that are alike have the same candidates, the same object."""
        each, candidates = job.accelerators_per_worker, job.candidates or {}
        of = each, id(job.candidates)
        if of not in self._sums:
            machines = self.topology.machines
            self._sums[of] = sum(min(m.num_accelerators // each, candidates.get(m.name, 0)) for m in machines)
        return self._sums[of]

    @cached_property
    def _sums(self) -> dict[tuple[int, int], int]:
        return {}


def in_line(workloads: Iterable[Workload], unplaced: Mapping[str, Unplaced]) -> dict[str, Place]:
    """The places of jobs that wait for accelerators where there is no contest: by priority, then by age."""
    waiting = [one.key for one in sorted(workloads, key=precedence) if one.key in unplaced]
    lacking = [(key, unplaced[key]) for key in waiting if unplaced[key].reason in IN_LINE]
    return {key: Place(position, why.reason, why.message) for position, (key, why) in enumerate(lacking, 1)}


def _few(keys: Iterable[str]) -> str:
    """
    >>> _few(["a/1", "a/2", "b/1", "b/2"])
    'a/1, a/2, b/1 and 1 more'
    """
    named = list(keys)
    more = f" and {len(named) - NUM_NAMED} more" if len(named) > NUM_NAMED else ""
    return ", ".join(named[:NUM_NAMED]) + more


def _moment(at_s: float) -> datetime | None:
    """None where the clock does not go that far."""
    try:
        return datetime.fromtimestamp(at_s, UTC)
    except (OSError, OverflowError, ValueError):
        return None
