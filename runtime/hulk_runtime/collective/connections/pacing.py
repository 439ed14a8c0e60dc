"""What a plan says of the ways from one rank to its partners in other regions: how fast, and how much they hold.

Each connection has its part of its link's rate. Where the links of a region have more together than its uplink, they
share that as the flows use them: if they did not, the queue of the uplink would decide, by dropping.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from hulk_runtime.collective.connections.peer import Peer
from hulk_runtime.collective.planned.roles import pace_shares
from hulk_runtime.plan.flows import CollectivePlan, Pair, SizeClass

UNKNOWN_PATH_BYTES: Final = 1 << 19
"""Where nothing was measured: 40 Mbit/s over 100 ms."""
LEAST_SHARE: Final = 1 / 16
"""Of what the link of an uplink that is used most has: less is given to none, as more than flows goes over it."""


def path_bytes(plan: CollectivePlan, rank: int) -> dict[int, int]:
    """What the path to each partner holds: its share of the link's rate times the round trip."""
    mine, found, rates = plan.region_of(rank), {}, planned_rates(plan)
    for other, share in pace_shares(plan, rank).items():
        theirs = plan.region_of(other)
        link, back = plan.links.get((mine, theirs)), plan.links.get((theirs, mine))
        if link is None or back is None:
            found[other] = UNKNOWN_PATH_BYTES
        else:
            found[other] = math.ceil(share * rates[mine, theirs] * (link.one_way_s + back.one_way_s))
    return found


def pace_channels(plan: CollectivePlan, rank: int, peers: Mapping[int, Peer], pace: float) -> None:
    """Each connection sends at most `pace` of its part of what its link may carry by the plan."""
    rates = planned_rates(plan)
    for other, share in pace_shares(plan, rank).items():
        rate = rates.get((plan.region_of(rank), plan.region_of(other)))
        if rate is not None:
            for channel in peers[other].channels:
                channel.pace(pace * share * rate / len(peers[other].channels))


def planned_rates(plan: CollectivePlan) -> dict[Pair, float]:
    """What each link may carry by the plan, bytes/s."""
    return within_uplinks(plan, {link: figures.bytes_per_s for link, figures in plan.links.items()}, plan.classes)


def within_uplinks(
    plan: CollectivePlan, rates: Mapping[Pair, float], classes: Sequence[SizeClass]
) -> dict[Pair, float]:
    """The rates, those at an uplink lowered so that links that flows of these classes use keep within it together."""
    found = dict(rates)
    used = _loads(classes) if plan.uplinks else {}
    for region, uplink in sorted(plan.uplinks.items()):
        for end, cap in enumerate((uplink.egress_bytes_per_s, uplink.ingress_bytes_per_s)):
            here = {link: rate for link, rate in found.items() if link[end] == region}
            found |= share_out(cap, here, used)
    return found


def share_out(cap: float, rates: Mapping[Pair, float], loads: Mapping[Pair, float]) -> dict[Pair, float]:
    """A cap shared as links are used, and what a link can't take left to the others; an unused one has all of it.

    >>> share_out(12.0, {(0, 1): 10.0, (0, 2): 10.0, (0, 3): 1.0}, {(0, 1): 1.0, (0, 2): 1.0, (0, 3): 2.0})
    {(0, 3): 1.0, (0, 1): 5.5, (0, 2): 5.5}
    """
    found = {link: min(rate, cap) for link, rate in rates.items() if link not in loads}
    used = {link: loads[link] for link in rates if link in loads}
    least = LEAST_SHARE * max(used.values(), default=0.0)
    used = {link: max(load, least) for link, load in used.items()}
    rest = cap
    for link in sorted(used, key=lambda each: (rates[each] / used[each], each)):
        found[link] = min(rates[link], rest * used[link] / math.fsum(used.values()))
        rest -= found[link]
        del used[link]
    return found


def _loads(classes: Sequence[SizeClass]) -> dict[Pair, float]:
    """By link the largest share of a vector that crosses it, of all classes."""
    found: Counter[Pair] = Counter()
    for size in classes:
        crossing: Counter[Pair] = Counter()
        for flow in size.flows:
            for link in flow.crossings:
                crossing[link] += flow.share  # type: ignore[assignment]  # a Counter of floats
        found |= crossing
    return dict(found)
