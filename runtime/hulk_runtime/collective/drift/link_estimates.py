"""What the ranks measure of their connections, and what they believe of the links between regions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from hulk_runtime.collective.planned.roles import way_shares
from hulk_runtime.plan.flows import CollectivePlan, Pair

if TYPE_CHECKING:
    from typing_extensions import Self

FIRST_TRIAL_ROUNDS: Final = 2.0
OFTEN: Final = 0.5
"""In this share of looks a sender must have seen a queue, or a short window."""
MIN_SECONDS: Final = 0.05
MIN_BYTES: Final = 128 << 10
"""What was measured over less is noise."""


class Figures(NamedTuple):
    """Of a connection, in the vector that all ranks sum; 0 in what the other end writes.

    The receiver writes bytes/s and seconds of what came while more waited to be sent, the bytes of chunks in all, and
    when the last of an all-reduce came; the sender how often it saw a queue and a short window.
    """

    bytes_per_s: float = 0.0
    seconds: float = 0.0
    queued_share: float = 0.0
    short_share: float = 0.0
    num_bytes: float = 0.0
    last_s: float = 0.0


NUM_FIGURES: Final = len(Figures._fields)


class Beside(Enum):
    """Whether a link is paced as planned beside traffic of others, as a trial or because that pays."""

    NO = "no"
    TRIED = "tried"
    YES = "yes"


@dataclass(frozen=True, slots=True)
class LinkEstimate:
    """Of one link: `bytes_per_s`, from which the pace comes, and what it `carries`, from which the shares come.

    Less than its pace while congestion windows are short: they may grow again, so the pace stays. `is_short` when that
    was seen in the last round. `boost`: the pace is raised by this to try it; `rest_rounds` until the next trial.
    `beside` traffic of others the pace is the plan's; `beside_rest` rounds until that is tried, or tried without.
    """

    bytes_per_s: float
    carries: float
    boost: float = 1.0
    rest_rounds: float = FIRST_TRIAL_ROUNDS
    trial_rounds: float = FIRST_TRIAL_ROUNDS
    is_short: bool = False
    beside: Beside = Beside.NO
    beside_rest: float = FIRST_TRIAL_ROUNDS
    beside_rounds: float = FIRST_TRIAL_ROUNDS

    @classmethod
    def of(cls, bytes_per_s: float, **changes: float) -> Self:
        """A link that carries what is believed."""
        return cls(bytes_per_s, bytes_per_s, **changes)  # type: ignore[arg-type]

    def wanted(self, planned_bytes_per_s: float) -> float:
        """What the link is given, bytes/s."""
        if self.beside is Beside.NO:
            return self.boost * self.bytes_per_s
        return max(self.bytes_per_s, planned_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a link carried while more waited to be sent; if it had a queue; if windows, not the link, held it back."""

    bytes_per_s: float
    has_queue: bool = False
    is_short: bool = False


@dataclass(frozen=True, slots=True)
class Slot:
    """A connection between regions: who sends, who receives, and the share of the link's rate that it may use."""

    sender: int
    receiver: int
    link: Pair
    share: float


Beliefs = Mapping[Pair, LinkEstimate]


def slots(plan: CollectivePlan) -> list[Slot]:
    """Every connection between regions that take part, in the same order on every rank."""
    region_of = {rank: number for number, ranks in enumerate(plan.regions) for rank in ranks}
    gone = {rank for rank, region in region_of.items() if region in plan.left_out}
    return [
        Slot(sender, receiver, (region_of[sender], region_of[receiver]), share)
        for (sender, receiver), share in sorted(way_shares(plan).items())
        if not {sender, receiver} & gone
    ]


def connections(plan: CollectivePlan, figures: Sequence[float]) -> list[tuple[Slot, Figures]]:
    """The vector that all ranks summed, by connection."""
    return [
        (slot, Figures(*figures[NUM_FIGURES * number : NUM_FIGURES * (number + 1)]))
        for number, slot in enumerate(slots(plan))
    ]


def seen(plan: CollectivePlan, told: Sequence[tuple[Slot, Figures]]) -> dict[Pair, Seen]:
    """Links by what their connections measured."""
    measured: dict[Pair, list[tuple[float, ...]]] = {}
    for slot, of in told:
        if slot.link in plan.links and of.seconds >= MIN_SECONDS and of.bytes_per_s * of.seconds >= MIN_BYTES:
            found = (of.bytes_per_s, slot.share, of.queued_share, of.short_share)
            measured.setdefault(slot.link, []).append(found)
    return {link: _together(measured[link]) for link in sorted(measured)}


def _together(connections: Sequence[tuple[float, ...]]) -> Seen:
    rates, shares, queued, short = zip(*connections, strict=True)
    is_short = max(short) > OFTEN
    return Seen(math.fsum(rates) / math.fsum(shares), max(queued) > OFTEN and not is_short, is_short)
