"""Changes -> what each would save, the best first: predicted with the same plan, and with a new one where it pays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from hulk_placement.advice.changes import Change, changes
from hulk_placement.cost.closed_form.pipeline import SCHEDULES
from hulk_placement.cost.memory import fits
from hulk_placement.cost.predict import predict
from hulk_placement.cost.simulate import simulate
from hulk_placement.plan import Plan
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

Replan = Callable[[Workload, Topology], Plan | None]

WORTH_SAYING = 0.005
"""Share of the step below which a change is not said to help: predictions are not that exact."""

MOST_BLOCKS = 500_000
"""Passes that are simulated at most for the changes to a plan as it is, all together: a few seconds."""

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


class _Step:
    """A plan's step by both speeds of the evaluator, each worked out when it is asked for."""

    def __init__(self, plan: Plan, workload: Workload, topology: Topology) -> None:
        self.plan, self._given = plan, (plan, workload, topology)
        self.global_batch = workload.global_batch

    @cached_property
    def closed_s(self) -> float:
        """Of a sequence."""
        return predict(*self._given).step_s / self.global_batch

    @cached_property
    def simulated_s(self) -> float:
        """Of a sequence."""
        return simulate(*self._given).step_s / self.global_batch

    def share_saved_by(self, other: _Step, may_simulate: bool) -> float:
        """Of a sequence's time, both by one evaluator: simulated where there is time, else by the closed form."""
        if may_simulate:
            return 1 - other.simulated_s / self.simulated_s
        return 1 - other.closed_s / self.closed_s


def advise(plan: Plan, workload: Workload, topology: Topology, replan: Replan | None = None) -> Advised:
    """Try every single change worth naming on a predicted plan. Gains are of each change alone and do not add up.

    `replan` makes the best plan of changed inputs: for the changes that need one, and for the best of the others.
    """
    now, named = _Step(plan, workload, topology), list(changes(plan, workload, topology))
    kept = {change.words: row for change, row in _kept(now, named)}
    if not fits(plan, workload, topology):
        return Advised(tuple(sorted(kept.values(), key=lambda row: -row.share)), len(named), are_to_fit=True)
    if replan is None:
        return Advised(_worth(kept.values()), len(kept))
    base, base_s = now, plan.prediction.step_s
    again = replan(workload, topology)
    if again is not None:
        found = _Step(again, workload, topology)
        if now.share_saved_by(found, may_simulate=True) > 0:
            base, base_s = found, min(base_s, found.simulated_s * found.global_batch)
    best = sorted(kept, key=lambda words: -kept[words].share)[:MOST_PLANNED_ANEW]
    made = [
        _row(change, base, base_s, _Step(new, change.workload, change.topology), is_new_plan=True)
        for change in named
        if (change.asks_for_new or change.words in best)
        and (new := replan(change.workload, change.topology)) is not None
    ]
    num_tried = len(kept.keys() | {row.words for row in made})
    return Advised(_worth([*kept.values(), *made]), num_tried, searched_again_s=base_s)


def _kept(now: _Step, named: Sequence[Change]) -> Iterator[tuple[Change, Advice]]:
    """Changes with what the same plan takes then, as far as it fits and there is work left to simulate it.

    A plan of too many blocks to simulate all changes has them by the closed form; where that does not know its order,
    as many as there is work for.
    """
    tried = [(c, c.plan) for c in named if c.plan is not None and fits(c.plan, c.workload, c.topology)]
    most = MOST_BLOCKS // _num_blocks(now.plan)
    may_simulate = now.plan.schedule not in SCHEDULES or len(tried) <= most
    for change, plan in tried[:most] if now.plan.schedule not in SCHEDULES else tried:
        then = _Step(plan, change.workload, change.topology)
        yield change, _row(change, now, now.plan.prediction.step_s, then, is_new_plan=False, may_simulate=may_simulate)


def _num_blocks(plan: Plan) -> int:
    """Passes of micro-batches through stages in a step."""
    return 2 * plan.layout.pipeline * sum(math.ceil(share / plan.cell_batch) for share in plan.shares)


def _row(
    change: Change, base: _Step, base_s: float, then: _Step, is_new_plan: bool, may_simulate: bool = True
) -> Advice:
    """A change against a step of `base_s` as it is promised."""
    share = base.share_saved_by(then, may_simulate)
    return Advice(change.words, base_s * (1 - share) * then.global_batch / base.global_batch, share, is_new_plan)


def _worth(rows: Iterable[Advice]) -> tuple[Advice, ...]:
    """Those that help; of a change's two ways the same plan, unless a new one helps clearly more."""
    best: dict[str, Advice] = {}
    for row in rows:
        known = best.get(row.words)
        if row.share >= WORTH_SAYING and (known is None or row.share > known.share + WORTH_SAYING):
            best[row.words] = row
    return tuple(sorted(best.values(), key=lambda row: -row.share))
