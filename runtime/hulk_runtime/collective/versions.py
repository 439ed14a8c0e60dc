"""Figures that all ranks share -> the next version of flows and beliefs: a pure function, the same on every rank."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from hulk_runtime.collective.beliefs import Belief, Beliefs, judge, seen
from hulk_runtime.collective.plan import CollectivePlan, Flow, SizeClass
from hulk_runtime.collective.sharing import best, seconds
from hulk_runtime.collective.timing import Clock

GAIN: Final = 1.1
"""Shares change when an all-reduce would else take so many times as long."""
CHANGED: Final = 0.1
"""Shares are looked at when a link's rate has changed by this share since they were last."""
SLOWED: Final = 0.75
"""A link with less of its planned rate brings in the alternatives for it."""
WIRE_SHARE: Final = {"none": 1.0, "bf16": 0.5, "int8": 0.25}
"""Bytes between regions for a byte of float32."""


@dataclass(frozen=True, slots=True)
class Looked:
    """When a class's shares were last looked at: the rates by link, and what the closed form held against its flows.

    The plan's flows may be better than the closed form knows: what it held against them then is no reason to change.
    """

    rates: tuple[float, ...]
    held: float


@dataclass(frozen=True, slots=True)
class Version:
    """What holds from some operation on: the size classes with their flows, and what is believed of links."""

    classes: tuple[SizeClass, ...]
    beliefs: Beliefs
    looked: tuple[Looked | None, ...]


def first(plan: CollectivePlan) -> Version:
    """What the plan says."""
    beliefs = {link: Belief(figures.bytes_per_s) for link, figures in sorted(plan.links.items())}
    return Version(plan.classes, beliefs, (None,) * len(plan.classes))


def following(
    plan: CollectivePlan, former: Version, figures: Sequence[float], sizes: frozenset[int], pace: float
) -> tuple[Version, list[str]]:
    """The version after a round, and a line for each change. `sizes` are the numbers of the classes that are in use."""
    found = seen(plan, figures)
    beliefs = {
        link: judge(belief, plan.links[link].bytes_per_s, pace, found.get(link))
        for link, belief in former.beliefs.items()
    }
    classes, looked, news = list(former.classes), list(former.looked), []
    for number in sorted(sizes):
        flows, looked[number], line = _look(plan, number, former, beliefs, pace)
        classes[number] = replace(classes[number], flows=flows)
        news += [line] if line else []
    return Version(tuple(classes), beliefs, tuple(looked)), news


def _look(
    plan: CollectivePlan, number: int, former: Version, beliefs: Beliefs, pace: float
) -> tuple[tuple[Flow, ...], Looked, str]:
    """A class's flows, and a line if they are new."""
    planned, now = plan.classes[number], former.classes[number]
    rates = tuple(belief.bytes_per_s for belief in beliefs.values())
    then = former.looked[number] or _looked(plan, planned, first(plan).beliefs, planned.flows, pace)
    if all(abs(rate - old) <= CHANGED * old for rate, old in zip(rates, then.rates, strict=True)):
        return now.flows, then, ""
    clock = _clock(plan, planned, beliefs, pace)
    is_s = seconds(clock, now.flows)
    could_s, flows = best(clock, [*now.flows, *_choice(plan, planned, beliefs)])
    if is_s < GAIN * then.held * could_s:
        return now.flows, then, ""
    size = f"all-reduces up to {planned.max_bytes / 1e6:g} MB"
    return flows, Looked(rates, 1.0), f"{size}: new shares, {is_s:.3f} s becomes {could_s:.3f} s; {_rates(beliefs)}"


def _looked(plan: CollectivePlan, size: SizeClass, beliefs: Beliefs, flows: tuple[Flow, ...], pace: float) -> Looked:
    clock = _clock(plan, size, beliefs, pace)
    held = seconds(clock, flows) / best(clock, _choice(plan, size, beliefs))[0]
    return Looked(tuple(belief.bytes_per_s for belief in beliefs.values()), max(1.0, held))


def _choice(plan: CollectivePlan, size: SizeClass, beliefs: Beliefs) -> list[Flow]:
    """The plan's own flows, and those for links that are as slow as they were made for."""
    slow = {link for link, belief in beliefs.items() if belief.bytes_per_s < SLOWED * plan.links[link].bytes_per_s}
    return [*size.flows, *(flow for other in size.alternatives if other.slow in slow for flow in other.flows)]


def _clock(plan: CollectivePlan, size: SizeClass, beliefs: Beliefs, pace: float) -> Clock:
    rates = {link: pace * belief.bytes_per_s for link, belief in beliefs.items()}
    return Clock(plan, rates, size.max_bytes * WIRE_SHARE[plan.compression], size.chunk_bytes)


def _rates(beliefs: Beliefs) -> str:
    return "believed MB/s " + ", ".join(f"{a}->{b} {belief.bytes_per_s / 1e6:.3g}" for (a, b), belief in beliefs.items())
