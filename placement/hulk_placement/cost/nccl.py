"""What NCCL's all-reduces take over sockets: each group's ring or trees, as its tuner chooses, all at the same time.

`cost.nccl_ring` and `cost.nccl_tree` have one algorithm each, `cost.nccl_tuning` says which one runs. Rings and trees
of all groups share links, uplinks and the machines' NICs by the bytes of their edges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from hulk_placement.cost.groups import Group, GroupTime, Sharing
from hulk_placement.cost.nccl_ring import ring_edge_bytes, ring_edges, ring_time
from hulk_placement.cost.nccl_tree import Trees, tree_edges
from hulk_placement.cost.nccl_tuning import tuned
from hulk_placement.nccl import Nccl
from hulk_placement.topology import Pair, Topology


class Edges(NamedTuple):
    """What a group's algorithm sends: how often it uses each (source, target) pair of machines, an edge's bytes."""

    transport: Nccl
    counts: Counter[Pair]
    num_bytes: float


def nccl_edges(group: Group, topology: Topology, transport: Nccl) -> Edges:
    """The edges between machines of the algorithm that is in force for a group; a ring's inside machines too."""
    chosen = tuned(transport, group, topology)
    if chosen.algorithm == "tree":
        return Edges(chosen, tree_edges(group.machines), group.num_bytes / 2)
    return Edges(chosen, ring_edges(group), ring_edge_bytes(group))


def nccl_times(groups: Sequence[Group], topology: Topology, transport: Nccl) -> tuple[GroupTime, ...]:
    """What one bucket of each group takes, all at the same time; 0 seconds and no edge for one rank."""
    found = [nccl_edges(group, topology, transport) for group in groups]
    sharing, num_bytes = Sharing([edges.counts for edges in found], topology), [edges.num_bytes for edges in found]
    times = []
    for number, (group, edges) in enumerate(zip(groups, found, strict=True)):
        if len(group.machines) < 2:
            times.append(GroupTime(0.0, None))
        elif edges.transport.algorithm == "tree":
            times.append(Trees(group, topology, edges.transport).time(number, sharing, num_bytes))
        else:
            ways = [
                (pair, transport.link(*pair, topology), sharing.num_sharing(number, pair, num_bytes))
                for pair in sharing.links[number]
                for _ in range(edges.counts[pair])
            ]
            times.append(ring_time(group, ways, edges.transport))
    return tuple(times)
