"""What a round of measuring says of a link -> what is believed of it from now on.

The pace of a connection follows the belief, so a link that carries less than its pace shows it: then what it carried is
believed. A link that carries its pace may be faster than believed: now and then, where its round trip shows no queue,
the pace is raised for one round of measuring. When the link carries that as well it is believed, and the next round
tries more; when not, the next trial is twice as long away.

A link with a queue although its pace was lowered carries traffic of others too. A connection that is paced at what it
got there gets less each time, so the planned pace is tried, and kept while that brings more. A link that nothing was
measured of, because shares have gone to others, is believed to be as planned again after a while, and used.
"""

import math
from dataclasses import replace
from typing import Final

from hulk_runtime.collective.drift.link_estimates import FIRST_TRIAL_ROUNDS, Beside, LinkEstimate, Seen

PACED: Final = 0.9
"""A link that carries this share of its pace carries what it is given."""
CHANGED: Final = 0.1
"""A difference by less is noise."""
TRIAL: Final = 1.25
BOLD_TRIAL: Final = 1.5
MAX_TRIAL_ROUNDS: Final = 64.0
QUEUED_ROUND: Final = 0.25
"""A round in which the link had a queue brings the next trial nearer by so much of a round."""
BESIDE_ROUNDS: Final = 32.0
"""After so many at the planned pace it is looked at again what a lowered one gets."""
MAX_RETRY_ROUNDS: Final = 512.0
"""A link that was given up costs a whole round each time it is tried: more than a trial of one that is used."""
LEAST_SHARE: Final = 1 / 16
"""Of the planned rate: less is never believed, so that a link that was silent for a while is used again."""


def judge(
    belief: LinkEstimate,
    planned_bytes_per_s: float,
    pace: float,
    found: Seen | None,
    most_bytes_per_s: float = math.inf,
) -> LinkEstimate:
    """The belief after a round. `pace`: the share of the believed rate that was sent at.

    The pace came from `most_bytes_per_s` where an uplink leaves the link no more: a link that carries that may carry
    what is believed as well, and is not tried.

    >>> judge(LinkEstimate.of(100.0), 100.0, 0.97, Seen(50.0, has_queue=True)).bytes_per_s
    50.0
    >>> judge(LinkEstimate.of(100.0), 100.0, 0.97, Seen(95.0)).bytes_per_s
    100.0
    >>> judge(LinkEstimate.of(100.0, boost=1.25), 100.0, 0.97, Seen(120.0)).bytes_per_s
    120.0
    """
    if found is None:
        return _unmeasured(belief, planned_bytes_per_s)
    wanted = belief.wanted(planned_bytes_per_s)
    carried = max(found.bytes_per_s, LEAST_SHARE * planned_bytes_per_s)
    gets_less = found.bytes_per_s < PACED * pace * min(wanted, most_bytes_per_s)
    if belief.beside is not Beside.NO:
        return _beside_others(belief, carried) if gets_less else LinkEstimate.of(wanted)
    if not gets_less:
        now = _as_given(belief, found, is_capped=most_bytes_per_s < wanted * (1 - 1e-9))
    elif found.is_short:
        now = _short(belief, carried)
    else:
        now = _slower(belief, carried)
    was_lowered = belief.boost == 1.0 and belief.bytes_per_s < (1 - CHANGED) * planned_bytes_per_s
    rounds = belief.beside_rounds if was_lowered or found.has_queue else FIRST_TRIAL_ROUNDS
    rest = rounds if not found.has_queue else belief.beside_rest - was_lowered
    now = replace(now, beside_rest=rest, beside_rounds=rounds)
    return now if rest > 0 else replace(now, beside=Beside.TRIED, boost=1.0)


def _unmeasured(belief: LinkEstimate, planned: float) -> LinkEstimate:
    """Nothing is known but what was believed; should that be little, it is tried again whether it still is so."""
    still = replace(belief, boost=1.0, beside=Beside.NO, beside_rest=belief.beside_rounds)
    if belief.carries >= (1 - CHANGED) * planned:
        return still
    if belief.rest_rounds > 1.0:
        return replace(still, rest_rounds=belief.rest_rounds - 1.0)
    rounds = min(2 * belief.trial_rounds, MAX_RETRY_ROUNDS)
    return LinkEstimate.of(planned, rest_rounds=rounds, trial_rounds=rounds)


def _as_given(belief: LinkEstimate, found: Seen, *, is_capped: bool) -> LinkEstimate:
    """It carries its pace: is it faster?"""
    if is_capped:
        return replace(belief, carries=belief.bytes_per_s, boost=1.0, is_short=False)
    if belief.boost > 1.0:
        shown = min(found.bytes_per_s, belief.boost * belief.bytes_per_s)
        return LinkEstimate.of(max(belief.bytes_per_s, shown), boost=BOLD_TRIAL)
    rest = belief.rest_rounds - (QUEUED_ROUND if found.has_queue else 1.0)
    boost = TRIAL if rest <= 0 else 1.0
    return replace(belief, carries=belief.bytes_per_s, rest_rounds=rest, boost=boost, is_short=False)


def _slower(belief: LinkEstimate, carried: float) -> LinkEstimate:
    """It carries less than it was given: in a trial that is no news unless it is less than was believed."""
    rounds = belief.trial_rounds
    if belief.boost > 1.0:
        rounds = min(2 * rounds, MAX_TRIAL_ROUNDS)
    return LinkEstimate.of(_news(belief.bytes_per_s, carried), rest_rounds=rounds, trial_rounds=rounds)


def _short(belief: LinkEstimate, carried: float) -> LinkEstimate:
    """Windows are short after a loss: that passes, and only if it does not shares follow. A trial waits for them."""
    if not belief.is_short:
        return replace(belief, is_short=True)
    least = min(carried, belief.bytes_per_s)
    return replace(belief, carries=least, boost=1.0, rest_rounds=belief.trial_rounds)


def _beside_others(belief: LinkEstimate, carried: float) -> LinkEstimate:
    """It does not get what was planned beside others: more than with a lowered pace, or no more?"""
    pays = carried > (1 + CHANGED) * belief.bytes_per_s
    if not pays:
        rounds = min(2 * belief.beside_rounds, MAX_TRIAL_ROUNDS)
        return replace(LinkEstimate.of(belief.bytes_per_s), beside_rest=rounds, beside_rounds=rounds)
    if belief.beside is Beside.TRIED:
        return replace(belief, carries=carried, beside=Beside.YES, beside_rest=BESIDE_ROUNDS)
    rest = belief.beside_rest - 1.0
    now = replace(belief, carries=_news(belief.carries, carried), beside_rest=rest)
    return now if rest > 0 else LinkEstimate.of(now.carries)


def _news(believed: float, carried: float) -> float:
    return carried if abs(carried - believed) > CHANGED * believed else believed
