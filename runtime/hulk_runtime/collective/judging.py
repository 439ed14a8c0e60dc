"""What a round of measuring says of a link -> what is believed of it from now on.

The pace of a connection follows the belief, so a link that carries less than its pace shows it: then what it carried is
believed. A link that carries its pace may be faster than believed: now and then, where its round trip shows no queue,
the pace is raised for one round of measuring. When the link carries that as well it is believed, and the next round
tries more; when not, the next trial is twice as long away.

A link with a queue although its pace was lowered carries traffic of others too, and one whose windows stay short
without a queue loses packets on the way. In both cases one connection gets little, because it gives way whenever a
packet is lost. So the link is tried over every connection that the ranks have for it, and while that brings more it
stays so.
"""

import math
from dataclasses import replace
from typing import Final

from hulk_runtime.collective.beliefs import Belief, Seen, Ways

PACED: Final = 0.9
"""A link that carries this share of its pace carries what it is given."""
CHANGED: Final = 0.1
"""A difference by less is noise."""
TRIAL: Final = 1.25
BOLD_TRIAL: Final = 1.5
MAX_TRIAL_ROUNDS: Final = 64.0
QUEUED_ROUND: Final = 0.25
"""A round in which the link had a queue brings the next trial nearer by so much of a round."""
SPREAD_ROUNDS: Final = 32.0
"""After so many over all connections it is looked at again what the usual ones carry."""
LEAST_SHARE: Final = 1 / 16
"""Of the planned rate: less is never believed, so that a link that was silent for a while is used again."""


def judge(
    belief: Belief, planned_bytes_per_s: float, pace: float, found: Seen | None, most_bytes_per_s: float = math.inf
) -> Belief:
    """The belief after a round. `pace`: the share of the believed rate that was sent at.

    The pace came from `most_bytes_per_s` where an uplink leaves the link no more: a link that carries that may carry
    what is believed as well, and is not tried.

    >>> judge(Belief.of(100.0), 100.0, 0.97, Seen(50.0, has_queue=True)).bytes_per_s
    50.0
    >>> judge(Belief.of(50.0), 100.0, 0.97, Seen(48.0, has_queue=True)).is_spread
    True
    >>> judge(Belief.of(100.0), 100.0, 0.97, Seen(95.0)).bytes_per_s
    100.0
    >>> judge(Belief.of(100.0, boost=1.25), 100.0, 0.97, Seen(120.0)).bytes_per_s
    120.0
    """
    if found is None:
        return replace(belief, boost=1.0)
    wanted = belief.wanted(planned_bytes_per_s)
    carried = max(found.bytes_per_s, LEAST_SHARE * planned_bytes_per_s)
    gets_less = found.bytes_per_s < PACED * pace * min(wanted, most_bytes_per_s)
    if belief.is_spread:
        return _over_all(belief, wanted, carried if gets_less else wanted)
    if gets_less:
        now = _short(belief, carried) if found.is_short else _slower(belief, carried)
    else:
        now = _as_given(belief, found, is_capped=most_bytes_per_s < wanted * (1 - 1e-9))
    rest = max(0.0, belief.ways_rest - 1.0)
    now = replace(now, ways_rest=rest, ways_rounds=belief.ways_rounds)
    was_lowered = belief.boost == 1.0 and belief.bytes_per_s < (1 - CHANGED) * planned_bytes_per_s
    stays_short = now.carries < now.bytes_per_s
    is_held_back = stays_short or (was_lowered and found.has_queue)
    return replace(now, ways=Ways.TRIED, boost=1.0) if is_held_back and not rest else now


def _as_given(belief: Belief, found: Seen, *, is_capped: bool) -> Belief:
    """It carries its pace: is it faster?"""
    if is_capped:
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
    return Belief.of(_news(belief.bytes_per_s, carried), rest_rounds=rounds, trial_rounds=rounds)


def _short(belief: Belief, carried: float) -> Belief:
    """Windows are short after a loss: that passes, and only if it does not shares follow. A trial waits for them."""
    if not belief.is_short:
        return replace(belief, is_short=True)
    least = min(carried, belief.bytes_per_s)
    return replace(belief, carries=least, boost=1.0, rest_rounds=belief.trial_rounds)


def _over_all(belief: Belief, wanted: float, carried: float) -> Belief:
    """All connections were used: was that more than the usual ones carried, and is it time to see what these do now?"""
    if belief.ways is Ways.ALL:
        rest = belief.ways_rest - 1.0
        ways = Ways.ALL if rest > 0 else Ways.USUAL
        return replace(belief, carries=_news(belief.carries, carried), ways=ways, ways_rest=rest)
    if carried > (1 + CHANGED) * belief.carries:
        return replace(belief, bytes_per_s=wanted, carries=carried, ways=Ways.ALL, ways_rest=SPREAD_ROUNDS)
    rounds = min(2 * belief.ways_rounds, MAX_TRIAL_ROUNDS)
    return replace(belief, ways=Ways.USUAL, ways_rest=rounds, ways_rounds=rounds)


def _news(believed: float, carried: float) -> float:
    return carried if abs(carried - believed) > CHANGED * believed else believed
