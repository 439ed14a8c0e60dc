"""The planning pass's other half: now and then, whether the jobs that run would do better by another plan."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import datetime

from hulk_placement.replan.decide import Policy
from hulk_placement.stages import as_planned

from hulk_operator.api import HulkJob
from hulk_operator.cluster import ClusterError
from hulk_operator.planning.inventory import Inventory, Reader
from hulk_operator.planning.process import Search
from hulk_operator.planning.replan_review import Ages, is_reviewed, question, review
from hulk_operator.planning.reservations import Held
from hulk_operator.reconcile.types import FullPlan, Review
from hulk_operator.watched import Store

logger = logging.getLogger(__name__)


class Reviewer:
    """Looks at the jobs that run, one search for each whose cluster has changed; `ready` is told who has an answer.

    Between two looks are `pause_s`, whatever changes meanwhile. Nothing here is urgent: a job that cannot be judged
    now is judged at the next look.
    """

    def __init__(
        self,
        store: Store,
        reader: Reader,
        ready: Callable[[str], None],
        clock: Callable[[], datetime],
        held: Callable[[Iterable[str]], Awaitable[list[Held]]],
        full_plan: Callable[[HulkJob], Awaitable[FullPlan | None]],
        policy: Policy,
        pause_s: float,
    ) -> None:
        self._store = store
        self._reader = reader
        self._ready = ready
        self._clock = clock
        self._held = held
        self._full_plan = full_plan
        self._policy = policy
        self._pause_s = pause_s
        self._ages = Ages()
        self._found: dict[str, tuple[str | None, Review]] = {}
        self._last: datetime | None = None

    def answer(self, job: HulkJob) -> Review | None:
        """The last word on the plan of this very job."""
        uid, found = self._found.get(job.key, (None, None))
        return found if uid == job.metadata.uid else None

    def forget(self, key: str) -> None:
        """There is no such job."""
        self._found.pop(key, None)
        self._ages.forget(key)

    async def look(self, search: Search) -> float | None:
        """Judge every job that may move, on one picture of the cluster; or say in how many seconds it is time to."""
        now = self._clock()
        left_s = self._pause_s - (now - self._last).total_seconds() if self._last is not None else 0.0
        if left_s > 0:
            return left_s
        self._last = now
        await self._judge_all(search, now)
        return None

    async def _judge_all(self, search: Search, now: datetime) -> None:
        plans = [(job, await self._full_plan(job)) for job in tuple(self._store.all_jobs())]
        judged = [(job, full) for job, full in plans if full and is_reviewed(job, full, self._policy.hold_s, now)]
        if not judged:
            return
        inventory = await self._reader.inventory(await self._held(()), now)
        for job, full in judged:
            try:
                await self._judge(search, job, full, inventory)
            except (ClusterError, ValueError) as error:
                logger.warning("%s: whether it should move is not known: %s", job.key, error)

    async def _judge(self, search: Search, job: HulkJob, full: FullPlan, inventory: Inventory) -> None:
        own = Counter(slot.machine for slot in full.plan.workers)
        workload = await self._reader.workload(job, inventory, own)
        workload = as_planned(workload, full.plan)  # where the planner chose stages, it may choose them again
        if job.status.share is not None:  # how many workers it has is for the queue to say
            num = len(full.plan.workers)
            workload = replace(workload, min_workers=num, max_workers=num)
        topology = await asyncio.to_thread(inventory.topology, job.spec.workers.resource_name)
        asked = await asyncio.to_thread(
            question, job, full, workload, topology, self._ages, self._policy, inventory.now
        )
        if asked is None:
            return
        found = review(job, await search.replan(asked))
        now = self._store.job(job.key)
        if now is not None and now.metadata.uid == job.metadata.uid:
            self._found[job.key] = job.metadata.uid, found
            self._ready(job.key)
