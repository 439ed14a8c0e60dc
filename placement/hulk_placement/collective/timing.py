"""When each link use of a pattern can begin, and how long before the end it must be over: for many patterns at once.

Legend: N patterns, R regions. A *use* is one crossing of a directed link by a pattern's share. Its *release* is the
time until the first chunk can be there (the latency upstream), its *tail* the time from its last byte on the wire to
the end (its own latency and that of everything downstream). A resource is a link (source * R + target), a region's
egress (R * R + region) or its ingress (R * R + R + region).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hulk_placement.collective.arrays import Bools, Floats, Ints
from hulk_placement.collective.network import Network
from hulk_placement.collective.transport import Transport


@dataclass(frozen=True, slots=True)
class Delays:
    """What a chunk waits on a hop, by source and target: `hop_s` until the next hop may begin, `last_s` after the link
    has sent it (the same without the chunk's own time on the link). `capacity` is bytes/s by resource."""

    hop_s: Floats
    last_s: Floats
    capacity: Floats


@dataclass(frozen=True, slots=True)
class Uses:
    """Every use of N patterns, by resource: arrays of equal length; and each pattern's whole latency."""

    pattern: Ints
    resource: Ints
    release_s: Floats
    tail_s: Floats
    latency_s: Floats


def delays(network: Network, transport: Transport, chunk_bytes: float) -> Delays:
    """The delays of chunks of this size: latency, software, and the chunk's time on a paced link.

    The lanes of a link share its rate, so a chunk takes as many times longer as there are lanes.
    """
    rate = np.array(network.rate) * transport.pace
    with np.errstate(divide="ignore", invalid="ignore"):
        chunk_s = np.where(rate > 0, chunk_bytes * num_lanes(network) / rate, np.inf)
    np.fill_diagonal(chunk_s, 0.0)
    last_s = np.array(network.latency_s) + transport.hop_s
    np.fill_diagonal(last_s, 0.0)
    caps = np.concatenate([rate.ravel(), network.egress, network.ingress])
    return Delays(last_s + chunk_s, last_s, caps)


def num_lanes(network: Network) -> Floats:
    """Rank pairs that carry a link's shares side by side, by source and target: as many as the cuts of both leave."""
    ranks = np.array([len(r) for r in network.ranks])
    lanes: Floats = (ranks[:, None] + ranks - np.gcd(ranks[:, None], ranks)).astype(float)
    return lanes


def uses(up_NR: Ints, down_NR: Ints, known: Delays) -> Uses:
    """The uses of N patterns, all of whose links are there."""
    num_regions = up_NR.shape[1]
    regions = np.arange(num_regions)
    member_NR = up_NR == regions
    hop_up_NR, hop_down_NR = known.hop_s[regions, up_NR], known.hop_s[down_NR, regions]
    ready_NR = _longest_below(up_NR, member_NR, hop_up_NR)
    below_NR = _longest_below(down_NR, member_NR, hop_down_NR)
    both_NRR = member_NR[:, :, None] & member_NR[:, None, :]
    done_NR = np.where(both_NRR, ready_NR[:, :, None] + known.hop_s, -np.inf).max(axis=1)
    rest_NR = np.where(both_NRR, known.hop_s + below_NR[:, None, :], -np.inf).max(axis=2)
    heard_NR = _from_roots(down_NR, member_NR, done_NR, hop_down_NR)
    after_NR = _from_roots(up_NR, member_NR, rest_NR, hop_up_NR)
    n, r = np.nonzero(~member_NR)
    m, a, b = np.nonzero(both_NRR & ~np.eye(num_regions, dtype=bool))
    up, down = up_NR[n, r], down_NR[n, r]
    found = Uses(
        pattern=np.concatenate([n, m, n]),
        resource=np.concatenate([r * num_regions + up, a * num_regions + b, down * num_regions + r]),
        release_s=np.concatenate([ready_NR[n, r], ready_NR[m, a], heard_NR[n, down]]),
        tail_s=np.concatenate(
            [
                known.last_s[r, up] + after_NR[n, up],
                known.last_s[a, b] + below_NR[m, b],
                known.last_s[down, r] + below_NR[n, r],
            ]
        ),
        latency_s=heard_NR.max(axis=1),
    )
    return _with_uplinks(found, known, num_regions)


def are_usable(up_NR: Ints, down_NR: Ints, known: Delays) -> Bools:
    """Which patterns need no absent link."""
    there = np.isfinite(known.hop_s)
    regions = np.arange(up_NR.shape[1])
    member_NR = up_NR == regions
    apart = (member_NR.astype(float) @ (~there).astype(float) * member_NR).any(axis=1)
    usable: Bools = there[regions, up_NR].all(axis=1) & there[down_NR, regions].all(axis=1) & ~apart
    return usable


def _with_uplinks(found: Uses, known: Delays, num_regions: int) -> Uses:
    """The uses, and those of capped uplinks: out of the source as the link's own, into the target a hop later."""
    num_links = num_regions * num_regions
    source, target = np.divmod(found.resource, num_regions)
    out, into = num_links + source, num_links + num_regions + target
    leaving, entering = np.isfinite(known.capacity[out]), np.isfinite(known.capacity[into])
    hop_s = known.last_s[source, target]
    return Uses(
        pattern=np.concatenate([found.pattern, found.pattern[leaving], found.pattern[entering]]),
        resource=np.concatenate([found.resource, out[leaving], into[entering]]),
        release_s=np.concatenate([found.release_s, found.release_s[leaving], (found.release_s + hop_s)[entering]]),
        tail_s=np.concatenate([found.tail_s, found.tail_s[leaving], (found.tail_s - hop_s)[entering]]),
        latency_s=found.latency_s,
    )


def _longest_below(parent_NR: Ints, member_NR: Bools, hop_NR: Floats) -> Floats:
    """For each region the longest way from a leaf of its subtree to it."""
    num_patterns, num_regions = parent_NR.shape
    place = (parent_NR + np.arange(num_patterns)[:, None] * num_regions).ravel()
    longest = np.zeros(parent_NR.shape)
    while True:
        longer = np.zeros(parent_NR.size)
        np.maximum.at(longer, place, np.where(member_NR, 0.0, longest + hop_NR).ravel())
        if (longer == longest.ravel()).all():
            return longest
        longest = longer.reshape(parent_NR.shape)


def _from_roots(parent_NR: Ints, member_NR: Bools, root_NR: Floats, hop_NR: Floats) -> Floats:
    """For each region its root's value plus the hops between."""
    rows = np.arange(len(parent_NR))[:, None]
    value = np.where(member_NR, root_NR, 0.0)
    while True:
        further = np.where(member_NR, root_NR, value[rows, parent_NR] + hop_NR)
        if (further == value).all():
            return value
        value = further
