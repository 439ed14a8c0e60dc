"""The fleet's decision: jobs, machines and what runs become who has which workers from now on.

A pure function, called by the operator's queue and by the simulator alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hulk_placement.fleet.policies import POLICIES, Policy
from hulk_placement.fleet.policies.improve import total_gain
from hulk_placement.fleet.problem import Problem, ask
from hulk_placement.fleet.reasons import expected_starts, moves_of, moving_reason, waiting_reason
from hulk_placement.fleet.relax import relax
from hulk_placement.fleet.types import Allocation, Job, Mapped, Settings, StepTimes
from hulk_placement.fleet.worth import all_worths
from hulk_placement.topology import Topology


def decide(
    now_s: float,
    jobs: Sequence[Job],
    topology: Topology,
    running: Mapping[str, Mapped],
    step_times: StepTimes,
    settings: Settings | None = None,
    policies: Mapping[str, Policy] = POLICIES,
) -> Allocation:
    """Who has which workers from `now_s` on; jobs whose work is done get none.

    The clock may jump: only differences to it count, and a `moved_s` that lies ahead counts for nothing. ValueError for
    a policy that there is not, or two jobs of one key.
    """
    settings = settings or Settings()
    if settings.policy not in policies:
        raise ValueError(f"policy {settings.policy!r} must be one of {', '.join(policies)}")
    if len({job.key for job in jobs}) != len(jobs):
        raise ValueError(f"{len(jobs)} jobs have only {len({job.key for job in jobs})} different keys")
    problem = ask(now_s, jobs, topology, running, step_times, settings)
    chosen = policies[settings.policy](problem)
    return _told(problem, running, chosen)


def _told(problem: Problem, running: Mapping[str, Mapped], chosen: Mapping[str, Mapped]) -> Allocation:
    """The decision with what to say to whom."""
    jobs = {job.key: job for job in problem.jobs}
    moves = moves_of(problem, running, chosen)
    if not problem.settings.explain:
        return Allocation(chosen, tuple(moves))
    reasons = {move.job: moving_reason(problem, jobs[move.job], move) for move in moves}
    waiting = [job for job in problem.jobs if job.key not in chosen]
    room = problem.room()
    for key, mapping in chosen.items():
        room.take(jobs[key], mapping)
    for position, job in enumerate(waiting, 1):
        why = waiting_reason(problem, room, job, position)
        reasons[job.key] = f"{reasons[job.key]}; {why}" if job.key in reasons else why
    return Allocation(
        workers=chosen,
        moves=tuple(moves),
        reasons=reasons,
        position={job.key: position for position, job in enumerate(waiting, 1)},
        expected_start_s=expected_starts(problem, chosen, waiting),
        shares=_shares(problem, chosen),
        **_measured(problem, chosen),
    )


def _measured(problem: Problem, chosen: Mapping[str, Mapped]) -> dict[str, float]:
    """The relaxation's bound of the gain per second, and the part of it that the decision reaches."""
    worths = all_worths(problem)
    best = relax([worths[job.key] for job in problem.jobs], problem.room())
    scale = math.exp(best.log_scale)
    achieved = total_gain(problem, worths, problem.jobs, chosen, best.log_scale)
    return {"bound": best.gain * scale, "achieved": achieved * scale}


def _shares(problem: Problem, chosen: Mapping[str, Mapped]) -> dict[str, float]:
    """Of the accelerators that are given out, each namespace's part."""
    held: dict[str, int] = {}
    for job in problem.jobs:
        count = sum(chosen.get(job.key, {}).values()) * job.accelerators_per_worker
        held[job.namespace] = held.get(job.namespace, 0) + count
    total = sum(held.values()) or 1
    return {namespace: count / total for namespace, count in held.items()}
