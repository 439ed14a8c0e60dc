"""What the ranks believe of the links between regions, and how they change their minds.

The pace of a connection follows the belief, so a link that carries less than its pace shows it: then what it carried is
believed. A link that carries its pace may be faster than believed: now and then, where its round trip shows no queue,
the pace is raised for one round of measuring. When the link carries that as well it is believed, and the next round
tries more; when not, the next trial is twice as long away.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

from hulk_runtime.collective.plan import CollectivePlan, Pair
from hulk_runtime.collective.roles import pace_shares

PACED: Final = 0.9
"""A link that carries this share of its pace carries what it is given."""
CHANGED: Final = 0.1
"""A difference by less is noise."""
TRIAL: Final = 1.25
BOLD_TRIAL: Final = 1.5
FIRST_TRIAL_ROUNDS: Final = 2.0
MAX_TRIAL_ROUNDS: Final = 64.0
QUEUED_ROUND: Final = 0.25
"""A round in which the link had a queue brings the next trial nearer by so much of a round."""
LEAST_SHARE: Final = 1 / 16
"""Of the planned rate: less is never believed, so that a link that was silent for a while is used again."""
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


@dataclass(frozen=True, slots=True)
class Belief:
    """Of one link: `bytes_per_s`, from which the pace comes, and what it `carries`, from which the shares come.

    Less than its pace while congestion windows are short: they may grow again, so the pace stays. `is_short` when that
    was seen in the last round. `boost`: the pace is raised by this to try it; `rest_rounds` until the next trial.
    """

    bytes_per_s: float
    carries: float
    boost: float = 1.0
    rest_rounds: float = FIRST_TRIAL_ROUNDS
    trial_rounds: float = FIRST_TRIAL_ROUNDS
    is_short: bool = False

    @classmethod
    def of(cls, bytes_per_s: float, **changes: float) -> Self:
        """A link that carries what is believed."""
        return cls(bytes_per_s, bytes_per_s, **changes)  # type: ignore[arg-type]


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


Beliefs = Mapping[Pair, Belief]


def slots(plan: CollectivePlan) -> list[Slot]:
    """Every connection between regions, in the same order on every rank."""
    return [
        Slot(sender, receiver, (plan.region_of(sender), plan.region_of(receiver)), share)
        for sender in range(plan.num_ranks)
        for receiver, share in sorted(pace_shares(plan, sender).items())
    ]


def connections(plan: CollectivePlan, figures: Sequence[float]) -> Iterator[tuple[Slot, Figures]]:
    """The vector that all ranks summed, by connection."""
    for number, slot in enumerate(slots(plan)):
        yield slot, Figures(*figures[NUM_FIGURES * number : NUM_FIGURES * (number + 1)])


def seen(plan: CollectivePlan, figures: Sequence[float]) -> dict[Pair, Seen]:
    """Links by what their connections measured."""
    measured: dict[Pair, list[tuple[float, ...]]] = {}
    for slot, of in connections(plan, figures):
        if slot.link in plan.links and of.seconds >= MIN_SECONDS and of.bytes_per_s * of.seconds >= MIN_BYTES:
            found = (of.bytes_per_s, slot.share, of.queued_share, of.short_share)
            measured.setdefault(slot.link, []).append(found)
    return {link: _together(measured[link]) for link in sorted(measured)}


def _together(connections: Sequence[tuple[float, ...]]) -> Seen:
    rates, shares, queued, short = zip(*connections, strict=True)
    is_short = max(short) > OFTEN
    return Seen(math.fsum(rates) / math.fsum(shares), max(queued) > OFTEN and not is_short, is_short)


def judge(
    belief: Belief, planned_bytes_per_s: float, pace: float, found: Seen | None, most_bytes_per_s: float = math.inf
) -> Belief:
    """The belief after a round. `pace`: the share of the believed rate that was sent at.

    The pace came from `most_bytes_per_s` where an uplink leaves the link no more: a link that carries that may carry
    what is believed as well, and is not tried.

    >>> judge(Belief.of(100.0), 100.0, 0.97, Seen(50.0, has_queue=True)).bytes_per_s
    50.0
    >>> judge(Belief.of(100.0), 100.0, 0.97, Seen(95.0)).bytes_per_s
    100.0
    >>> judge(Belief.of(100.0, boost=1.25), 100.0, 0.97, Seen(120.0)).bytes_per_s
    120.0
    """
    if found is None:
        return replace(belief, boost=1.0)
    wanted = belief.bytes_per_s * belief.boost
    if found.bytes_per_s < PACED * pace * min(wanted, most_bytes_per_s):
        least = max(found.bytes_per_s, LEAST_SHARE * planned_bytes_per_s)
        return _short(belief, least) if found.is_short else _slower(belief, least)
    if most_bytes_per_s < wanted * (1 - 1e-9):
        return replace(belief, carries=belief.bytes_per_s, boost=1.0, is_short=False)
    if belief.boost > 1.0:
        shown = min(found.bytes_per_s, belief.boost * belief.bytes_per_s)
        return Belief.of(max(belief.bytes_per_s, shown), boost=BOLD_TRIAL)
    rest = belief.rest_rounds - (QUEUED_ROUND if found.has_queue else 1.0)
    boost = TRIAL if rest <= 0 else 1.0
    return replace(belief, carries=belief.bytes_per_s, rest_rounds=rest, boost=boost, is_short=False)


def _slower(belief: Belief, carried: float) -> Belief:
    """It carries less than it was given: in a trial that is no news unless it is less than was believed."""
    rounds = belief.trial_rounds
    if belief.boost > 1.0:
        rounds = min(2 * rounds, MAX_TRIAL_ROUNDS)
    is_news = abs(carried - belief.bytes_per_s) > CHANGED * belief.bytes_per_s
    return Belief.of(carried if is_news else belief.bytes_per_s, rest_rounds=rounds, trial_rounds=rounds)


def _short(belief: Belief, carried: float) -> Belief:
    """Windows are short after a loss: that passes, and only if it does not shares follow. A trial waits for them."""
    if not belief.is_short:
        return replace(belief, is_short=True)
    least = min(carried, belief.bytes_per_s)
    return replace(belief, carries=least, boost=1.0, rest_rounds=belief.trial_rounds)
