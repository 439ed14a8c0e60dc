"""Figures that all ranks share -> the next version of flows and beliefs: a pure function, the same on every rank."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hulk_runtime.collective.connections.pacing import within_uplinks
from hulk_runtime.collective.drift.cost_model import Clock
from hulk_runtime.collective.drift.estimate_update import judge
from hulk_runtime.collective.drift.link_estimates import Beliefs, Beside, LinkEstimate, connections, seen
from hulk_runtime.collective.drift.link_traffic import Carried, carried
from hulk_runtime.collective.drift.share_optimizer import best, seconds
from hulk_runtime.plan.flows import CollectivePlan, Flow, Pair, SizeClass

GAIN: Final = 1.1
"""Shares change when an all-reduce would else take so many times as long."""
CHANGED: Final = 0.1
"""Shares are looked at when a link's rate has changed by this share since they were last."""
SLOWED: Final = 0.75
"""A link with less of its planned rate brings in the alternatives for it."""
WIRE_SHARE: Final = {"none": 1.0, "bf16": 0.5, "int8": 65 / 256, "int4": 33 / 256}
"""Bytes between regions for a byte of float32."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The rates by link at which a class's flows were last looked at, and what the closed form holds against those.

    The plan's flows may be better than the closed form knows: what it held against them at first does not count.
    """

    rates: tuple[float, ...]
    held: float


@dataclass(frozen=True, slots=True)
class Version:
    """What holds from some operation on: classes with their flows, what is believed of links, what they carried."""

    classes: tuple[SizeClass, ...]
    beliefs: Beliefs
    looked: tuple[Looked | None, ...]
    carried: Mapping[Pair, Carried] = field(default_factory=dict)


def first(plan: CollectivePlan) -> Version:
    """What the plan says."""
    beliefs = {link: LinkEstimate.of(figures.bytes_per_s) for link, figures in sorted(plan.links.items())}
    return Version(plan.classes, beliefs, (None,) * len(plan.classes))


def given(plan: CollectivePlan, version: Version) -> dict[Pair, float]:
    """The rate by link that paces come from: what is believed, trials and all, as far as uplinks have room."""
    wanted = {link: belief.wanted(plan.links[link].bytes_per_s) for link, belief in version.beliefs.items()}
    return within_uplinks(plan, wanted, version.classes)


def following(
    plan: CollectivePlan, former: Version, figures: Sequence[float], largest_bytes: Mapping[int, int], pace: float
) -> tuple[Version, list[str]]:
    """The version after a round, and a line for each change.

    `largest_bytes` are the largest vectors that were summed, by the numbers of their classes.
    """
    told = connections(plan, figures)
    found, most = seen(plan, told), given(plan, former)
    beliefs = {
        link: judge(belief, plan.links[link].bytes_per_s, pace, found.get(link), most[link])
        for link, belief in former.beliefs.items()
    }
    classes, looked, news = list(former.classes), list(former.looked), list(_beside(former.beliefs, beliefs))
    for number, num_bytes in sorted(largest_bytes.items()):
        case = _Case(plan, plan.classes[number], num_bytes, pace)
        flows, looked[number], line = _look(case, former.classes[number].flows, former.looked[number], beliefs)
        if line:
            classes[number] = replace(classes[number], flows=flows)
            news.append(line)
    sums = carried(former.carried, told, found)
    return Version(tuple(classes), beliefs, tuple(looked), sums), news


@dataclass(frozen=True, slots=True)
class _Case:
    """A class as planned, and the vector that it is to sum quickly."""

    plan: CollectivePlan
    size: SizeClass
    num_bytes: int
    pace: float

    def clock(self, beliefs: Beliefs) -> Clock:
        carries = {link: belief.carries for link, belief in beliefs.items()}
        within = within_uplinks(self.plan, carries, (self.size,))
        rates = {link: self.pace * rate for link, rate in within.items()}
        return Clock(self.plan, rates, self.num_bytes * WIRE_SHARE[self.plan.compression], self.size.chunk_bytes)

    def choice(self, beliefs: Beliefs) -> list[Flow]:
        """The plan's own flows, and those for links that are about as slow as they were made for."""
        planned = self.plan.links
        slow = {link for link, belief in beliefs.items() if belief.carries < SLOWED * planned[link].bytes_per_s}
        others = (flow for other in self.size.alternatives if other.slow in slow for flow in other.flows)
        return [*self.size.flows, *others]


def _look(
    case: _Case, flows: tuple[Flow, ...], then: Looked | None, beliefs: Beliefs
) -> tuple[tuple[Flow, ...], Looked, str]:
    """A class's flows, and a line if they are new."""
    then = then or _planned(case)
    rates = tuple(belief.carries for belief in beliefs.values())
    if all(abs(rate - old) <= CHANGED * old for rate, old in zip(rates, then.rates, strict=True)):
        return flows, then, ""
    clock = case.clock(beliefs)
    is_s = seconds(clock, flows)
    could_s, better = best(clock, [*flows, *case.choice(beliefs)])
    if is_s < GAIN * then.held * could_s:
        return flows, Looked(rates, then.held), ""
    line = f"all-reduces of {case.num_bytes / 1e6:g} MB: new shares, {is_s:.3f} s becomes {could_s:.3f} s, believing "
    return better, Looked(rates, 1.0), line + _text(beliefs)


def _planned(case: _Case) -> Looked:
    beliefs = first(case.plan).beliefs
    clock = case.clock(beliefs)
    held = seconds(clock, case.size.flows) / best(clock, case.size.flows)[0]
    return Looked(tuple(belief.carries for belief in beliefs.values()), max(1.0, held))


def _beside(former: Beliefs, now: Beliefs) -> Iterator[str]:
    """A line for each link that began to be used at its planned pace beside others for good, or no longer is."""
    for (a, b), belief in now.items():
        is_beside = belief.beside is Beside.YES
        if is_beside != (former[a, b].beside is Beside.YES):
            how = "at its planned pace beside traffic of others" if is_beside else "paced by what it carries"
            yield f"link {a}->{b} carries {belief.carries / 1e6:.3g} MB/s, from now on {how}"


def _text(beliefs: Beliefs) -> str:
    return ", ".join(f"{a}->{b} {belief.carries / 1e6:.3g} MB/s" for (a, b), belief in beliefs.items())
