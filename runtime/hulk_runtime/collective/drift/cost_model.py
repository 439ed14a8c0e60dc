"""How long an all-reduce by given flows takes over links of given rates: a closed form.

A *use* is one crossing of a link by a flow. Its *release* is when the first chunk can be there, its *tail* how long the
last byte and what it becomes are still on their way after the link has sent it. What must pass a link within the window
[a, T - z] does so at the link's rate, so that for every link and window

    T  >=  a + z + bytes of uses with release >= a and tail >= z / rate.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from hulk_runtime.plan.flows import CollectivePlan, Flow, Pair

HOP_S: Final = 0.0006
"""Between a chunk's last byte in and its first byte out."""


@dataclass(frozen=True, slots=True)
class Use:
    """One crossing of a link."""

    release_s: float
    tail_s: float


@dataclass(frozen=True, slots=True)
class Window:
    """Of a link: from `release_s` after the beginning to `tail_s` before the end."""

    link: Pair
    release_s: float
    tail_s: float

    def holds(self, use: Use) -> bool:
        """Whether a use of its link must happen within it."""
        return use.release_s >= self.release_s and use.tail_s >= self.tail_s


@dataclass(frozen=True, slots=True)
class Timed:
    """A flow with its uses by link; the first byte's latency from the first rank to the last."""

    flow: Flow
    uses: Mapping[Pair, Sequence[Use]]
    latency_s: float

    def count(self, window: Window) -> int:
        """How often it uses the window's link within it."""
        return sum(window.holds(use) for use in self.uses.get(window.link, ()))


@dataclass(frozen=True)
class Clock:
    """Times flows of one plan. `rates`: bytes/s by link; `num_bytes`: of the vector, as it is sent."""

    plan: CollectivePlan
    rates: Mapping[Pair, float]
    num_bytes: float
    chunk_bytes: int

    @cached_property
    def _hops(self) -> dict[Pair, tuple[float, float]]:
        """By link: seconds until the next hop may begin, and those without the chunk's own time on the link."""
        found = {}
        for (a, b), link in self.plan.links.items():
            mine, theirs = len(self.plan.regions[a]), len(self.plan.regions[b])
            num_lanes = mine + theirs - math.gcd(mine, theirs)
            last_s = link.one_way_s + HOP_S
            found[a, b] = (last_s + self.chunk_bytes * num_lanes / self.rates[a, b], last_s)
        return found

    def time(self, flow: Flow) -> Timed:
        """The flow's uses; KeyError where a link is unknown."""
        return _Walk(flow, self._hops).timed()

    def seconds(self, flows: Sequence[Timed], shares: Sequence[float]) -> tuple[float, dict[Window, float]]:
        """Of flows with these shares, and for every link the window that takes longest with what it takes."""
        used = [(timed, share) for timed, share in zip(flows, shares, strict=True) if share > 0]
        by_link: dict[Pair, list[tuple[Use, float]]] = {}
        for timed, share in used:
            for link, uses in timed.uses.items():
                by_link.setdefault(link, []).extend((use, share) for use in uses)
        longest_s, windows = max(timed.latency_s for timed, _ in used), {}
        for link in sorted(by_link):
            need_s, window = self._fullest(link, by_link[link])
            windows[window] = need_s
            longest_s = max(longest_s, need_s)
        return longest_s, windows

    def need_s(self, window: Window, share: float) -> float:
        """What a share of the vector in a window needs."""
        return window.release_s + window.tail_s + share * self.num_bytes / self.rates[window.link]

    def _fullest(self, link: Pair, uses: Sequence[tuple[Use, float]]) -> tuple[float, Window]:
        found: tuple[float, Window] | None = None
        for release_s in sorted({use.release_s for use, _ in uses}):
            for tail_s in sorted({use.tail_s for use, _ in uses}):
                window = Window(link, release_s, tail_s)
                share = math.fsum(share for use, share in uses if window.holds(use))
                need_s = self.need_s(window, share) if share > 0 else 0.0
                if found is None or need_s > found[0]:
                    found = (need_s, window)
        assert found is not None
        return found


class _Walk:
    """One flow's times from the leaves of `reduce` to those of `broadcast`."""

    def __init__(self, flow: Flow, hops: Mapping[Pair, tuple[float, float]]) -> None:
        self._flow, self._hops = flow, hops
        self._up, self._down = dict(flow.reduce), dict(flow.broadcast)

    def timed(self) -> Timed:
        crossings = [
            *((pair, self._ready(pair[0]), self._after(pair[1])) for pair in self._flow.reduce),
            *(
                ((a, b), self._ready(a), self._below(b))
                for a in self._flow.exchange
                for b in self._flow.exchange
                if a != b
            ),
            *(((parent, child), self._heard(parent), self._below(child)) for child, parent in self._flow.broadcast),
        ]
        uses: dict[Pair, list[Use]] = {}
        for link, release_s, rest_s in crossings:
            uses.setdefault(link, []).append(Use(release_s, self._hops[link][1] + rest_s))
        return Timed(self._flow, uses, max(self._heard(region) for region in self._flow.regions))

    def _ready(self, region: int) -> float:
        """Until the sum of its subtree is there."""
        below = [child for child, parent in self._flow.reduce if parent == region]
        return max((self._ready(child) + self._hops[child, region][0] for child in below), default=0.0)

    def _heard(self, region: int) -> float:
        """Until the result is there."""
        if region in self._down:
            return self._heard(self._down[region]) + self._hops[self._down[region], region][0]
        others = [other for other in self._flow.exchange if other != region]
        return max([self._ready(region), *(self._ready(other) + self._hops[other, region][0] for other in others)])

    def _below(self, region: int) -> float:
        """From the result's arrival until the last region below has it."""
        below = [child for child, parent in self._flow.broadcast if parent == region]
        return max((self._hops[region, child][0] + self._below(child) for child in below), default=0.0)

    def _after(self, region: int) -> float:
        """From a contribution's arrival until the last region has the result."""
        if region in self._up:
            return self._hops[region, self._up[region]][0] + self._after(self._up[region])
        others = [other for other in self._flow.exchange if other != region]
        onward = (self._hops[region, other][0] + self._below(other) for other in others)
        return max([self._below(region), *onward])
