"""Waiting jobs planned together: who cannot be placed, machines divided, every job laid out on its own, plans.

The division is searched with constructed layouts; layouts are then searched for in the best one, and planned.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from hulk_placement.cost.foresee import ROUNDING
from hulk_placement.cost.money import judged
from hulk_placement.layouts.admission import admitted
from hulk_placement.layouts.data_parallel import best_of
from hulk_placement.layouts.place import best_plan
from hulk_placement.plan import Plan
from hulk_placement.search.pins import bound
from hulk_placement.solution import Budget, Unplaced
from hulk_placement.solve import alike, portfolio
from hulk_placement.solve.gaps import against_all
from hulk_placement.split.arrange import Arranged
from hulk_placement.split.division import Divisions, Progress
from hulk_placement.split.estimate import IMPOSSIBLE
from hulk_placement.split.job import Job
from hulk_placement.split.laid_out import LaidOut, Work, lay_out
from hulk_placement.split.pools import Pools
from hulk_placement.stages import as_planned
from hulk_placement.stopping import RUN_S, known_steps, stopping
from hulk_placement.topology import Topology, less
from hulk_placement.workload import Workload

Clock = Callable[[], float]
Place = Callable[[Workload, Topology, Budget, Clock], Plan | Unplaced]
PlaceData = Callable[[Workload, Topology, Budget, Clock], Plan | Unplaced | None]
Search = Callable[[Divisions, Progress, int], None]
"""What was tried, how much of the work is done, and a seed; what was tried is changed."""
Outcome = tuple[dict[str, Plan], dict[str, Unplaced]]

PLANNING_SHARE, RING_SHARE = 0.2, 0.6
"""Of the seconds: for making plans of what was found; where a job has one stage only, its rings are searched anew."""

DIVISION_SHARE = 0.7
"""Of the work: to search for divisions; the rest lays out the best one."""

MIN_SECONDS = 0.01
"""What a job's plan may take where the time is over."""

COPIES_SHARE = 1 / 3
"""Of the seconds: for plans that are copied; each search for one takes half of what is left of them at most."""

ADMISSION_SHARE = 0.25
"""Of the work of a search: to look for room for one more job."""


@dataclass(frozen=True)
class Together:
    """What is common to all steps: machines that are free, what it may cost, how one job alone is planned."""

    topology: Topology
    budget: Budget
    clock: Clock
    place: Place
    place_data: PlaceData
    search: Search


def place_together(
    workloads: Sequence[Workload],
    topology: Topology,
    budget: Budget,
    clock: Clock,
    place: Place,
    place_data: PlaceData,
    search: Search = portfolio.search,
) -> Outcome:
    """Plans by key, and reasons for those that get none; `workloads` in the order in which they go first.

    `place` plans one job alone, `place_data` with data parallelism only (None where it must not).
    """
    common = Together(topology, budget, clock, place, place_data, search)
    start_s = clock()
    end_s = start_s + budget.seconds
    copied = alike.copies(workloads, topology, partial(_of_many, common, start_s + COPIES_SHARE * budget.seconds))
    if copied is not None and _is_enough(common, copied, workloads, start_s):
        return dict(copied.plans), dict(copied.refused)
    plans, refused = _by_division(common, workloads, end_s)
    if copied is not None and _product(copied.plans, workloads) < _product(plans, workloads):
        return dict(copied.plans), dict(copied.refused)
    return plans, refused


def _of_many(common: Together, end_s: float, job: Workload, left: Topology, num: int) -> Plan | Unplaced:
    """The plan of a job that stands for so many, on what others leave."""
    budget = _share(common, end_s, 2)
    outcome = common.place(job, left, replace(budget, num_waiting=budget.num_waiting / num), common.clock)
    return outcome if isinstance(outcome, Unplaced) else against_all(outcome, job, left, common.topology)


def _is_enough(common: Together, copied: alike.Copies, workloads: Sequence[Workload], start_s: float) -> bool:
    """Whether dividing the machines anew may win less than waiting for it costs: nothing, where all have their best.

    Each job's plan would take as long again as one took here. Where some have no room, it is so if these are as many as
    any plans leave out: jobs of one kind and size.
    """
    if copied.refused:
        return len(alike.kinds_of(workloads)) == 1 and workloads[0].min_workers == workloads[0].max_workers
    costs = [judged(copied.plans[job.key], job) for job in workloads]
    parts = [copied.least[job.key] / cost for job, cost in zip(workloads, costs, strict=True)]
    if min(parts) * ROUNDING >= 1.0:
        return True
    known = [known_steps(job) for job in workloads]
    runs_s = [RUN_S if num is None else num * cost for num, cost in zip(known, costs, strict=True)]
    (given, made), num_jobs, now_s = common.budget.record.begin(), len(workloads), common.clock()
    rule = stopping(replace(common.budget, num_waiting=common.budget.num_waiting / num_jobs), start_s)
    is_enough = bool(given)
    if rule is not None:
        rule.least_s = sum(run_s * part for run_s, part in zip(runs_s, parts, strict=True)) / num_jobs
        a_plan_s = (now_s - start_s) / copied.num_searches
        is_enough = rule.is_over(now_s + num_jobs * a_plan_s, sum(runs_s) / num_jobs)
    made |= {1: 100} if is_enough else {}
    return is_enough


def _product(plans: Mapping[str, Plan], workloads: Sequence[Workload]) -> tuple[int, float]:
    """How many jobs have no plan, and the logarithm of the product of what the others' steps cost."""
    costs = [judged(plans[job.key], job) for job in workloads if job.key in plans]
    return len(workloads) - len(costs), sum(math.log(cost) if cost else -math.inf for cost in costs)


def _by_division(common: Together, workloads: Sequence[Workload], end_s: float) -> Outcome:
    """The plans of a division of all machines, each job laid out on its own; the others on what these leave."""
    topology, clock = common.topology, common.clock
    alone = {job.key: _alone(common, job, end_s, len(workloads)) for job in workloads}
    refused = {key: found for key, found in alone.items() if isinstance(found, Unplaced)}
    waiting = [job for job in workloads if job.key not in refused]
    plans: dict[str, Plan] = {}
    if waiting:
        final = _divided(common, [found for found in alone.values() if isinstance(found, Workload)], end_s)
        plans = {} if final is None else _plans(common, final, end_s)
        waiting = [job for job in waiting if job.key not in plans]
    for job in waiting:  # what the others leave may do, and if not, says what is lacking
        left = _left(topology, plans.values())
        outcome = common.place(job, left, _share(common, end_s, len(waiting)), clock)
        if isinstance(outcome, Plan):
            plans[job.key] = against_all(outcome, job, left, topology)
        else:
            refused[job.key] = outcome
    return plans, refused


def _divided(common: Together, waiting: Sequence[Workload], end_s: float) -> LaidOut | None:
    """The division of all jobs; where they have no room together, of those that have, the first ones first."""
    final = _searched(common, waiting, end_s)
    if final is not None:
        return final
    placed: list[Workload] = []
    for number, job in enumerate(waiting):
        if _have_room(common, [*placed, job], _share(common, end_s, len(waiting) - number)):
            placed.append(job)
    return _searched(common, placed, end_s) if placed else None


def divisions_of(workloads: Sequence[Workload], topology: Topology) -> Divisions:
    """Nothing tried yet. Jobs go by what they are, so that their names decide nothing."""
    ordered = sorted(workloads, key=lambda job: (job.digest, job.global_batch, job.min_workers, job.max_workers))
    pools = Pools.of(ordered, topology)
    return Divisions(pools, [Job.of(job, pools, number, topology) for number, job in enumerate(ordered)])


def work_on(divisions: Divisions, budget: Budget, clock: Clock, share: float = 1.0) -> Work:
    """A share of the budget, of which nothing is spent."""
    return Work.begun(divisions, budget, clock, share)


def divide(work: Work, search: Search, seed: int) -> LaidOut | None:
    """Search for divisions with a part of the work, lay out the best with the rest; None where not all have room."""
    search(work.divisions, lambda: work.done() / DIVISION_SHARE, seed)
    return lay_out(work, seed) if work.divisions.is_any_possible() else None


def _searched(common: Together, workloads: Sequence[Workload], end_s: float) -> LaidOut | None:
    divisions, budget = divisions_of(workloads, common.topology), _share(common, end_s, 1)
    are_rings = any((job.pipeline, job.tensor) == (1, 1) for job in workloads)
    work = work_on(divisions, budget, common.clock, 1.0 - (RING_SHARE if are_rings else PLANNING_SHARE))
    return divide(work, common.search, budget.seed)


def _have_room(common: Together, workloads: Sequence[Workload], budget: Budget) -> bool:
    """Whether some division is found in which each of the jobs has a layout."""
    divisions = divisions_of(workloads, common.topology)
    work = work_on(divisions, budget, common.clock, ADMISSION_SHARE)

    def progress() -> float:
        return 1.0 if divisions.is_any_possible() else work.done()

    common.search(divisions, progress, budget.seed)
    return divisions.is_any_possible()


def _alone(common: Together, workload: Workload, end_s: float, num_jobs: int) -> Workload | Unplaced:
    """The job as machines are divided for it: with its pins as its only machines, with stages where they are needed
    even if it is alone; or why it cannot be placed then. A plan is searched for only where no layout is at hand, or
    where there are pins."""
    if not workload.pins:
        found = admitted(workload, common.topology)
        if isinstance(found, Unplaced):
            return found
        divisions = divisions_of([workload], common.topology)
        if divisions.jobs[0].value(divisions.jobs[0].most_P) < IMPOSSIBLE / 2:
            return workload
    outcome = common.place(workload, common.topology, _share(common, end_s, 2 * num_jobs), common.clock)
    if isinstance(outcome, Unplaced):
        return outcome
    return bound(workload) if workload.pins else as_planned(workload, outcome)


def _plans(common: Together, final: LaidOut, end_s: float) -> dict[str, Plan]:
    """The plan of each job on the machines that are its own."""
    plans: dict[str, Plan] = {}
    for number, arranged in enumerate(final.jobs):
        job = arranged.job.workload
        found = (
            [best_plan(arranged.trials, arranged.space, lambda: end_s - common.clock())]
            if (job.pipeline, job.tensor) != (1, 1)
            else []
        )
        data = common.place_data(job, arranged.topology, _share(common, end_s, len(final.jobs) - number), common.clock)
        found += [data] if data is not None else []
        made = [plan for plan in found if isinstance(plan, Plan)]
        if made:
            best = against_all(best_of(made, job), job, arranged.topology, common.topology)
            plans[job.key] = replace(best, why=(*best.why, *_sentences(final, arranged)))
    return plans


def _sentences(final: LaidOut, arranged: Arranged) -> tuple[str, ...]:
    num_others = len(final.jobs) - 1
    if not num_others:
        return ()
    here = sum(machine.num_accelerators for machine in arranged.topology.machines)
    others = f"{num_others} other job{'s' if num_others > 1 else ''}"
    return (
        f"Planned together with {others}, so that the product of all steps' seconds is least: "
        f"{here} of {int(final.counts.sum())} accelerators were given to this one.",
    )


def _share(common: Together, end_s: float, num_jobs: int) -> Budget:
    return replace(common.budget, seconds=max(MIN_SECONDS, (end_s - common.clock()) / num_jobs))


def _left(topology: Topology, plans: Iterable[Plan]) -> Topology:
    taken: Counter[str] = Counter()
    for plan in plans:
        taken.update(plan.accelerators())
    return less(topology, taken)
