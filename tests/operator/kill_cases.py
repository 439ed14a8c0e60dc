"""What the kill tests share: an operator that is started again whenever it was killed, and what is seen of a job."""

import asyncio
import os
import signal
import traceback
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import killing
from depth import spread
from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.cluster import (
    CONFIG_MAPS,
    EVENTS,
    HULK_JOBS,
    NETWORK_POLICIES,
    PODS,
    SECRETS,
    SERVICES,
    ApiCluster,
    Object,
)
from killing import KillPoint, Record

CHILDREN = (PODS, SERVICES, CONFIG_MAPS, NETWORK_POLICIES, SECRETS)
MOMENTS = ("before", "after")
NUM_AT_ONCE = 4
SHORT_CASES = 9  # the first is before a write, the last after one: both moments are among them
CASE_S = 300.0  # a guard, not a measure: a case takes some 5 s on an idle machine
LOOK_S = 0.1


@dataclass(slots=True)
class Seen:
    """What was seen of one job on its way."""

    statuses: list[HulkJob] = field(default_factory=list)

    async def follow(self, cluster: ApiCluster, job: Object) -> None:
        """Every version of a job until it is deleted."""
        meta = job["metadata"]
        async for change in cluster.watch(HULK_JOBS, meta["namespace"], resource_version=meta["resourceVersion"]):
            if change.type == "BOOKMARK" or change.object["metadata"]["name"] != meta["name"]:
                continue
            self.statuses.append(HulkJob.model_validate(change.object))
            if change.type == "DELETED":
                return

    def check(self) -> None:
        """Attempts only grow, each is a restart but the first, and a prediction is never edited."""
        statuses = [job.status for job in self.statuses]
        attempts = [status.attempt for status in statuses]
        assert attempts == sorted(attempts)
        assert statuses[-1].restarts == statuses[-1].attempt - 1
        predictions: dict[int, Any] = {}
        for status in statuses:
            if status.prediction is not None:
                known = predictions.setdefault(status.prediction.attempt, status.prediction)
                assert status.prediction == known, "a prediction was edited"


class Operator:
    """The operator's process of one namespace, started again as its pod would be; after the kill without a kill point.

    With `trains`, rank 0 makes a step when it is told to start.
    """

    def __init__(
        self,
        forks: ForkServerContext,
        namespace: str,
        kubeconfig: Path,
        log: Path,
        point: KillPoint | Record | None,
        trains: bool = False,
    ) -> None:
        self._forks = forks
        self._arguments = (namespace, kubeconfig, log, trains)
        self._point = point
        self._process: BaseProcess | None = None
        self.num_kills = 0
        self.num_leases_lost = 0

    def keep_running(self) -> None:
        """Start it when it does not run. Only a SIGKILL and a lost lease are reasons not to."""
        if self._process is not None:
            if self._process.exitcode is None:
                return
            if self._process.exitcode == killing.EXIT_LEASE_LOST:
                self.num_leases_lost += 1
            else:
                assert self._process.exitcode == -signal.SIGKILL, f"operator ended by itself: {self._process.exitcode}"
                self.num_kills += 1
                self._point = None
        self._process = self._forks.Process(target=killing.entry, args=(*self._arguments, self._point))
        self._process.start()

    async def until_killed(self, kills: int) -> None:
        """The last write's kill may come after everything is seen."""
        while self.num_kills < kills:
            self.keep_running()
            await asyncio.sleep(LOOK_S)

    async def stop(self) -> None:
        """SIGTERM, which ends it well."""
        assert self._process is not None
        self._process.terminate()
        while self._process.exitcode is None:
            await asyncio.sleep(0.05)
        ended_well = (0, -signal.SIGTERM, killing.EXIT_LEASE_LOST)
        assert self._process.exitcode in ended_well, f"SIGTERM: exit code {self._process.exitcode}"


def selected(cases: Iterable[tuple[str, KillPoint]]) -> list[tuple[str, KillPoint]]:
    """All cases in a whole run, else some; or those whose name contains $KILL_CASES, to look at one of them."""
    wanted = os.environ.get("KILL_CASES")
    found = list(cases)
    return [case for case in found if wanted in case[0]] if wanted else spread(found, SHORT_CASES)


async def failures(
    cases: Iterable[tuple[str, KillPoint]], folder: Path, case: Callable[[int, KillPoint, Path, Seen], Awaitable[None]]
) -> list[str]:
    """Runs all cases, some at once: `case(number, point, log, seen)`. Answers what went wrong."""
    places = asyncio.Semaphore(NUM_AT_ONCE)

    async def one(number: int, name: str, point: KillPoint) -> str:
        log, seen = folder / f"{name}.log", Seen()
        async with places:
            try:
                async with asyncio.timeout(CASE_S):
                    await case(number, point, log, seen)
            except (AssertionError, TimeoutError):
                last = [job.status.wire() for job in seen.statuses[-1:]]
                said = log.read_text()[-3000:] if log.exists() else "no operator was started"
                return f"{name}: {traceback.format_exc()}\n{last}\n{said}"
        return ""

    found = await asyncio.gather(*(one(number, *case) for number, case in enumerate(cases)))
    return [failure for failure in found if failure]


async def nothing_left(cluster: ApiCluster, namespace: str) -> None:
    """Everything that was made for the job is gone with it."""
    labels = f"{names.LABEL_JOB},{names.LABEL_MANAGED_BY}={names.MANAGER}"
    while True:
        left = [item for kind in CHILDREN for item in (await cluster.list(kind, namespace, labels=labels)).items]
        if not left:
            return
        await asyncio.sleep(0.2)


async def events_said_once(cluster: ApiCluster, namespace: str, reasons: set[str]) -> None:
    """No event says the same twice, and the story is complete."""
    events = [
        item
        for item in (await cluster.list(EVENTS, namespace)).items
        if item["involvedObject"]["kind"] == names.JOB_KIND
    ]
    said = [(item["involvedObject"]["name"], item["reason"], item["message"]) for item in events]
    assert len(said) == len(set(said)), sorted(said)
    assert all(item["count"] == 1 for item in events)
    assert reasons <= {reason for _, reason, _ in said}, sorted(said)
