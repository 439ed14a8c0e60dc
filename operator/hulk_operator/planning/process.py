"""The search, in a process of its own: it may take seconds of CPU, and the operator's loop must not wait.

What the child process loads imports nothing of Kubernetes. It starts when there is something to plan, and ends after
`IDLE_S` without: at rest it would hold as much memory as the operator itself. It may think for `MAX_SEARCH_S`, then the
best so far is used; a search that does not end by itself ends with its process after `MAX_PROCESS_S`.
"""

import asyncio
import ctypes
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Final, TypeVar, TypeVarTuple

from hulk_placement.basis import Basis
from hulk_placement.fleet import Allocation, Job, Settings, decide
from hulk_placement.fleet.predicted import Observed, PredictedStepTimes
from hulk_placement.plan import Plan
from hulk_placement.replan.decide import Policy
from hulk_placement.replan.moving import Moving
from hulk_placement.replan.replan import Replanned, Situation, replan
from hulk_placement.solve import Budget, Solution, Unplaced, precedence, solve
from hulk_placement.split.warm import warm
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

logger = logging.getLogger(__name__)

MAX_SEARCH_S: Final = 30.0
"""Of all plans of a pass."""

MAX_REVIEW_S: Final = 1.0
"""Where a running job may move: a plan that is asked for meanwhile waits."""

MAX_RESUME_S: Final = 1.2
"""Where workers of a job wait for its next plan, as after a loss: they hold accelerators meanwhile."""

MAX_PROCESS_S: Final = 120
IDLE_S: Final = 300.0
"""How long the process is kept for the next problem: a new one takes seconds to load."""

_PR_SET_PDEATHSIG: Final = 1
Arguments = TypeVarTuple("Arguments")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Problem:
    """All workloads that count one kind of accelerator, and what is free for them."""

    workloads: tuple[Workload, ...]
    topology: Topology


@dataclass(frozen=True, slots=True)
class Competition:
    """Jobs that compete for one kind of accelerator: what they have, and how long their steps were seen to take.

    The topology counts what any of them holds as free.
    """

    now_s: float
    jobs: tuple[Job, ...]
    topology: Topology
    running: Mapping[str, Mapping[str, int]]
    observed: Mapping[str, Observed]
    settings: Settings


@dataclass(frozen=True, slots=True)
class Question:
    """Whether one running job is to move: its plan and what that was made of, and the cluster as it is now.

    The topology counts what the job holds as free.
    """

    plan: Plan
    basis: Basis
    workload: Workload
    topology: Topology
    situation: Situation
    moving: Moving
    policy: Policy


class Search:
    """Solves problems in a process of its own. `failed` is told of every defect: of the search or of its process.

    A workload on which the search fails, or its process ends, costs no other one its plan. The process ends after
    `idle_s` seconds without a problem; the next one starts another.
    """

    def __init__(self, budget: Budget, failed: Callable[[], None], idle_s: float = IDLE_S) -> None:
        self._budget = at_most(budget, MAX_SEARCH_S)
        self._failed = failed
        self._idle_s = idle_s
        self._pool: ProcessPoolExecutor | None = None
        self._num_running = 0
        self._ending: asyncio.TimerHandle | None = None

    @property
    def has_process(self) -> bool:
        """Whether there is one now."""
        return self._pool is not None

    def close(self) -> None:
        """End the process."""
        if self._ending is not None:
            self._ending.cancel()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    async def solve(self, problem: Problem) -> Solution:
        """All workloads together, or, where that fails, one after the other."""
        try:
            return await self._run(problem.workloads, (), problem.topology)
        except Exception:
            logger.exception("the search over %d jobs failed; it tries them one by one", len(problem.workloads))
        plans: dict[str, Plan] = {}
        unplaced: dict[str, Unplaced] = {}
        for workload in sorted(problem.workloads, key=precedence):
            try:
                alone = await self._run((workload,), tuple(plans.values()), problem.topology)
            except Exception as error:
                logger.exception("%s: the search failed", workload.key)
                unplaced[workload.key] = Unplaced("PlannerError", f"The search for a plan failed: {error!r}.")
            else:
                plans |= alone.plans
                unplaced |= alone.unplaced
        return Solution(plans, unplaced)

    async def replan(self, question: Question) -> Replanned:
        """Whether a running job is to move, in little time."""
        return await self._in_child(_replan, question, at_most(self._budget, MAX_REVIEW_S))

    async def decide(self, asked: Competition) -> Allocation:
        """Who has which workers from now on, by the policy that the simulator calls as well."""
        return await self._in_child(_decide, asked)

    async def _run(self, workloads: Sequence[Workload], running: Sequence[Plan], topology: Topology) -> Solution:
        return await self._in_child(_solve, workloads, running, topology, budget_for(workloads, self._budget))

    async def _in_child(self, work: Callable[[*Arguments], Answer], *arguments: *Arguments) -> Answer:
        loop = asyncio.get_running_loop()
        if self._ending is not None:
            self._ending.cancel()
        pool = self._pool = self._pool or new_pool()
        self._num_running += 1
        try:
            return await loop.run_in_executor(pool, work, *arguments)
        except BrokenProcessPool:
            self._failed()
            if self._pool is pool:  # another search may have begun the next one
                self.close()
            raise
        except Exception:
            self._failed()
            raise
        finally:
            self._num_running -= 1
            if not self._num_running:
                self._ending = loop.call_later(self._idle_s, self.close)


def budget_for(workloads: Sequence[Workload], budget: Budget) -> Budget:
    """The budget, in less time where one of the jobs has workers that wait for its plan."""
    is_urgent = any(workload.kept for workload in workloads)
    return at_most(budget, MAX_RESUME_S) if is_urgent else budget


def at_most(budget: Budget, seconds: float) -> Budget:
    """The budget, of no more than so many seconds."""
    return replace(budget, seconds=min(budget.seconds, seconds))


def new_pool() -> ProcessPoolExecutor:
    """One fresh process, which does not outlive this one and has loaded everything when the first job comes."""
    pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=die_with, initargs=(os.getpid(),))
    pool.submit(warm)
    return pool


def _solve(workloads: Sequence[Workload], running: Sequence[Plan], topology: Topology, budget: Budget) -> Solution:
    """`solve` in the child, whose process ends when it takes too long."""
    signal.alarm(MAX_PROCESS_S)
    try:
        return solve(workloads, running, topology, budget)
    finally:
        signal.alarm(0)


def _replan(question: Question, budget: Budget) -> Replanned:
    """`replan` in the child, whose process ends when it takes too long."""
    signal.alarm(MAX_PROCESS_S)
    try:
        asked = question
        return replan(
            asked.plan,
            asked.basis,
            asked.workload,
            asked.topology,
            asked.situation,
            asked.moving,
            asked.policy,
            budget,
        )
    finally:
        signal.alarm(0)


def _decide(asked: Competition) -> Allocation:
    """`fleet.decide` in the child, whose process ends when it takes too long."""
    signal.alarm(MAX_PROCESS_S)
    try:
        times = PredictedStepTimes(asked.topology, asked.observed)
        return decide(asked.now_s, asked.jobs, asked.topology, asked.running, times, asked.settings)
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
