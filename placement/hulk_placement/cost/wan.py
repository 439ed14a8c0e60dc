"""How long Hulk's own all-reduce keeps a step waiting: the chunk simulation of each bucket, and how they overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hulk_placement.collective.network import Network
from hulk_placement.collective.patterns import Link
from hulk_placement.collective.plan import WIRE_SHARE, CollectivePlan
from hulk_placement.collective.simulation import Simulated, simulate


def wan_seconds(
    collective: CollectivePlan, network: Network, num_bytes: int, num_buckets: int, backward_s: float
) -> tuple[float, Link | None]:
    """Seconds from the last gradient to the last sum, and the region link that is busiest.

    Bucket j of k is ready when (j + 1) / k of the last backward pass is done; its sum takes t alone, and the busiest
    link, region's cap or region's inside is the next one's o seconds after it was this one's: with ready times r_j the
    sums end at

        end_j = max(r_j + t, end_(j-1) + o).

    One rank sends nothing: 0 seconds and no link.
    """
    if network.num_ranks < 2:
        return 0.0, None
    bucket = simulated(collective, network, math.ceil(num_bytes / num_buckets))
    end_s = -math.inf
    for number in range(num_buckets):
        ready_s = -backward_s * (num_buckets - 1 - number) / num_buckets
        end_s = max(ready_s + bucket.seconds, end_s + bucket.taken_s)
    return end_s, bucket.bottleneck


def in_turn_seconds(collective: CollectivePlan, network: Network, sizes: Sequence[int]) -> tuple[float, Link | None]:
    """Seconds of sums of so many bytes, each begun when the one before has ended, and the largest one's busiest link.

    One rank sends nothing: 0 seconds and no link.
    """
    if network.num_ranks < 2 or not sizes:
        return 0.0, None
    found = {size: simulated(collective, network, size) for size in set(sizes)}
    return sum(found[size].seconds for size in sizes), found[max(sizes)].bottleneck


def simulated(collective: CollectivePlan, network: Network, num_bytes: int) -> Simulated:
    """One all-reduce of a vector of so many bytes, as the plan has it, over a network of the same regions."""
    found = collective.of(num_bytes)
    sent = math.ceil(num_bytes * WIRE_SHARE[collective.compression])
    return simulate(network, found.flows, sent, found.chunk_bytes, advance_s=found.advance_s)
