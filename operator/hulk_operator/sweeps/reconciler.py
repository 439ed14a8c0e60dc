"""One pass over one HulkSweep: gather, decide, carry out, write the status once.

Everything that was decided is in the sweep's HulkJobs (which exist, which are suspended, their labels) and ConfigMaps.
So a pass that is cut off anywhere loses nothing, and the next one goes on where it was.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from hulk_operator import names
from hulk_operator.api import HulkJob, HulkSweep, HulkSweepStatus
from hulk_operator.api.strict import parse
from hulk_operator.cluster import (
    EVENTS,
    HULK_JOBS,
    HULK_SWEEPS,
    ORIGIN,
    AlreadyExists,
    Cluster,
    ClusterError,
    Conflict,
    LeaseLost,
    NamespaceEnds,
    NotFound,
    Object,
    Refused,
)
from hulk_operator.reconcile.polling import Workers
from hulk_operator.status import event, finished, merge_patch
from hulk_operator.sweeps.owned_objects import create, owned_by
from hulk_operator.sweeps.shared_reconciler import POLL_S, Sharing
from hulk_operator.sweeps.shared_scheduling import plan_status, shared_job, shared_states
from hulk_operator.sweeps.status import is_news, sweep_status, transitions
from hulk_operator.sweeps.trial_jobs import job_mistakes, trial_job
from hulk_operator.sweeps.trial_scheduling import decide
from hulk_operator.sweeps.trials import Trial, mistakes, trials
from hulk_operator.sweeps.types import ChangeTrial, CreateTrial, SweepAction, SweepView, trial_state
from hulk_operator.watched import Store

logger = logging.getLogger(__name__)

CONFLICT_RETRY_S: Final = 0.2
REFUSED_RETRY_S: Final = 60.0
WRITE_S: Final = 10.0  # between two statuses that differ in steps and metrics alone


@dataclass(slots=True)
class Known:
    """What follows from a sweep's spec alone, kept from pass to pass: 1,000 trials take a while to check."""

    uid: str
    generation: int
    trials: tuple[Trial, ...]
    mistakes: tuple[str, ...]
    written: datetime | None = None


@dataclass(slots=True)
class Done:
    """What a pass found: the status to be written, and when to look again."""

    status: HulkSweepStatus
    requeue_after_s: float | None = None


class SweepReconciler:
    """Passes over sweeps. `acts`: whether this operator may still change what is there."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        workers: Workers,
        clock: Callable[[], datetime],
        acts: Callable[[], bool] = lambda: True,
    ) -> None:
        self._cluster, self._store, self._clock, self._acts = cluster, store, clock, acts
        self._sharing = Sharing(cluster, store, workers, clock, acts)
        self._known: dict[str, Known] = {}

    def num_trials(self, key: str) -> int:
        """How many trials a pass over a sweep looks at."""
        return len(self._known[key].trials) if key in self._known else 0

    async def reconcile(self, key: str) -> float | None:
        """One pass; answers after how many seconds the next one is due, None: when something happens."""
        sweep = self._store.sweeps.get(key)
        if sweep is None:
            self._known.pop(key, None)
            self._sharing.forget(key)
            return None
        if sweep.metadata.deletion_timestamp is not None:
            return None
        token = ORIGIN.set("sweep")
        try:
            done = await self._pass(sweep)
            return await self._write_status(sweep, done)
        except Conflict as error:
            logger.info("%s: %s", key, error.message)
            return CONFLICT_RETRY_S
        except NotFound as error:  # the sweep, or a job that was deleted while it was changed
            logger.info("%s: %s", key, error.message)
            return CONFLICT_RETRY_S
        finally:
            ORIGIN.reset(token)

    async def _pass(self, sweep: HulkSweep) -> Done:
        known = await self._facts(sweep)
        if sweep.spec.mode == "sharp" and not known.mistakes:
            return await self._share(sweep, known)
        refused = ""
        try:
            for action in decide(self._view(sweep, known)):
                await self._perform(sweep, action)
        except Refused as error:
            refused = error.message
            logger.warning("%s: a trial was refused: %s", sweep.key, error.message)
        return Done(sweep_status(self._view(sweep, known, refused)), REFUSED_RETRY_S if refused else None)

    async def _share(self, sweep: HulkSweep, known: Known) -> Done:
        """A pass over a sweep of mode sharp."""
        try:
            found = await self._sharing.reconcile(sweep, known.trials)
        except Refused as error:
            logger.warning("%s: the shared job was refused: %s", sweep.key, error.message)
            states = shared_states(self._sharing.view(sweep, known.trials))
            view = SweepView(sweep, sweep.status, self._clock(), states, refused=error.message)
            return Done(sweep_status(view), REFUSED_RETRY_S)
        states = shared_states(found)
        status = sweep_status(SweepView(sweep, sweep.status, self._clock(), states))
        looks_again = found.job is not None and not all(one.ended for one in states)
        return Done(plan_status(status, found.division, self._clock()), POLL_S if looks_again else None)

    def _view(self, sweep: HulkSweep, known: Known, refused: str = "") -> SweepView:
        metric = sweep.spec.objective.metric
        states = tuple(trial_state(trial, self._job_of(sweep, trial), metric) for trial in known.trials)
        return SweepView(sweep, sweep.status, self._clock(), states, known.mistakes, refused)

    async def _facts(self, sweep: HulkSweep) -> Known:
        known = self._known.get(sweep.key)
        uid, generation = sweep.metadata.uid or "", sweep.metadata.generation
        if known is None or (known.uid, known.generation) != (uid, generation):
            wrong = tuple(mistakes(sweep)) or await asyncio.to_thread(lambda: tuple(_mistakes_of_jobs(sweep)))
            known = self._known[sweep.key] = Known(uid, generation, trials(sweep), wrong)
        return known

    def _job_of(self, sweep: HulkSweep, trial: Trial) -> HulkJob | None:
        found = self._store.job(names.key(sweep.namespace, trial.name))
        return found if found is not None and owned_by(found, sweep) else None

    async def _perform(self, sweep: HulkSweep, action: SweepAction) -> None:
        match action:
            case CreateTrial(trial):
                self._store.jobs.put(await create(self._cluster, HULK_JOBS, trial_job(sweep, trial), sweep))
            case ChangeTrial():
                await self._change(sweep, action)

    async def _change(self, sweep: HulkSweep, action: ChangeTrial) -> None:
        """Only the job as it was seen: whoever changed it meanwhile may have changed what was decided by."""
        job = self._store.job(names.key(sweep.namespace, names.trial(sweep.metadata.name, action.number)))
        if job is None or (finished(job.status) and not action.labels):
            return
        if not self._acts():
            raise LeaseLost("the lease is over; nothing is deleted or changed any more")
        change: Object = {"metadata": {"labels": dict(action.labels)}} if action.labels else {}
        if action.suspend is not None:
            change["spec"] = {"suspend": action.suspend}
        version = job.metadata.resource_version
        patched = self._cluster.patch(HULK_JOBS, job.metadata.name, sweep.namespace, change, resource_version=version)
        self._store.jobs.put(await patched)

    async def _write_status(self, sweep: HulkSweep, done: Done) -> float | None:
        """Answers when the next pass is due. Steps and metrics alone are written now and then."""
        change = merge_patch(sweep.status.wire(), done.status.wire())
        known, now = self._known[sweep.key], self._clock()
        if not change:
            return done.requeue_after_s
        if known.written is not None and not is_news(sweep.status, done.status):
            left_s = WRITE_S - (now - known.written).total_seconds()
            if left_s > 0:
                return min(left_s, done.requeue_after_s or left_s)
        await self._tell(sweep, done.status)
        ORIGIN.set("status")
        written = await self._cluster.patch(
            HULK_SWEEPS,
            sweep.metadata.name,
            sweep.namespace,
            {"status": change},
            subresource="status",
            resource_version=sweep.metadata.resource_version,
        )
        known.written = now
        self._store.sweeps.put(written)
        return done.requeue_after_s

    async def _tell(self, sweep: HulkSweep, after: HulkSweepStatus) -> None:
        """Events are for people: one that cannot be written does not hold up the sweep."""
        ORIGIN.set("events")
        for transition in transitions(sweep.status, after):
            logger.info("%s: %s: %s", sweep.key, transition.reason, transition.message)
            try:
                await self._cluster.create(EVENTS, event(sweep, transition, 0, self._clock()))
            except (AlreadyExists, NamespaceEnds):
                continue
            except ClusterError as error:
                logger.warning("%s: event %s was not written: %s", sweep.key, transition.reason, error.message)


def _mistakes_of_jobs(sweep: HulkSweep) -> Iterator[str]:
    """What the API server would refuse of the sweep's HulkJobs."""
    if sweep.spec.mode == "jobs":
        yield from job_mistakes(sweep)
        return
    try:
        parse(shared_job(sweep, version=1))
    except ValueError as error:
        yield f"{names.shared_job(sweep.metadata.name)}: {str(error).splitlines()[0]}"
