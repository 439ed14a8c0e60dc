"""How the time within which every rank knows of a loss is shared out, whatever that time is.

    share   after                                      what happens
    0.60    SILENT_SHARE                               a rank that stands still is lost
    0.01    TICK_SHARE                                 it is looked for only so often
    0.20    REGROUP_SHARE (where others may go on)     it was only part of a region: the group ends
    0.15    SETTLE_SHARE                               all raise the same error, though somebody said nothing
    0.04                                               left for words that are under way

Two ranks that stand still at the same moment were heard last up to a beat apart. So one is found up to a beat and a
look later than the other, and the others still wait then, in either way of ending: 1/16 + 0.02 < 0.15.
"""

from dataclasses import dataclass
from typing import Final

SILENT_SHARE: Final = 0.6
REGROUP_SHARE: Final = 0.2
SETTLE_SHARE: Final = 0.15
BEATS_PER_BOUND: Final = 16
TICK_SHARE: Final = 0.01
TICK_S: Final = 0.1
"""Half of the least time after which TCP calls a connection idle."""


@dataclass(frozen=True, slots=True)
class LossTimeouts:
    """The parts of `bound_s`: in it every rank is told of a peer that is lost.

    >>> LossTimeouts(10.0).silent_s, LossTimeouts(10.0).regroup_s, LossTimeouts(10.0).settle_s, LossTimeouts(1.0).tick_s
    (6.0, 2.0, 1.5, 0.01)
    """

    bound_s: float

    @property
    def silent_s(self) -> float:
        """So long nothing is heard of a lost peer."""
        return SILENT_SHARE * self.bound_s

    @property
    def stalled_s(self) -> float:
        """So long one of several connections to a peer acknowledges nothing, which is heard of on the others."""
        return self.silent_s - self.settle_s

    @property
    def regroup_s(self) -> float:
        """So long those who are left may take to agree, from the first loss."""
        return REGROUP_SHARE * self.bound_s

    @property
    def decided_s(self) -> float:
        """By then a rank that fell silent is lost, and the others know whether they go on without it."""
        return self.silent_s + self.regroup_s + 2 * self.tick_s

    @property
    def settle_s(self) -> float:
        """So long ranks listen to each other before they say who was lost: a second cause may be on its way."""
        return SETTLE_SHARE * self.bound_s

    @property
    def beat_s(self) -> float:
        """A peer sends something at least so often."""
        return self.bound_s / BEATS_PER_BOUND

    @property
    def tick_s(self) -> float:
        """So often a rank looks at the clock, at least."""
        return min(TICK_S, TICK_SHARE * self.bound_s)

    @property
    def pause_s(self) -> float:
        """A rank whose own loop stood still for longer blames nobody: less and a beat is still less than `silent_s`."""
        return self.bound_s / 2
