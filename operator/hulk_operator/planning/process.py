"""The searches, in a process of their own: they may take seconds of CPU, and the operator's loop must not wait.

What the child process loads imports nothing of Kubernetes, and the operator itself loads none of it: that takes more
memory than all of the operator. A search may think for `MAX_SEARCH_S`, then the best so far is used.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import Final, TypeVar, TypeVarTuple

from hulk_placement.basis import Basis
from hulk_placement.fleet.types import Allocation, Job, Observed, Settings
from hulk_placement.plan import Plan, Prediction
from hulk_placement.replan.answer import Replanned, Situation
from hulk_placement.replan.decide import Policy
from hulk_placement.restart import Moving
from hulk_placement.solution import Budget, Solution, Unplaced, precedence
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

from hulk_operator.planning.child_process import IDLE_S, ChildProcess

logger = logging.getLogger(__name__)

MAX_SEARCH_S: Final = 30.0
"""Of all plans of a pass."""

MAX_REVIEW_S: Final = 1.0
"""Where a running job may move: a plan that is asked for meanwhile waits."""

MAX_RESUME_S: Final = 1.2
"""Where workers of a job wait for its next plan, as after a loss: they hold accelerators meanwhile."""

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


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What is promised of a plan; `transfer_s`: of the bubble, what links add to it. None: the plan has no stages."""

    prediction: Prediction
    transfer_s: float | None = None


class Search:
    """Solves problems in a child process. `failed` is told of every defect: of the search or of its process.

    A workload on which the search fails, or its process ends, costs no other one its plan. The process ends after
    `idle_s` seconds without a problem; the next one starts another.
    """

    def __init__(self, budget: Budget, failed: Callable[[], None], idle_s: float = IDLE_S) -> None:
        self._failed = failed
        self._budget = at_most(budget, MAX_SEARCH_S)
        self._searching = ChildProcess(failed, _load, idle_s)
        self._beside = ChildProcess(failed, idle_s=idle_s)
        self._num_searches = 0

    @property
    def has_process(self) -> bool:
        """Whether there is one now."""
        return self._searching.exists or self._beside.exists

    def close(self) -> None:
        """End the processes."""
        self._searching.close()
        self._beside.close()

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
        return await self._searched(_replan, question, at_most(self._budget, MAX_REVIEW_S))

    async def decide(self, asked: Competition) -> Allocation:
        """Who has which workers from now on, by the policy that the simulator calls as well."""
        return await self._searched(_decide, asked)

    async def foresee(self, plan: Plan, workload: Workload, topology: Topology) -> Foreseen:
        """What is promised of a plan. It waits for no search: a job waits for it before its first step.

        KeyError and ValueError as `cost.foresee` raises them. A process that had died is started anew.
        """
        is_free = self._searching.is_prepared and not self._num_searches
        process = self._searching if is_free else self._beside
        try:
            return await process.run(_foresee, plan, workload, topology)
        except BrokenProcessPool:
            return await process.run(_foresee, plan, workload, topology)

    async def _searched(self, work: Callable[[*Arguments], Answer], *arguments: *Arguments) -> Answer:
        self._num_searches += 1
        try:
            return await self._searching.run(work, *arguments)
        except BrokenProcessPool:
            raise  # it was told already
        except Exception:
            self._failed()
            raise
        finally:
            self._num_searches -= 1

    async def _run(self, workloads: Sequence[Workload], running: Sequence[Plan], topology: Topology) -> Solution:
        return await self._searched(_solve, workloads, running, topology, budget_for(workloads, self._budget))


def budget_for(workloads: Sequence[Workload], budget: Budget) -> Budget:
    """The budget, in less time where one of the jobs has workers that wait for its plan."""
    is_urgent = any(workload.kept for workload in workloads)
    return at_most(budget, MAX_RESUME_S) if is_urgent else budget


def at_most(budget: Budget, seconds: float) -> Budget:
    """The budget, of no more than so many seconds."""
    return replace(budget, seconds=min(budget.seconds, seconds))


# What runs in the child: only there are the searches loaded.


def _load() -> None:
    import hulk_placement.replan.replan
    import hulk_placement.solve  # noqa: F401 # while the first problem is still gathered


def _solve(workloads: Sequence[Workload], running: Sequence[Plan], topology: Topology, budget: Budget) -> Solution:
    from hulk_placement.solve import solve

    return solve(workloads, running, topology, budget)


def _replan(asked: Question, budget: Budget) -> Replanned:
    from hulk_placement.replan.replan import replan

    return replan(
        asked.plan, asked.basis, asked.workload, asked.topology, asked.situation, asked.moving, asked.policy, budget
    )


def _decide(asked: Competition) -> Allocation:
    from hulk_placement.fleet.decide import decide
    from hulk_placement.fleet.predicted import PredictedStepTimes

    times = PredictedStepTimes(asked.topology, asked.observed)
    return decide(asked.now_s, asked.jobs, asked.topology, asked.running, times, asked.settings)


def _foresee(plan: Plan, workload: Workload, topology: Topology) -> Foreseen:
    from hulk_placement.cost.breakdown import Part, step_parts
    from hulk_placement.cost.foresee import foresee

    found = foresee(plan, workload, topology)
    if plan.layout.pipeline == 1:
        return Foreseen(found)
    parts = step_parts(replace(plan, prediction=found), workload, topology)
    return Foreseen(found, sum(part.seconds for part in parts if part.part is Part.TRANSFERS))
