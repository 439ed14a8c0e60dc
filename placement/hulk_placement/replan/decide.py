"""Gain against cost -> stay or move, and why, in a sentence with the numbers.

Two things keep a job from moving to and fro. A gain must exceed the cost of the move by a margin, and make the step
noticeably shorter; and what is to be gained from must last: a link counts as drifted only from `drift_factor` on, and
moves a job only after `hold_s`, at once from `sudden_factor` on; an uplink and a machine's speed alike. A machine that
was lost moves it at once, at any cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from hulk_placement.replan.changes import Changes
from hulk_placement.words import counted

ROUNDING = 1e-9
"""Of a number of steps: 500 of them are not 501 because 1 - 0.8 is a little below 0.2."""


@dataclass(frozen=True, slots=True)
class Policy:
    """When a move pays.

    `margin`: by this share of the cost the gain must exceed it. `least_faster`: by this share the step must be shorter,
    because below it predictions are no guide. A link (an uplink, a speed) that changed by less than `drift_factor` has
    not changed; one that changed by less than `sudden_factor`, and a machine that was added, count after `hold_s`.
    """

    margin: float = 0.5
    least_faster: float = 0.05
    drift_factor: float = 1.25
    sudden_factor: float = 2.0
    hold_s: float = 120.0

    def __post_init__(self) -> None:
        if not (0 <= self.margin < math.inf and 0 <= self.least_faster < 1 and 0 <= self.hold_s < math.inf):
            raise ValueError(
                f"policy: margin {self.margin} must be >= 0, least faster {self.least_faster} in [0, 1), hold "
                f"{self.hold_s} s >= 0"
            )
        if not 1 <= self.drift_factor <= self.sudden_factor:
            raise ValueError(f"policy: factors must be 1 <= drift {self.drift_factor} <= sudden {self.sudden_factor}")


class Verdict(StrEnum):
    """What is to be done."""

    STAY = "stay"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class Weighed:
    """A plan that goes on beside one to move to: steps as predicted now, steps that are left, the cost of the move.

    `unit`: of all figures, seconds, or money where the job is to be cheap ("s", "money").
    """

    step: float
    new_step: float
    steps_left: int
    cost: float
    unit: str = "s"

    @property
    def gain(self) -> float:
        """What the steps that are left take less by the new plan; below 0 where they take more."""
        return (self.step - self.new_step) * self.steps_left

    @property
    def faster(self) -> float:
        """By which share a step takes less."""
        return 1.0 - self.new_step / self.step if self.step else 0.0

    @property
    def break_even_steps(self) -> float:
        """After how many steps the move has paid; infinite where it never does."""
        return self.cost / (self.step - self.new_step) if self.step > self.new_step else math.inf


def decide(weighed: Weighed, changed: Changes, held_s: float, policy: Policy) -> tuple[Verdict, str]:
    """The verdict on a plan that could go on. `held_s`: how long the cluster has been as it is now."""
    if why := _unchanged(changed, held_s, policy):
        return Verdict.STAY, why
    gain, cost, unit = weighed.gain, weighed.cost, weighed.unit
    steps = f"{amount(weighed.step, unit)} a step -> {amount(weighed.new_step, unit)}"
    if not weighed.steps_left:
        return Verdict.STAY, f"No step is left to be made ({steps})."
    if gain <= 0:
        return Verdict.STAY, f"No other plan is better: {steps}."
    saves = f"{amount(gain, unit)} would be gained over {weighed.steps_left:,} steps ({steps})"
    if weighed.faster < policy.least_faster:
        least = f"{policy.least_faster:.0%} is the least that moves a job"
        return Verdict.STAY, f"{saves}, which is {weighed.faster:.1%} of each: {least}."
    needed = cost * (1 + policy.margin)
    if gain <= needed:
        asked = f"{amount(needed, unit)} (the cost and {policy.margin:.0%} more) must be exceeded"
        return Verdict.STAY, f"{saves}, and the move costs {amount(cost, unit)}: {asked}."
    paid = max(1, math.ceil(weighed.break_even_steps * (1 - ROUNDING)))
    return Verdict.MOVE, (
        f"{saves.replace('would be', 'is')} for {amount(cost, unit)} of moving, which "
        f"{counted(paid, 'step')} {'pays' if paid == 1 else 'pay'} back."
    )


def _unchanged(changed: Changes, held_s: float, policy: Policy) -> str:
    """Why what changed is no reason to look for a gain; empty where it is one, or nobody knows what changed."""
    if not changed.is_whole:
        return ""
    drifted = changed.beyond(policy.drift_factor)
    if not drifted and not changed.added:
        most = [f": the most changed {one.what} by a factor of {one.factor:.2f}" for one in changed.beyond(1.0)[:1]]
        least = f"{policy.drift_factor:g}, nor an uplink or a speed"
        return f"No machine was lost or added, and no link drifted by a factor of {least}{''.join(most)}."
    if held_s >= policy.hold_s or changed.beyond(policy.sudden_factor):
        return ""
    what = changed.added[0] if changed.added else drifted[0]
    return f"{what}, {held_s:.0f} s ago: only a change that lasts {policy.hold_s:g} s moves a job."


def amount(value: float, unit: str) -> str:
    """A figure for people.

    >>> amount(0.0123, "s"), amount(93.4, "s"), amount(14_400, "s"), amount(2.5, "money")
    ('0.0123 s', '93.4 s', '4 h', '2.5')
    """
    if unit != "s":
        return f"{value:.4g}"
    return f"{value / 3600:.3g} h" if abs(value) >= 7200 else f"{value:.3g} s"
