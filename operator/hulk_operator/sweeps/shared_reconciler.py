"""The I/O of sweeps of mode sharp: asks the workers how their trials are, and carries out what `shared` decides."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from hulk_operator import names
from hulk_operator.api import HulkJob, HulkSweep
from hulk_operator.cluster import CONFIG_MAPS, HULK_JOBS, Cluster, LeaseLost, NotFound
from hulk_operator.observation import Expected, ObservedTrial, ObserveError
from hulk_operator.pods import WorkerPod
from hulk_operator.reconcile.polling import Workers
from hulk_operator.sweeps.owned_objects import create, owned_by
from hulk_operator.sweeps.shared_scheduling import (
    ChangeShared,
    CreateShared,
    SharedAction,
    SharedView,
    WriteDivision,
    decide_shared,
    farewells,
    merged,
    remembered,
    version_of,
)
from hulk_operator.sweeps.trial_assignment import Division, config_map, number_of, read
from hulk_operator.sweeps.trials import Trial
from hulk_operator.watched import Store

logger = logging.getLogger(__name__)

POLL_S: Final = 3.0
MAX_ACTIONS: Final = 4  # of one pass: divide, create, change, and one to see that nothing is left


@dataclass(slots=True)
class Remembered:
    """What is known of a sweep beside the API server; losing it costs time, never correctness."""

    uid: str
    division: Division | None
    seen: dict[int, ObservedTrial]


@dataclass(slots=True)
class Sharing:
    """Passes over sweeps whose trials share devices. `acts`: whether this operator may still change what is there."""

    cluster: Cluster
    store: Store
    workers: Workers
    clock: Callable[[], datetime]
    acts: Callable[[], bool]
    _known: dict[str, Remembered] = field(default_factory=dict)

    def forget(self, key: str) -> None:
        """The sweep is gone."""
        self._known.pop(key, None)

    async def reconcile(self, sweep: HulkSweep, trials: tuple[Trial, ...]) -> SharedView:
        """Look, and do what is due; answers what is known then."""
        known = await self._remember(sweep, trials)
        await self._look(sweep, known)
        for _ in range(MAX_ACTIONS):
            view = self.view(sweep, trials)
            action = await asyncio.to_thread(decide_shared, view)  # a division takes a second
            if action is None:
                break
            await self._perform(view, action, known)
        return self.view(sweep, trials)

    def view(self, sweep: HulkSweep, trials: tuple[Trial, ...]) -> SharedView:
        """What is known now."""
        known = self._known.get(sweep.key) or Remembered("", None, {})
        return SharedView(sweep, self.clock(), trials, self._job(sweep), known.division, dict(known.seen))

    def _job(self, sweep: HulkSweep) -> HulkJob | None:
        found = self.store.job(names.key(sweep.namespace, names.shared_job(sweep.metadata.name)))
        return found if found is not None and owned_by(found, sweep) else None

    async def _remember(self, sweep: HulkSweep, trials: tuple[Trial, ...]) -> Remembered:
        """After a start of the operator: the division that was written last, and what the status says of trials."""
        known, uid = self._known.get(sweep.key), sweep.metadata.uid or ""
        if known is None or known.uid != uid:
            job = self._job(sweep)
            version = version_of(job) if job else 0
            division = await self._stored(sweep, version + 1) or (await self._stored(sweep, version) if job else None)
            known = self._known[sweep.key] = Remembered(uid, division, remembered(sweep.status.table, trials))
        return known

    async def _stored(self, sweep: HulkSweep, version: int) -> Division | None:
        """The division of that version, if it was written for this very sweep."""
        try:
            name = names.trials_config_map(sweep.metadata.name, version)
            found = await self.cluster.get(CONFIG_MAPS, name, sweep.namespace)
        except NotFound:
            return None
        owners = found["metadata"].get("ownerReferences") or ()
        return read(found) if any(owner["uid"] == sweep.metadata.uid for owner in owners) else None

    async def _look(self, sweep: HulkSweep, known: Remembered) -> None:
        """What workers say, and what those said that have ended."""
        job = self._job(sweep)
        if job is None:
            return
        pods = [pod for pod in self.store.pods_of(job.key) if pod.job_uid == job.metadata.uid]
        last = max((pod.attempt for pod in pods), default=0)
        known.seen = merged(known.seen, farewells(pod for pod in pods if pod.attempt == last))
        running = [pod for pod in pods if pod.running and pod.ip and pod.attempt == job.status.attempt]
        plan = job.status.plan
        expected = Expected(plan.num_accelerators if plan else 1)
        for news in await asyncio.gather(*(self._ask(pod, expected) for pod in running)):
            known.seen = merged(known.seen, news)

    async def _ask(self, pod: WorkerPod, expected: Expected) -> dict[int, ObservedTrial]:
        try:
            said = (await self.workers.metrics(pod.address, expected)).trials
        except ObserveError as error:
            logger.debug("%s: %s", pod.name, error)
            return {}
        return {trial: one for name, one in said.items() if (trial := number_of(name)) is not None}

    async def _perform(self, view: SharedView, action: SharedAction, known: Remembered) -> None:
        sweep = view.sweep
        match action:
            case WriteDivision(division):
                body = config_map(sweep, division, {trial.number: trial for trial in view.trials})
                known.division = read(await create(self.cluster, CONFIG_MAPS, body, sweep))
            case CreateShared(body):
                self.store.jobs.put(await create(self.cluster, HULK_JOBS, body, sweep))
            case ChangeShared(change):
                if not self.acts():
                    raise LeaseLost("the lease is over; nothing is deleted or changed any more")
                assert view.job is not None
                meta = view.job.metadata
                version = meta.resource_version
                patched = self.cluster.patch(HULK_JOBS, meta.name, sweep.namespace, change, resource_version=version)
                self.store.jobs.put(await patched)
