"""Changes -> what each would save, the best first: predicted with the same plan, and with a new one where it pays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from hulk_placement.advice.changes import Change, changes
from hulk_placement.cost import predict
from hulk_placement.cost.closed_form.pipeline import SCHEDULES
from hulk_placement.cost.memory import cells_memory
from hulk_placement.plan import Plan
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

Replan = Callable[[Workload, Topology], Plan | None]

WORTH_SAYING = 0.005
"""Share of the step below which a change is not said to help: predictions are not that exact."""

MOST_PLANNED_ANEW = 3
"""Changes that help the plan as it is, of which new plans are made as well."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What one change would do: `words` say what is different, as a phrase after "with".

    `share` of the seconds of a sequence that it saves (0.25: four sequences take the time that three took).
    `is_new_plan`: predicted for a plan that a search made for it, else for the plan as it is.
    """

    words: str
    step_s: float
    share: float
    is_new_plan: bool


@dataclass(frozen=True, slots=True)
class Advised:
    """The changes that help, the best first, and how many were tried.

    `are_to_fit`: the plan does not fit its machines; the rows are what makes it fit, even if a step then takes longer.
    `searched_again_s`: the step of the plan that the same search finds with nothing changed, which new plans are
    compared with where it is better than the plan; None where nothing was searched.
    """

    rows: tuple[Advice, ...]
    num_tried: int
    are_to_fit: bool = False
    searched_again_s: float | None = None


def advise(plan: Plan, workload: Workload, topology: Topology, replan: Replan | None = None) -> Advised:
    """Try every single change worth naming on a predicted plan. Gains are of each change alone and do not add up.

    `replan` makes the best plan of changed inputs: for the changes that need one, and for the best of the others.
    """
    named = list(changes(plan, workload, topology))
    now_s = plan.prediction.step_s / workload.global_batch
    if not fits(plan, workload, topology):
        mended = [row for change in named if (row := _same(change, now_s)) is not None]
        return Advised(tuple(sorted(mended, key=lambda row: -row.share)), len(named), are_to_fit=True)
    kept = {change.words: row for change in named if (row := _same(change, now_s)) is not None}
    if replan is None:
        return Advised(_worth(kept.values()), len(kept))
    again = replan(workload, topology)
    best_s = now_s if again is None else min(now_s, again.prediction.step_s / workload.global_batch)
    best = sorted(kept, key=lambda words: -kept[words].share)[:MOST_PLANNED_ANEW]
    made = [
        _row(change, found, best_s, is_new_plan=True)
        for change in named
        if (change.asks_for_new or change.words in best)
        and (found := replan(change.workload, change.topology)) is not None
    ]
    num_tried = len(kept.keys() | {row.words for row in made})
    return Advised(_worth([*kept.values(), *made]), num_tried, searched_again_s=best_s * workload.global_batch)


def _same(change: Change, now_s: float) -> Advice | None:
    """What the plan takes then; None where it must be a new one, or does not fit."""
    plan = change.plan
    if plan is None or plan.schedule not in SCHEDULES or not fits(plan, change.workload, change.topology):
        return None
    found = predict(plan, change.workload, change.topology)
    return _row(change, replace(plan, prediction=found), now_s, is_new_plan=False)


def _row(change: Change, plan: Plan, now_s: float, is_new_plan: bool) -> Advice:
    step_s = plan.prediction.step_s
    return Advice(change.words, step_s, 1 - step_s / change.workload.global_batch / now_s, is_new_plan)


def fits(plan: Plan, workload: Workload, topology: Topology) -> bool:
    """Whether every cell fits its machine, as far as that is known."""
    return all(
        memory.total <= (topology.machine(plan.machine(replica, stage)).memory_bytes or math.inf)
        for replica, stage, memory in cells_memory(plan, workload)
    )


def _worth(rows: Iterable[Advice]) -> tuple[Advice, ...]:
    """Those that help; of a change's two ways the same plan, unless a new one helps clearly more."""
    best: dict[str, Advice] = {}
    for row in rows:
        known = best.get(row.words)
        if row.share >= WORTH_SAYING and (known is None or row.share > known.share + WORTH_SAYING):
            best[row.words] = row
    return tuple(sorted(best.values(), key=lambda row: -row.share))
