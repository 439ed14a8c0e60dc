"""What a plan says of the ways from one rank to its partners in other regions: how fast, and how much they hold."""

import math
from collections.abc import Mapping
from typing import Final

from hulk_runtime.collective.peer import Peer
from hulk_runtime.collective.plan import CollectivePlan
from hulk_runtime.collective.roles import pace_shares

UNKNOWN_PATH_BYTES: Final = 1 << 19
"""Where nothing was measured: 40 Mbit/s over 100 ms."""


def path_bytes(plan: CollectivePlan, rank: int) -> dict[int, int]:
    """What the path to each partner holds: its share of the link's rate times the round trip."""
    mine, found = plan.region_of(rank), {}
    for other, share in pace_shares(plan, rank).items():
        theirs = plan.region_of(other)
        link, back = plan.links.get((mine, theirs)), plan.links.get((theirs, mine))
        if link is None or back is None:
            found[other] = UNKNOWN_PATH_BYTES
        else:
            found[other] = math.ceil(share * link.bytes_per_s * (link.one_way_s + back.one_way_s))
    return found


def pace_channels(plan: CollectivePlan, rank: int, peers: Mapping[int, Peer], pace: float) -> None:
    """Each connection sends at most `pace` of its part of the link's planned rate."""
    for other, share in pace_shares(plan, rank).items():
        link = plan.links.get((plan.region_of(rank), plan.region_of(other)))
        if link is not None:
            for channel in peers[other].channels:
                channel.pace(pace * share * link.bytes_per_s / len(peers[other].channels))
