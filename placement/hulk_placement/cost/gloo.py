"""How long gloo's ring all-reduce takes: a closed form, validated against measured all-reduces.

gloo reduces and then gathers segments round the ring; data flows from rank r to rank r - 1. A receiver announces that
it is ready before each segment, so a segment costs a full round trip, and at most two are in flight on an edge: a long
link never carries more than 2 MiB a round trip, whatever its bandwidth. Only the worst edge counts.

`python -m bench gloo_model` compares it with measured all-reduces over cubic. It holds where the burst of two segments
of every edge on a link fits the router's buffer; beyond, TCP repeats what it lost, and it takes longer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

AT_A_TIME = 2
"""All-reduces of one process group that are under way: gloo has as many threads."""
MAX_SEGMENT_BYTES = 1 << 20
SOFTWARE_S = 0.0012
"""Fixed cost of a segment's two messages (ready, data) in software, added to the link's round trip."""


@dataclass(frozen=True, slots=True)
class Gloo:
    """gloo's ring over TCP."""


@dataclass(frozen=True, slots=True)
class Ring:
    """How gloo cuts one all-reduce: `num_hops` segments of `segment_bytes` cross every edge, twice.

    B bytes on n ranks become N = roundup(max(ceil(B / 1 MiB), 2 n), n) segments of B / N bytes, k = N / n a rank;
    each edge carries K = (n - 1) k of them while reducing and K while gathering. `num_buckets` such all-reduces run at
    the same time.

    >>> cut_ring(num_bytes=4 << 20, num_ranks=6, num_buckets=1)
    Ring(num_hops=10, segment_bytes=349525.3333333333, num_buckets=1)
    """

    num_hops: int
    segment_bytes: float
    num_buckets: int
    is_exchange: bool = field(default=False, repr=False)
    """Whether it is two ranks of stages, which send each other all they have."""

    @property
    def edge_bytes(self) -> float:
        """What crosses every edge in each of the two phases."""
        return self.num_hops * self.num_buckets * self.segment_bytes

    def edge_s(
        self, rtt_s: float, bandwidth_bytes_per_s: float, num_sharing: float, flow_bytes_per_s: float | None = None
    ) -> float:
        """Seconds the all-reduce takes if this edge is the worst; `num_sharing` ring edges use its link.

        With R = round trip + software, x = m / bandwidth, K hops, b buckets, q edges on the link, the greater of
        2 (floor(K / 2) (R + x) + b x + (0 if K is even else R)), the round trips of two segments in flight, and
        2 K b q x + R + max(0, R - 2 (b - 1) q x), the link being full: other buckets fill it while one turns round.
        A single flow may get less than the link carries: then the edge's own x is m / flow. With b = 1 this is the form
        validated by measured all-reduces, with b = 2 by an event simulation of gloo's rings. An exchange takes half of
        `rtt_s`, twice its way, and as long as its bytes.
        """
        if self.is_exchange:
            rate = min(bandwidth_bytes_per_s / num_sharing, flow_bytes_per_s or math.inf)
            return (rtt_s + SOFTWARE_S) / 2 + 2 * self.edge_bytes / rate
        round_trip_s, others = rtt_s + SOFTWARE_S, self.num_buckets - 1
        shared_s = num_sharing * self.segment_bytes / bandwidth_bytes_per_s
        segment_s = self.segment_bytes / bandwidth_bytes_per_s
        if flow_bytes_per_s is not None and flow_bytes_per_s < bandwidth_bytes_per_s:
            segment_s = self.segment_bytes / flow_bytes_per_s
        waiting_s = self.num_hops // 2 * (round_trip_s + segment_s) + self.num_buckets * segment_s
        if self.num_hops % 2:
            waiting_s += round_trip_s
        slower_s = max(shared_s, segment_s)
        turning_s = max(0.0, round_trip_s - 2 * others * slower_s)
        full_s = 2 * self.num_hops * self.num_buckets * slower_s + round_trip_s + turning_s
        return max(2 * waiting_s, full_s)

    def max_sharing(
        self,
        rtt_s: float,
        bandwidth_bytes_per_s: float,
        limit_s: float,
        at_most: int,
        flow_bytes_per_s: float | None = None,
    ) -> int:
        """The most ring edges (0..at_most) that may use a link so that none of them takes longer than `limit_s`."""
        seconds = partial(self.edge_s, rtt_s, bandwidth_bytes_per_s, flow_bytes_per_s=flow_bytes_per_s)
        if at_most < 1 or seconds(1) > limit_s:
            return 0
        round_trip_s, segment_s = rtt_s + SOFTWARE_S, self.segment_bytes / bandwidth_bytes_per_s
        hops = self.num_hops * self.num_buckets
        room_s = (limit_s - round_trip_s) / hops, (limit_s - 2 * round_trip_s) / (hops - self.num_buckets + 1)
        room = min(room_s) / (2 * segment_s)
        fit = at_most if room >= at_most else 1 + math.ceil(room)
        while seconds(fit) > limit_s:  # rounding: the formula decides
            fit -= 1
        return fit

    def uplink_s(self, bytes_per_s: float, num_edges: float) -> float:
        """Seconds that `num_edges` edges leaving (or entering) a region keep its uplink busy."""
        return 2 * self.num_hops * self.num_buckets * num_edges * self.segment_bytes / bytes_per_s


def cut_ring(num_bytes: int, num_ranks: int, num_buckets: int) -> Ring:
    """How `num_buckets` equal buckets of together `num_bytes` are cut on `num_ranks` >= 2 ranks."""
    bucket_bytes = math.ceil(num_bytes / num_buckets)
    segments = max(math.ceil(bucket_bytes / MAX_SEGMENT_BYTES), 2 * num_ranks)
    per_rank = math.ceil(segments / num_ranks)
    return Ring((num_ranks - 1) * per_rank, bucket_bytes / (per_rank * num_ranks), num_buckets)


def quickest(rings: Sequence[Ring]) -> Ring:
    """A ring that is on no link slower than any of these, all in as many buckets: what a bound for all of them takes.

    `edge_s` rises with K, K m and (floor(K / 2) + b) m: each is at most the least among the rings.
    """
    num_hops, buckets = min(ring.num_hops for ring in rings), rings[0].num_buckets
    full = min(ring.num_hops * ring.segment_bytes for ring in rings) / num_hops
    waiting = min((ring.num_hops // 2 + buckets) * ring.segment_bytes for ring in rings)
    return Ring(num_hops, min(full, waiting / (num_hops // 2 + buckets)), buckets)
