"""One size, measured: the operator starts, plans one job, then a hundred, then holds what the cluster has room for.

    start    from nothing to all nodes' links ordered
    one      a job of two workers, three times in turn
    burst    100 jobs of two workers at once, until all run and each was asked once how far it is
    load     as many jobs as the pool holds, a hundred at a time, and then as many again, which wait
    window   those as they are, for a while: what it costs to be there
    extra    one more job beside them

A wait that is not over in time is a figure of None, and the next phase begins all the same.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from hulk_operator import names
from hulk_operator.cluster import HULK_JOBS, NODE_PROFILES, PODS

from bench.api_server import Bare
from bench.scale.access import HOST
from bench.scale.clusters import Cluster, Size
from bench.scale.jobs import NAMESPACE, NUM_WORKERS, job
from bench.scale.measured import Moment, Span, counts_of, polls, span
from bench.scale.meter import METER_PATH
from bench.scale.nodes import ACCELERATORS
from bench.scale.supervised import Supervised

NUM_ONES: Final = 3
NUM_BURST: Final = 100
QUIET_S: Final = 15.0
"""Probing is settled when it has written nothing for so long."""
LOOK_S: Final = 0.5
JOBS: Final = HULK_JOBS.path(NAMESPACE)


@dataclass(frozen=True, slots=True)
class Times:
    """How long is waited for what, and how long the window is, in seconds."""

    ready_s: float = 300.0
    settle_s: float = 300.0
    one_s: float = 120.0
    burst_s: float = 300.0
    observed_s: float = 60.0
    gone_s: float = 60.0
    window_s: float = 120.0


SHORT: Final = Times(settle_s=45.0, one_s=60.0, burst_s=120.0, gone_s=60.0, window_s=30.0)


@dataclass(slots=True)
class Phases:
    """The phases of one size; `tell` is told of each that is over."""

    cluster: Cluster
    operator: Supervised
    bare: Bare
    times: Times
    tell: Callable[[Span], None]
    spans: list[Span] = field(default_factory=list)

    @property
    def size(self) -> Size:
        """Of the cluster."""
        return self.cluster.size

    async def run(self) -> list[Span]:
        """All of them."""
        await self.start()
        async with self.phase("one") as values:
            for number in range(NUM_ONES):
                values[f"bound_{number}_s"] = await self._one(f"one-{number}")
        await self.burst(NUM_BURST)
        async with self.phase("load") as values:
            await self._load(values)
        async with self.phase("window") as values:
            await self._window(values)
        async with self.phase("extra") as values:
            values["bound_s"] = await self._one("extra")
        return self.spans

    async def start(self) -> None:
        """Until probing is quiet."""
        async with self.phase("start") as values:
            values["ready_s"] = await self._until(self._is_ready, self.times.ready_s)
            values["profiles_s"] = await self._until(self._has_profiles, self.times.ready_s)
            values["settled_s"] = await self._settled()

    async def burst(self, num_jobs: int) -> None:
        """Many jobs at once."""
        bodies = [job(f"burst-{number}", "burst") for number in range(num_jobs)]
        async with self.phase("burst") as values:
            values["jobs"] = num_jobs
            values["bound_s"] = await self._bound(bodies, "burst", self.times.burst_s)
            values["observed_s"] = await self._until(partial(self._are_observed, num_jobs), self.times.observed_s)
            values["overbooked"] = await self._num_overbooked()
        await self._remove([body["metadata"]["name"] for body in bodies])

    @asynccontextmanager
    async def phase(self, name: str) -> AsyncIterator[dict[str, float | None]]:
        """Measure the block; what it found itself goes into the dictionary."""
        values: dict[str, float | None] = {}
        before = await self._moment()
        self.operator.forget()
        yield values
        after = await self._moment()
        found = span(name, before, after, self.operator.own_mib, self.operator.with_planner_mib)
        found.values.update(values)
        self.spans.append(found)
        self.tell(found)

    async def _moment(self) -> Moment:
        await asyncio.to_thread(self.operator.scrapes.look)
        meter = await self._meter()
        operator = self.operator
        ends = operator.num_ends, operator.num_too_large
        counts, samples = counts_of(meter), operator.scrapes.total()
        return Moment(
            time.monotonic(), counts, meter["renewals_s"], samples, *ends, operator.processor, operator.stood_s
        )

    async def _meter(self) -> dict[str, Any]:
        async with self.bare.session.get(self.bare.url + METER_PATH) as answer:
            found: dict[str, Any] = await answer.json()
        return found

    async def _is_ready(self) -> bool:
        await asyncio.to_thread(self.operator.scrapes.look)
        return self.operator.scrapes.total().get("hulk_operator_lease_held", 0.0) > 0

    async def _has_profiles(self) -> bool:
        async with self.bare.session.get(self.bare.url + NODE_PROFILES.path(), params={"limit": "1"}) as answer:
            page = await answer.json()
        num_found: int = len(page["items"]) + page["metadata"].get("remainingItemCount", 0)
        return num_found >= self.size.num_nodes

    async def _settled(self) -> float | None:
        """Seconds until probing began to be quiet."""
        begun_s = last_s = time.monotonic()
        before = -1
        while time.monotonic() - begun_s < self.times.settle_s:
            counts = counts_of(await self._meter())
            written = sum(row[0] for (verb, kind), row in counts.items() if kind == "nodeprofiles" and verb == "patch")
            if written != before:
                before, last_s = written, time.monotonic()
            if time.monotonic() - last_s >= QUIET_S:
                return last_s - begun_s
            await asyncio.sleep(LOOK_S)
        return None

    async def _until(self, condition: Callable[[], Awaitable[bool]], limit_s: float) -> float | None:
        """Seconds until it holds; None when it does not in time."""
        begun_s = time.monotonic()
        while not await condition():
            if time.monotonic() - begun_s > limit_s:
                return None
            await asyncio.sleep(LOOK_S)
        return time.monotonic() - begun_s

    async def _bound(self, bodies: Sequence[dict[str, Any]], batch: str, limit_s: float) -> float | None:
        """Seconds from the first request to the last pod bound; None when not all are in time."""
        last_bound = asyncio.create_task(self._last_bound(batch, len(bodies)))
        begun_s = time.monotonic()
        await self.bare.create_all(JOBS, bodies)
        done, _ = await asyncio.wait((last_bound,), timeout=limit_s)
        last_bound.cancel()
        return last_bound.result() - begun_s if done else None

    async def _last_bound(self, batch: str, num_jobs: int) -> float:
        """The time at which each job of a batch has all its pods, and each of these a node."""
        bound: defaultdict[str, set[str]] = defaultdict(set)
        async for event in self.bare.watch(PODS.path(NAMESPACE), f"bench={batch}"):
            pod = event["object"]
            of_job = bound[pod["metadata"]["labels"][names.LABEL_JOB]]
            if event["type"] == "DELETED":
                of_job.discard(pod["metadata"]["name"])
            elif pod["spec"].get("nodeName"):
                of_job.add(pod["metadata"]["name"])
            if sum(len(pods) >= NUM_WORKERS for pods in bound.values()) == num_jobs:
                return time.monotonic()
        raise AssertionError("a watch has no end")

    async def _one(self, name: str) -> float | None:
        bound_s = await self._bound([job(name, name)], name, self.times.one_s)
        await self._remove([name])
        return bound_s

    async def _remove(self, jobs: Sequence[str]) -> None:
        """Jobs and, after them, their pods."""
        for name in jobs:
            await self.bare.delete(f"{JOBS}/{name}")

        async def gone() -> bool:
            left = await self.bare.matching(PODS.path(NAMESPACE), "bench")
            return not {pod["metadata"]["labels"][names.LABEL_JOB] for pod in left} & set(jobs)

        await self._until(gone, self.times.gone_s)

    async def _load(self, values: dict[str, float | None]) -> None:
        """Seconds until the pool is full; None where a hundred of the jobs do not run in time."""
        begun_s, num_running, num_jobs = time.monotonic(), 0, self.size.num_running
        waiting = [job(f"waits-{number}", "waits", in_pool=True) for number in range(num_jobs)]
        for first in range(0, num_jobs, NUM_BURST):
            numbers = range(first, min(first + NUM_BURST, num_jobs))
            some = [job(f"load-{number}", f"load-{first}", in_pool=True) for number in numbers]
            if await self._bound(some, f"load-{first}", self.times.burst_s) is None:
                break
            num_running += len(some)
        values |= {"full_s": time.monotonic() - begun_s if num_running == num_jobs else None}
        await self.bare.create_all(JOBS, waiting)
        await self._until(partial(self._are_observed, num_jobs), self.times.observed_s)

    async def _window(self, values: dict[str, float | None]) -> None:
        since_s = time.monotonic()
        await asyncio.sleep(self.times.window_s)
        until_s = time.monotonic()
        found = polls(await self._asked(), since_s, until_s)
        states = Counter(one.get("status", {}).get("phase") for one in await self.bare.matching(JOBS, ""))
        values |= {"running_jobs": states["Running"], "jobs": states.total()}
        values |= {"polled_jobs": found.num_jobs, "poll_median_s": found.median_s, "poll_max_s": found.max_s}

    async def _asked(self) -> dict[str, list[float]]:
        """When each job's training began, and when its progress was asked for."""
        url = f"http://{HOST}:{self.cluster.life_port}/polls"
        found: dict[str, list[float]] = await asyncio.to_thread(_json, url)
        return found

    async def _are_observed(self, num_jobs: int) -> bool:
        """Whether so many jobs were asked for their progress since they train."""
        asked = (await self._asked()).values()
        return sum(any(time_s > begun_s for time_s in times) for begun_s, *times in asked) >= num_jobs

    async def _num_overbooked(self) -> float:
        """Nodes that hold more workers' accelerators than they have; nobody but the planner looks at that."""
        held: Counter[str] = Counter()
        for selector in ("bench", "app=training"):
            for pod in await self.bare.matching(PODS.path(), selector):
                limits = [container["resources"]["limits"] for container in pod["spec"]["containers"]]
                held[pod["spec"].get("nodeName", "")] += sum(int(row.get("nvidia.com/gpu", 0)) for row in limits)
        return sum(num > ACCELERATORS for node, num in held.items() if node)


def _json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)
