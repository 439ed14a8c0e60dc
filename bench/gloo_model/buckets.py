"""How long a step waits for DDP's buckets over gloo: two at a time on each process group, in the order they are ready.

`ddp_simulated` runs every segment (milliseconds for ten ranks); `ddp_seconds` is its closed form, for searches. A
bucket begins when its gradients and one of two threads are there. From then on it takes its ring all-reduce alone, and
a link that an earlier bucket still fills takes its bytes only behind those. Few large buckets win over long links:
each pays all round trips of a ring.

The two differ by 0.6 % on the mean where buckets are equal, by 2.2 % where they are not and by 28 % at worst: a small
bucket beside a large one waits for the large one's segments (`python -m bench gloo_model`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hulk_placement.cost.gloo import AT_A_TIME, SOFTWARE_S, Ring, cut_ring
from hulk_placement.cost.groups import Group, Sharing, weighted
from hulk_placement.topology import Pair, Topology

from bench.gloo_model.events import Collective, simulate


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are summed together. `ready_s` counts from the end of the backward pass: 0, or before it < 0."""

    num_bytes: int
    ready_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Gradients:
    """The buckets of ranks on these machines (in ring order), in the order in which they become ready."""

    machines: tuple[str, ...]
    buckets: tuple[Bucket, ...]


def ddp_seconds(groups: Sequence[Gradients], topology: Topology) -> tuple[float, ...]:
    """Seconds from the end of the backward pass to each group's last reduced bucket; 0 where all were done before.

    Groups that use the same links are taken to fill them evenly, by all of their bytes.
    """
    whole = [Group(g.machines, sum(bucket.num_bytes for bucket in g.buckets)) for g in groups]
    edges = [group.edges() for group in whole]
    sharing, num_bytes = Sharing(edges, topology), [float(group.num_bytes) for group in whole]
    found = []
    for number, group in enumerate(groups):
        ways = [_Way(number, pair, sharing, num_bytes) for pair in sharing.links[number]]
        found.append(max(0.0, _last_end(group, ways)) if ways else 0.0)
    return tuple(found)


def ddp_simulated(groups: Sequence[Gradients], topology: Topology) -> tuple[float, ...]:
    """As `ddp_seconds`, by the event simulation of all groups' rings together."""
    first_s = min(0.0, *(bucket.ready_s for group in groups for bucket in group.buckets))
    running = [(number, bucket) for number, g in enumerate(groups) if len(g.machines) > 1 for bucket in g.buckets]
    ends = simulate(
        [Collective(groups[number].machines, b.num_bytes, b.ready_s - first_s, number) for number, b in running],
        topology,
    )
    found = [0.0] * len(groups)
    for (number, _), end_s in zip(running, ends, strict=True):
        found[number] = max(found[number], end_s + first_s)
    return tuple(found)


class _Way:
    """One edge of a ring: how many edges share its link, and until when its link is busy with the group's buckets."""

    def __init__(self, number: int, pair: Pair, sharing: Sharing, num_bytes: Sequence[float]) -> None:
        self.link = link = sharing.links[number][pair]
        self.num_sharing = sharing.num_on_link(number, pair, num_bytes)
        self.uplinks = [(rate, weighted(found, num_bytes, number)) for rate, found in sharing.through(link)]
        self.busy_s = float("-inf")
        self.round_trip_s = link.rtt_s + SOFTWARE_S

    def end_s(self, ring: Ring, start_s: float, others: int, together: bool) -> float:
        """When a bucket that starts then would end if this edge were the worst; `others` run beside it."""
        link = self.link
        alone_s = ring.edge_s(link.rtt_s, link.bandwidth_bytes_per_s, self.num_sharing, link.flow_bytes_per_s)
        segment_s = ring.segment_bytes * max(
            self.num_sharing / link.bandwidth_bytes_per_s,
            1 / (link.flow_bytes_per_s or link.bandwidth_bytes_per_s),
            *(num_edges / rate for rate, num_edges in self.uplinks),
        )
        self.busy_s = max(self.busy_s, start_s) + 2 * ring.num_hops * segment_s
        turning_s = max(0.0, self.round_trip_s - 2 * others * segment_s)
        behind_s = 2 * segment_s if together else 0.0
        return max(start_s + alone_s + behind_s, self.busy_s + self.round_trip_s + turning_s)


def _last_end(group: Gradients, ways: Sequence[_Way]) -> float:
    ends = [float("-inf")] * AT_A_TIME
    last_s = before_s = float("-inf")
    for bucket in group.buckets:
        ring = cut_ring(bucket.num_bytes, len(group.machines), 1)
        start_s = max(bucket.ready_s, min(ends))
        others = sum(end > start_s for end in ends)
        together = start_s == before_s
        before_s = start_s
        end_s = max(way.end_s(ring, start_s, others, together) for way in ways)
        ends[ends.index(min(ends))] = end_s
        last_s = max(last_s, end_s)
    return last_s
