"""What the ranks believe of the links between regions, and how they change their minds.

The pace of a connection follows the belief, so a link that carries less than its pace shows it: then what it carried is
believed. A link that carries its pace may be faster than believed: now and then, where its round trip shows no queue,
the pace is raised for one round of measuring. When the link carries that as well it is believed, and the next round
tries more; when not, the next trial is twice as long away.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

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
QUEUE_S: Final = 0.01
QUEUE_SHARE: Final = 0.1
"""A round trip longer than the shortest by more than both is a queue."""
LEAST_SHARE: Final = 1 / 16
"""Of the planned rate: less is never believed, so that a link that was silent for a while is used again."""
MIN_SECONDS: Final = 0.05
MIN_BYTES: Final = 128 << 10
"""What was measured over less is noise."""
NUM_FIGURES: Final = 3


@dataclass(frozen=True, slots=True)
class Belief:
    """Of one link. `boost`: its pace is raised by this to try it; `rest_rounds` until the next trial."""

    bytes_per_s: float
    boost: float = 1.0
    rest_rounds: float = FIRST_TRIAL_ROUNDS
    trial_rounds: float = FIRST_TRIAL_ROUNDS


@dataclass(frozen=True, slots=True)
class Seen:
    """What a link carried while more waited to be sent, and how much longer its round trip was than the shortest."""

    bytes_per_s: float
    has_queue: bool


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


def seen(plan: CollectivePlan, figures: Sequence[float]) -> dict[Pair, Seen]:
    """Links by what their connections measured: bytes/s and seconds at the receiver, seconds of queue at the sender."""
    rates: dict[Pair, list[float]] = {}
    shares: dict[Pair, list[float]] = {}
    queued: set[Pair] = set()
    for number, slot in enumerate(slots(plan)):
        rate, seconds, queue_s = figures[NUM_FIGURES * number : NUM_FIGURES * (number + 1)]
        back = plan.links.get((slot.link[1], slot.link[0]))
        if slot.link not in plan.links:
            continue
        round_trip_s = plan.links[slot.link].one_way_s + (back.one_way_s if back else 0.0)
        if queue_s > max(QUEUE_S, QUEUE_SHARE * round_trip_s):
            queued.add(slot.link)
        if seconds >= MIN_SECONDS and rate * seconds >= MIN_BYTES:
            rates.setdefault(slot.link, []).append(rate)
            shares.setdefault(slot.link, []).append(slot.share)
    return {link: Seen(math.fsum(rates[link]) / math.fsum(shares[link]), link in queued) for link in sorted(rates)}


def judge(belief: Belief, planned_bytes_per_s: float, pace: float, found: Seen | None) -> Belief:
    """The belief after a round. `pace`: the share of the believed rate that was sent at.

    >>> judge(Belief(100.0), 100.0, 0.97, Seen(50.0, True)).bytes_per_s
    50.0
    >>> judge(Belief(100.0), 100.0, 0.97, Seen(95.0, False)).bytes_per_s
    100.0
    >>> judge(Belief(100.0, boost=1.25), 100.0, 0.97, Seen(120.0, False))
    Belief(bytes_per_s=120.0, boost=1.5, rest_rounds=2.0, trial_rounds=2.0)
    """
    if found is None:
        return replace(belief, boost=1.0)
    given = pace * belief.bytes_per_s * belief.boost
    if found.bytes_per_s < PACED * given:
        return _slower(belief, LEAST_SHARE * planned_bytes_per_s, found)
    if belief.boost > 1.0:
        shown = min(found.bytes_per_s, belief.boost * belief.bytes_per_s)
        return Belief(max(belief.bytes_per_s, shown), BOLD_TRIAL)
    rest = belief.rest_rounds - (QUEUED_ROUND if found.has_queue else 1.0)
    return replace(belief, rest_rounds=rest, boost=TRIAL if rest <= 0 else 1.0)


def _slower(belief: Belief, least: float, found: Seen) -> Belief:
    """It carries less than it was given: in a trial that is no news unless it is less than was believed."""
    rounds = belief.trial_rounds
    if belief.boost > 1.0:
        rounds = min(2 * rounds, MAX_TRIAL_ROUNDS)
    is_news = abs(found.bytes_per_s - belief.bytes_per_s) > CHANGED * belief.bytes_per_s
    rate = max(least, found.bytes_per_s) if is_news else belief.bytes_per_s
    return Belief(rate, 1.0, rounds, rounds)
