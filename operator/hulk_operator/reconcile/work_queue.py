"""A keyed work queue: one pass running and at most one pending per key, back-off per key, delayed passes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hulk_operator import background
from hulk_operator.cluster import ClusterError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How often passes run, in seconds."""

    rest_s: float = 0.05  # after a pass, before another one of that key that events ask for
    rest_per_object_s: float = 0.0005  # more of it for each object that a pass looks at: about 20 times what that costs
    backoff_s: float = 0.2  # after a pass that failed; doubles
    max_backoff_s: float = 60.0
    num_workers: int = 16


class WorkQueue:
    """Runs `work(key)` for every added key; its answer, in seconds, asks for another pass of the same key.

    A gang of 1,000 pods is 4,000 events: after each pass its key rests, longer the more objects it has (`num_objects`).
    """

    def __init__(
        self,
        work: Callable[[str], Awaitable[float | None]],
        pace: Pace | None = None,
        failed: Callable[[], None] = lambda: None,
        num_objects: Callable[[str], int] = lambda key: 0,
    ) -> None:
        self._work = work
        self._failed = failed
        self._num_objects = num_objects
        self._pace = pace or Pace()
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._running: set[str] = set()
        self._resting: dict[str, asyncio.TimerHandle] = {}
        self._again: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._num_failures: dict[str, int] = {}

    @property
    def depth(self) -> int:
        """Keys that wait for a pass now."""
        return len(self._queued) + len(self._again)

    def add(self, key: str, after_s: float = 0.0) -> None:
        """Ask for a pass; the earliest wish counts."""
        if after_s > 0:
            self._add_later(key, after_s)
        elif key in self._running or key in self._resting:
            self._again.add(key)
        else:
            self._add_now(key)

    async def run(self) -> None:
        """Work until cancelled."""
        async with background.running() as tasks:
            for _ in range(self._pace.num_workers):
                tasks.start("worker", self._work_on)

    async def _work_on(self) -> None:
        while True:
            key = await self._ready.get()
            self._queued.discard(key)
            self._running.add(key)
            self._again.discard(key)
            if timer := self._timers.pop(key, None):
                timer.cancel()
            try:
                after_s = await self._pass(key)
                self._rest(key)
            except Exception:
                self._add_later(key, self._pace.max_backoff_s)
                raise
            finally:
                self._running.discard(key)
            if after_s == 0:
                self._add_now(key)  # the pass itself goes on at once
            elif after_s is not None:
                self._add_later(key, after_s)

    def _add_now(self, key: str) -> None:
        if key not in self._queued:
            self._queued.add(key)
            self._ready.put_nowait(key)

    def _rest(self, key: str) -> None:
        if timer := self._resting.get(key):
            timer.cancel()
        rest_s = self._pace.rest_s + self._num_objects(key) * self._pace.rest_per_object_s
        self._resting[key] = asyncio.get_running_loop().call_later(rest_s, self._rested, key)

    def _rested(self, key: str) -> None:
        del self._resting[key]
        if key in self._again and key not in self._running:
            self._again.discard(key)
            self._add_now(key)

    async def _pass(self, key: str) -> float | None:
        """One pass; when it fails, another one after a back-off."""
        try:
            after_s = await self._work(key)
        except ClusterError as error:
            logger.warning("%s: %s (%s)", key, error.message, type(error).__name__)
        except Exception:
            logger.exception("%s: the pass failed", key)
        else:
            self._num_failures.pop(key, None)
            return after_s
        self._failed()
        count = self._num_failures[key] = self._num_failures.get(key, 0) + 1
        return float(min(self._pace.max_backoff_s, self._pace.backoff_s * 2 ** min(count - 1, 16)))

    def _add_later(self, key: str, after_s: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + after_s
        known = self._timers.get(key)
        if known is not None and known.when() <= due:
            return
        if known is not None:
            known.cancel()
        self._timers[key] = loop.call_at(due, self._due, key)

    def _due(self, key: str) -> None:
        self._timers.pop(key, None)
        self.add(key)
