"""The full plan of a job's attempt: as it was decided, or as its ConfigMap holds it."""

import logging
from collections.abc import Mapping

from hulk_operator.api import HulkJob, PlanSummary
from hulk_operator.cluster import CONFIG_MAPS, Cluster, NotFound
from hulk_operator.planning.commit import read_full_plan
from hulk_operator.pods import owner_uid
from hulk_operator.reconcile.types import FullPlan

logger = logging.getLogger(__name__)


class FullPlans:
    """The last full plan of every job, as far as it is known; what is lost of it is read again."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, FullPlan] = {}
        self._unreadable: dict[str, str] = {}  # key -> digest of a plan whose ConfigMap holds something else

    @property
    def known(self) -> Mapping[str, FullPlan]:
        """By the job's key."""
        return self._known

    def keep(self, key: str, full: FullPlan) -> None:
        """The job's plan was decided."""
        self._known[key] = full

    def forget(self, key: str) -> None:
        """There is no such job."""
        self._known.pop(key, None)
        self._unreadable.pop(key, None)

    async def of(self, job: HulkJob, decided: FullPlan | None) -> FullPlan | None:
        """The plan of the attempt in force, which may be the one that was `decided`; None when it was never written."""
        summary = job.status.plan
        if summary is None:
            return None
        if decided is not None and decided.digest == summary.digest:
            self._known[job.key] = decided
        known = self._known.get(job.key)
        if known is None or known.digest != summary.digest:
            known = await self._read(job, summary)
            if known is not None:
                self._known[job.key] = known
        return known

    async def _read(self, job: HulkJob, summary: PlanSummary) -> FullPlan | None:
        """The plan in its ConfigMap; None where there is none, or something else than was planned."""
        if self._unreadable.get(job.key) == summary.digest:
            return None
        try:
            found = await self._cluster.get(CONFIG_MAPS, summary.name, job.metadata.namespace)
        except NotFound:
            return None
        full = read_full_plan(found, summary.digest) if owner_uid(found) == job.metadata.uid else None
        if full is None:
            logger.warning("%s: ConfigMap %s does not hold the plan that is in force", job.key, summary.name)
            self._unreadable[job.key] = summary.digest
        return full
