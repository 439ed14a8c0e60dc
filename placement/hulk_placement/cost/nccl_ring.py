"""NCCL's ring all-reduce over sockets.

Data flow from rank r to rank r + 1 (gloo's the other way round), and NCCL's ring visits machine after machine: ranks of
one are beside each other whatever their numbers. Each channel takes its part of the bytes in loops of one chunk a rank;
a chunk makes 2 (n - 1) hops, forwarded slice by slice. No ready message is waited for, and n chunks are under way at a
time, so a step takes the mean over the ring's edges of (one way + slice), or as long as the fullest link needs for a
chunk of every channel:

    T = loops x 2 (n - 1) x max( mean over edges (one way + hop + slice / rate), max over edges (chunks / rate) )

A link never carries more than the buffers of all channels a round trip. Source: Hu et al. 2025 (arXiv 2507.04786).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hulk_placement.cost.groups import Group, GroupTime
from hulk_placement.nccl import PROTOCOLS, Nccl, Protocol
from hulk_placement.topology import Link, Pair


def ring_edges(group: Group) -> Counter[Pair]:
    """The (source, target) pairs of machines that the ring of a group's ranks uses, and how often each.

    >>> dict(ring_edges(Group(("a", "b", "a", "b"), 1)))
    {('b', 'a'): 1, ('a', 'a'): 1, ('a', 'b'): 1, ('b', 'b'): 1}
    """
    counts = Counter(group.machines)  # in the order in which machines are first named
    if len(group.machines) < 2:
        return Counter()
    machines = list(counts.elements())
    return Counter((machines[rank - 1], machines[rank]) for rank in range(len(machines)))


def ring_edge_bytes(group: Group) -> float:
    """What crosses each of its edges."""
    num_ranks = len(group.machines)
    return 2 * (num_ranks - 1) / num_ranks * group.num_bytes


Ways = Sequence[tuple[Pair, Link, float]]
"""The ring's edges: machines, link, and how many edges share it."""


def ring_time(group: Group, ways: Ways, transport: Nccl) -> GroupTime:
    """One ring with the transport's protocol: whole loops, then a shorter one with what is left."""
    protocol = PROTOCOLS[transport.protocol or "Simple"]
    part_bytes = group.num_bytes / (transport.num_channels * len(ways))
    chunk_bytes = protocol.chunk_slots * transport.slot_bytes(protocol)
    num_loops, left_bytes = divmod(part_bytes, chunk_bytes)
    whole_s, worst = _step(ways, transport, protocol, chunk_bytes)
    last_s, worst_last = _step(ways, transport, protocol, left_bytes)
    seconds = 2 * (len(ways) - 1) * (num_loops * whole_s + (last_s if left_bytes else 0.0))
    return GroupTime(seconds, worst if num_loops else worst_last)


def _step(ways: Ways, transport: Nccl, protocol: Protocol, chunk_bytes: float) -> tuple[float, Pair]:
    """Seconds of one step of all chunks, and the edge that has most of it."""
    channels, slices = transport.num_channels, protocol.chunk_slots // protocol.slice_slots
    there, through = [], []
    for pair, link, num_sharing in ways:
        hop_s = protocol.hop_s if pair[0] != pair[1] else protocol.inside_hop_s
        chunk_s = channels * chunk_bytes / transport.rate(link, num_sharing, protocol, channels)
        there.append((link.latency_s + hop_s + chunk_s / slices, pair))
        through.append((chunk_s, pair))
    mean_s = sum(seconds for seconds, _ in there) / len(ways)
    fullest_s, fullest = max(through)
    return (mean_s, max(there)[1]) if mean_s > fullest_s else (fullest_s, fullest)
