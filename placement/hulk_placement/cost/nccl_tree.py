"""NCCL's tree all-reduce between machines: two binary trees, half of the bytes each. Not measured by anybody here.

Machines sum along a chain inside, then up the tree, and the sum comes back down. In the second tree the leaves of the
first are inner nodes, so that both directions of all machines' links are used (Sanders, Speck and Traeff 2009; NCCL's
src/graph/trees.cc). Chunks of a slot follow each other, so the time is the longest way up and down for one chunk, and
all bytes through the fullest link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from hulk_placement.cost.groups import Group, GroupTime, Sharing
from hulk_placement.nccl import PROTOCOLS, Nccl
from hulk_placement.topology import Pair, Topology


def parents(num_nodes: int) -> tuple[list[int | None], list[int | None]]:
    """Each node's parent in both trees, None for the root.

    In the first, a node's parent has its lowest bit cleared and the next one set, or only cleared where that node does
    not exist. The second is the first mirrored, or with an odd number of nodes shifted by one.

    >>> parents(4)
    ([None, 2, 0, 2], [1, 3, 1, None])
    >>> parents(3)
    ([None, 2, 0], [1, None, 0])
    """
    first = [_parent(node, num_nodes) for node in range(num_nodes)]
    second: list[int | None] = [None] * num_nodes
    for node, parent in enumerate(first):
        if num_nodes % 2:
            second[(node + 1) % num_nodes] = None if parent is None else (parent + 1) % num_nodes
        else:
            second[num_nodes - 1 - node] = None if parent is None else num_nodes - 1 - parent
    return first, second


def _parent(node: int, num_nodes: int) -> int | None:
    if node == 0:
        return None
    lowest = node & -node
    parent = (node ^ lowest) | (lowest << 1)
    return parent if parent < num_nodes else node ^ lowest


def tree_edges(ranks: Sequence[str]) -> Counter[Pair]:
    """How often both trees of these ranks' machines, up and down, use each (source, target) pair of them."""
    machines = list(dict.fromkeys(ranks))
    up = [
        (machines[node], machines[parent])
        for node, parent in chain(*map(enumerate, parents(len(machines))))
        if parent is not None
    ]
    return Counter(up + [(target, source) for source, target in up])


class Trees:
    """Both trees of a group: machines in the order in which ranks first name them."""

    def __init__(self, group: Group, topology: Topology, transport: Nccl) -> None:
        self.group, self.topology, self.transport = group, topology, transport
        counts = Counter(group.machines)
        self.machines, self.chain_hops = list(counts), {name: count - 1 for name, count in counts.items() if count > 1}
        self.protocol = PROTOCOLS[transport.protocol or "Simple"]
        self.num_channels = max(1, transport.num_channels // 2)  # of each tree
        self.parents = parents(len(self.machines))
        self.edges = tree_edges(group.machines)

    def time(self, number: int, sharing: Sharing, edge_bytes: Sequence[float]) -> GroupTime:
        """All bytes through the fullest link, after one chunk went the longest way.

        `edge_bytes`: what an edge of each group carries.
        """
        protocol = self.protocol
        chunk_bytes = min(self.transport.slot_bytes(protocol), self.group.num_bytes / self.transport.num_channels)
        depth_s = max(self._depth_s(tree, node, chunk_bytes) for tree in self.parents for node in range(len(tree)))
        chain_s, through = 0.0, list[tuple[float, Pair]]()
        for name, num_hops in self.chain_hops.items():
            inside = self.transport.link(name, name, self.topology)
            hop_s = inside.latency_s + protocol.inside_hop_s + chunk_bytes / inside.bandwidth_bytes_per_s
            chain_s = max(chain_s, 2 * num_hops * hop_s)
            sent_bytes = min(2, num_hops) * self.group.num_bytes * protocol.wire_share  # up, and down, by those between
            through.append((sent_bytes / inside.bandwidth_bytes_per_s, (name, name)))
        for pair, link in sharing.links[number].items():
            rate = self.transport.rate(link, sharing.num_sharing(number, pair, edge_bytes), protocol, self.num_channels)
            through.append((edge_bytes[number] / rate, pair))
        through_s, fullest = max(through)
        return GroupTime(chain_s + depth_s + through_s, fullest)

    def _depth_s(self, tree: list[int | None], node: int, chunk_bytes: float) -> float:
        """From a node to the root and back."""
        protocol, seconds, parent = self.protocol, 0.0, tree[node]
        while parent is not None:
            ends = self.machines[node], self.machines[parent]
            for link in (self.topology.link(*ends), self.topology.link(*reversed(ends))):
                rate = self.transport.rate(link, 1.0, protocol, self.num_channels)
                seconds += link.latency_s + protocol.hop_s + chunk_bytes / rate
            node, parent = parent, tree[parent]
        return seconds
