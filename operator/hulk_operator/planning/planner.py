"""The planning pass: one at a time, over all jobs that need a plan, and the only owner of reservations.

A plan holds its resources from the moment it is decided: first as this pass's answer, then as the committed plan of a
job's status, then as pods. The reconcile commits an answer or lets it go.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from hulk_placement.fleet.types import Settings as FleetSettings
from hulk_placement.plan import Plan
from hulk_placement.replan.decide import Policy
from hulk_placement.solution import Budget, Solution
from hulk_placement.workload import Workload

from hulk_operator import background
from hulk_operator.api import ConditionType, HulkJob
from hulk_operator.cluster import Cluster, ClusterError, Refused
from hulk_operator.inputs import topology as inputs
from hulk_operator.inputs.placement_constraints import UnusableJobError
from hulk_operator.observation import Preflight
from hulk_operator.planning.calibrate import Calibrator
from hulk_operator.planning.child_process import IDLE_S
from hulk_operator.planning.commit import compatible, packed_bases, planned
from hulk_operator.planning.dispatcher import Dispatcher, Turns
from hulk_operator.planning.full_plans import FullPlans
from hulk_operator.planning.inventory import Inventory, Reader
from hulk_operator.planning.plan_grants import solved
from hulk_operator.planning.process import Problem, Search
from hulk_operator.planning.queue_decision import in_line
from hulk_operator.planning.replan_reviewer import Reviewer
from hulk_operator.planning.reservations import Held, new_claims
from hulk_operator.pods import is_on_host
from hulk_operator.reconcile.types import Calibration, FullPlan, Order, Planned, Review, Timing, Unplanned, View
from hulk_operator.status import finished, holds
from hulk_operator.watched import Snapshot, Store

logger = logging.getLogger(__name__)

REST: Final = 10.0
"""A pass that only repeats refusals waits for so many times what it takes to see the cluster."""
GATHER_S: Final = 0.02  # jobs that arrive together are planned together
RETRY_S: Final = 1.0  # after a pass that could not read the cluster
MIN_CHANGE_INTERVAL_S: Final = 1.0  # between passes that only repeat earlier refusals
Answer = Planned | Unplanned


@dataclass(frozen=True, slots=True)
class Given:
    """An answer, and the uid of the job that it was given for: another one may have its name by now."""

    uid: str | None
    answer: Answer


class Planner:
    """Answers requests for plans, on the cluster that `seen` answers.

    `ready` is told the key of every job that has a new answer, `planned` the seconds that each pass took, `failed` is
    told of every defect: of a pass, of one job in it, of the search. Whatever a job holds, the others are planned.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        seen: Callable[[], Awaitable[Snapshot]],
        ready: Callable[[str], None],
        clock: Callable[[], datetime],
        timing: Timing | None = None,
        policy: Policy | None = None,
        budget: Budget | None = None,
        fleet: FleetSettings | None = None,
        idle_s: float = IDLE_S,
        planned: Callable[[float], None] = lambda _: None,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self._cluster = cluster
        self._reader = Reader(cluster, seen, jobs=store.all_jobs, placements=store.kueue.placement)
        self._store = store
        self._ready = ready
        self._clock = clock
        self._retry_s = (timing or Timing()).retry_plan_s
        self._search = Search(budget or Budget(), failed, idle_s)
        self._calibrator = Calibrator(self._reader, self._search, clock)
        self._wanted: set[str] = set()
        self._refused: set[str] = set()
        self._answers: dict[str, Given] = {}
        self._plans = FullPlans(cluster)
        pause_s = (timing or Timing()).review_s
        self._reviewer = Reviewer(
            store, self._reader, ready, clock, self._held, self.full_plan, policy or Policy(), pause_s
        )
        self._fleet = fleet or FleetSettings()
        self._dispatcher = Dispatcher(store, self._reader, ready, clock, self.full_plan, self._fleet, pause_s, failed)
        self._review_in_s = self._retry_s
        self._read_s = 0.0  # what it took the last pass to see the cluster
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._planned = planned
        self._failed = failed

    def request(self, key: str) -> None:
        """Plan a job as soon as possible. One that was refused as it is now waits for a change."""
        job, answer = self._store.job(key), self.decision(key)
        if job is None:
            return
        if isinstance(answer, Unplanned) and answer.generation == job.metadata.generation:
            self._refused.add(key)
            return
        self._wanted.add(key)
        self._wake.set()

    def decision(self, key: str) -> Answer | None:
        """The answer for the job that has this key now."""
        given, job = self._answers.get(key), self._store.job(key)
        return given.answer if given and job is not None and job.metadata.uid == given.uid else None

    def review(self, key: str) -> Review | None:
        """The last word on the plan of the job that has this key now."""
        job = self._store.job(key)
        return None if job is None else self._reviewer.answer(job)

    def order(self, key: str) -> Order | None:
        """The queue's word on the gang of the job that has this key now."""
        job = self._store.job(key)
        return None if job is None else self._dispatcher.order(job)

    def full_plans(self) -> Mapping[str, FullPlan]:
        """The last full plan of every job, as far as it is known here."""
        return self._plans.known

    def forget(self, key: str) -> None:
        """The job needs no plan now. A plan that was committed holds its resources by the job's status from here on."""
        answer = self.decision(key)
        had_plan = (given := self._answers.pop(key, None)) is not None and isinstance(given.answer, Planned)
        if self._store.job(key) is None:
            self._plans.forget(key)
            self._reviewer.forget(key)
            self._dispatcher.forget(key)
        elif isinstance(answer, Planned):
            self._plans.keep(key, answer.full)
        self._wanted.discard(key)
        self._refused.discard(key)
        if had_plan:
            self._changed.set()

    def changed(self) -> None:
        """Nodes, profiles, jobs or pods changed: refused jobs are tried again.

        Also when there is none now: the pass that is running may refuse one by what it has read before the change.
        """
        self._changed.set()

    async def full_plan(self, job: HulkJob) -> FullPlan | None:
        """The full plan of the attempt in force: as decided, or as written in its ConfigMap."""
        answer = self.decision(job.key)
        return await self._plans.of(job, answer.full if isinstance(answer, Planned) else None)

    async def calibrate(self, view: View, preflight: Preflight) -> Calibration | None:
        """What the ranks measured -> each node's speed, and the prediction that follows; None when it does not fit."""
        return await self._calibrator.calibrate(view, preflight)

    async def run(self) -> None:
        """Plan until cancelled."""
        try:
            while True:
                await self._wait()
                try:
                    await self._pass()
                    if not self._wanted:
                        self._review_in_s = await self._reviewer.look(self._search) or self._retry_s
                except ClusterError as error:
                    logger.warning("planning: %s", error.message)
                    self._wake.set()
                    await asyncio.sleep(RETRY_S)
                except Exception as error:
                    logger.exception("planning: the pass failed")
                    self._failed()
                    self._refuse_all(error)
        finally:
            self._search.close()

    async def _wait(self) -> None:
        """Until a job needs a plan, or a refused one may have a chance."""
        if not self._wanted:
            await background.first_of(
                self._wake.wait(), self._changed.wait(), timeout_s=min(self._retry_s, self._review_in_s)
            )
        if not self._wanted:
            pause_s = max(MIN_CHANGE_INTERVAL_S, REST * self._read_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):  # wait_for may lose a cancellation
                    await self._wake.wait()
        await asyncio.sleep(GATHER_S)
        self._wake.clear()
        self._changed.clear()
        self._wanted |= self._refused
        self._refused.clear()

    def _refuse_all(self, error: Exception) -> None:
        """A pass that failed for an unknown reason is tried again like a refused job: after a change, or a while."""
        for key in sorted(self._wanted):
            if (job := self._store.job(key)) is not None:
                self._answer(job, _defect(job, error))

    async def _pass(self) -> None:
        """One pass over everything that is wanted; what changes meanwhile is judged by the reconcile."""
        jobs = {key: job for key in sorted(self._wanted) if (job := self._store.job(key)) is not None}
        self._wanted &= jobs.keys()
        if not jobs and not self._dispatcher.is_due:
            return
        start = asyncio.get_running_loop().time()
        now = self._clock()
        held = await self._held(jobs)
        inventory = await self._reader.inventory(held, now)
        self._read_s = asyncio.get_running_loop().time() - start
        turns = await self._dispatcher.take_turns(self._search, jobs, held, inventory)
        self._refuse_waiting(jobs, turns)
        workloads = await self._workloads({key: job for key, job in jobs.items() if key not in turns.places}, inventory)
        groups: dict[str, list[Workload]] = defaultdict(list)
        for workload in workloads:
            groups[jobs[workload.key].spec.workers.resource_name].append(workload)
        problems, solutions = [], []
        for resource, group in sorted(groups.items()):
            quotas = inventory.quotas(resource, self._fleet.quotas)
            topology = await asyncio.to_thread(inventory.topology, resource)
            of_kueue = frozenset(workload.key for workload in group if jobs[workload.key].queue)
            problem, solution = await solved(self._search, group, topology, turns.grants, quotas, of_kueue)
            problems.append(problem)
            solutions.append(solution)
        await self._answer_all(jobs, problems, solutions, inventory, turns)
        self._planned(asyncio.get_running_loop().time() - start)

    def _refuse_waiting(self, jobs: Mapping[str, HulkJob], turns: Turns) -> None:
        """Tell the jobs whose turn it is not where they stand."""
        for key, place in turns.places.items():
            if key in jobs:
                generation = jobs[key].metadata.generation
                self._answer(jobs[key], Unplanned(generation, place.reason, place.message, place))

    async def _held(self, wanted: Iterable[str]) -> list[Held]:
        """Plans in force, and plans that were decided but are not committed yet (nor asked for again)."""
        in_force, decided = [], []  # at one moment: nothing is awaited between, or a commit would be in neither
        for job in self._store.all_jobs():
            if holds(job.status, ConditionType.PLANNED) and not finished(job.status):
                in_force.append(job)
        for key in self._answers.keys() - set(wanted):
            answer, decided_for = self.decision(key), self._store.job(key)
            if isinstance(answer, Planned) and decided_for is not None and not _is_committed(decided_for, answer):
                decided.append(Held(decided_for, answer.full.plan))
        plans = [(job, await self.full_plan(job)) for job in in_force]
        # without a plan: nothing was created of it yet, or its pods speak for it
        return decided + [Held(job, full.plan) for job, full in plans if full is not None]

    def _taken_ports(self, key: str) -> list[range]:
        """Ports of their nodes' own that other jobs have, by plans that are in force or decided."""
        answers = [given.answer for of, given in self._answers.items() if of != key]
        decided = [answer.summary for answer in answers if isinstance(answer, Planned)]
        in_force = [job.status.plan for of, job in self._store.jobs.items() if of != key and not finished(job.status)]
        return [plan.host_ports.run for plan in (*decided, *in_force) if plan and plan.host_ports]

    async def _workloads(self, jobs: Mapping[str, HulkJob], inventory: Inventory) -> list[Workload]:
        """The workloads of the jobs that can be planned; the others are answered at once."""
        found = []
        for job in jobs.values():
            generation = job.metadata.generation
            try:
                found.append(replace(await self._reader.workload(job, inventory), num_steps=_steps_left(job)))
            except UnusableJobError as error:
                self._answer(job, Unplanned(generation, error.reason, error.message))
            except Refused as error:  # what the job names is not for the operator to read
                self._answer(job, Unplanned(generation, "NotReadable", f"The job cannot be planned: {error.message}."))
            except ClusterError:
                raise
            except ValueError as error:
                self._answer(job, Unplanned(generation, "InvalidJob", f"The job cannot be planned: {error}."))
            except Exception as error:
                logger.exception("%s: is no workload", job.key)
                self._failed()
                self._answer(job, _defect(job, error))
        return found

    async def _answer_all(
        self,
        jobs: Mapping[str, HulkJob],
        problems: list[Problem],
        solutions: Iterable[Solution],
        inventory: Inventory,
        turns: Turns,
    ) -> None:
        room = inventory.room
        now = self._clock()
        for problem, solution in zip(problems, solutions, strict=True):
            workloads = {workload.key: workload for workload in problem.workloads}
            kept = {key: workload.kept for key, workload in workloads.items()}
            fitting = compatible(jobs, solution.plans.values(), room, kept)
            room = fitting.room
            bases = await asyncio.to_thread(packed_bases, solution.plans, workloads, problem.topology)
            for key, plan in fitting.plans.items():
                try:
                    share = grant.share if (grant := turns.grants.get(key)) else None
                    taken = self._taken_ports(key) if is_on_host(jobs[key]) else ()
                    basis = bases.get(key)
                    answer: Answer = await planned(
                        self._search, jobs[key], plan, workloads[key], problem.topology, now, basis, share, taken
                    )
                except Exception as error:
                    logger.exception("%s: its plan cannot be used", key)
                    self._failed()
                    answer = _defect(jobs[key], error)
                self._answer(jobs[key], answer)
            for key in solution.plans.keys() - fitting.plans.keys():
                self._refuse_misfit(jobs[key], solution.plans[key], kept[key], inventory)
            as_they_came = in_line(problem.workloads, solution.unplaced)
            for key, why in solution.unplaced.items():
                grant, generation = turns.grants.get(key), jobs[key].metadata.generation
                if grant is None:
                    answer = Unplanned(generation, why.reason, why.message, as_they_came.get(key))
                else:
                    place = grant.making_room
                    answer = Unplanned(generation, place.reason, place.message, place)
                self._answer(jobs[key], answer)
        if self._wanted:
            self._wake.set()  # what did not fit beside the others

    def _refuse_misfit(self, job: HulkJob, plan: Plan, kept: Mapping[str, int], inventory: Inventory) -> None:
        """A plan that does not fit even alone would be made again for ever: the planner counts otherwise than here."""
        lack = inputs.shortage(inventory.room, new_claims(Held(job, plan), kept, inventory.room.asked))
        if lack:
            message = f"The workers of the plan do not fit together: {lack}."
            self._answer(job, Unplanned(job.metadata.generation, "NotEnoughRoom", message))

    def _answer(self, job: HulkJob, answer: Answer) -> None:
        """For the job as the pass read it; it may have been forgotten, or made again, meanwhile."""
        now = self._store.job(job.key)
        if job.key not in self._wanted or now is None or now.metadata.uid != job.metadata.uid:
            return
        self._wanted.discard(job.key)
        if isinstance(answer, Unplanned):
            self._refused.add(job.key)
        self._answers[job.key] = Given(job.metadata.uid, answer)
        self._ready(job.key)


def _steps_left(job: HulkJob) -> int | None:
    """What the job has still to make, by its last checkpoint; None where it does not say how many it makes."""
    steps, kept = job.spec.training.steps, job.status.checkpoint
    return None if steps is None else max(1, steps - (kept.step if kept else 0))


def _defect(job: HulkJob, error: Exception) -> Unplanned:
    return Unplanned(job.metadata.generation, "PlannerError", f"The job could not be planned: {error!r}.")


def _is_committed(job: HulkJob, answer: Planned) -> bool:
    return job.status.plan is not None and job.status.plan.digest == answer.summary.digest
