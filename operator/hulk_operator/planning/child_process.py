"""A process beside the operator's, for work that takes long to compute and much memory to load."""

import asyncio
import ctypes
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Final, TypeVar, TypeVarTuple

MAX_WORK_S: Final = 120
IDLE_S: Final = 300

_PR_SET_PDEATHSIG: Final = 1
Arguments = TypeVarTuple("Arguments")
Answer = TypeVar("Answer")


class ChildProcess:
    """Starts with the first work, and ends after `idle_s` seconds without any.

    `prepare` is run first in each new one. Work that does not end by itself ends with its process after `MAX_WORK_S`.
    `died` is told of every work that lost its process.
    """

    def __init__(
        self, died: Callable[[], None], prepare: Callable[[], None] | None = None, idle_s: float = IDLE_S
    ) -> None:
        self._died = died
        self._prepare = prepare
        self._idle_s = idle_s
        self._pool: OneProcess | None = None
        self._prepared: Future[None] | None = None
        self._num_running = 0
        self._ending: asyncio.TimerHandle | None = None

    @property
    def exists(self) -> bool:
        """Whether there is one now."""
        return self._pool is not None

    @property
    def is_prepared(self) -> bool:
        """Whether work would begin at once, but for other work."""
        return self.exists and (self._prepared is None or self._prepared.done())

    def close(self) -> None:
        """End the process, whatever it computes."""
        if self._ending is not None:
            self._ending.cancel()
        if self._pool is not None:
            self._pool.kill()
            self._pool = None

    async def run(self, work: Callable[[*Arguments], Answer], *arguments: *Arguments) -> Answer:
        """What a function of a module answers there, or its exception; BrokenProcessPool when the process ended."""
        loop = asyncio.get_running_loop()
        if self._ending is not None:
            self._ending.cancel()
        if self._pool is None:
            self._pool = OneProcess()
            if self._prepare is not None:
                self._prepared = self._pool.submit(self._prepare)
        pool = self._pool
        self._num_running += 1
        try:
            return await loop.run_in_executor(pool, _bounded, work, *arguments)
        except BrokenProcessPool:
            self._died()
            if self._pool is pool:  # other work may have begun the next one
                self.close()
            raise
        finally:
            self._num_running -= 1
            if not self._num_running:
                self._ending = loop.call_later(self._idle_s, self.close)


class OneProcess(ProcessPoolExecutor):
    """One fresh process, which does not outlive this one."""

    def __init__(self) -> None:
        super().__init__(1, get_context("spawn"), initializer=die_with, initargs=(os.getpid(),))

    def kill(self) -> None:
        """End it at once: `shutdown` lets the work that runs go on, and this process could not end before it does.

        Python 3.14 has it as `kill_workers`.
        """
        children = tuple((self._processes or {}).values())
        self.shutdown(wait=False, cancel_futures=True)
        for child in children:
            child.kill()


def _bounded(work: Callable[[*Arguments], Answer], *arguments: *Arguments) -> Answer:
    """In the child: the process ends when it takes too long."""
    signal.alarm(MAX_WORK_S)
    try:
        return work(*arguments)
    finally:
        signal.alarm(0)


def die_with(parent: int) -> None:
    """In the child: end when the parent does, also when it is killed, for the pool's own pipe does not tell.

    Ctrl-C goes to the whole process group; the parent decides when the pool ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was killed before
        os._exit(1)
