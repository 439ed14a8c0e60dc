"""How long gloo's ring all-reduce takes: a closed form, validated against measured all-reduces.

gloo reduces and then gathers segments round the ring; data flows from rank r to rank r - 1. A receiver announces that
it is ready before each segment, so a segment costs a full round trip, and at most two are in flight on an edge: a long
link never carries more than 2 MiB a round trip, whatever its bandwidth. Only the worst edge counts.

`python -m bench gloo_model` compares it with 128 measured all-reduces. It holds where the burst of two segments of
every edge on a link fits the router's buffer; beyond, TCP repeats what it lost, and `Ring.overflow_s` says how much
longer that took.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

AT_A_TIME = 2
"""All-reduces of one process group that are under way: gloo has as many threads."""
MAX_SEGMENT_BYTES = 1 << 20
SOFTWARE_S = 0.0012
"""Fixed cost of a segment's two messages (ready, data) in software, added to the link's round trip."""

HEADER_BYTES = 52
"""Of a packet: IP, TCP and its timestamps."""

PACED_SHARE = 0.41
"""BBR only: of a round trip, over which the burst of two segments is sent. Fitted to the measured all-reduces."""
UNPACED_PACKETS = 3
"""BBR only: so many packets of a burst leave at once."""


@dataclass(frozen=True, slots=True)
class Overflow:
    """Round trips that a burst costs above what the closed form says, where it does not fit the router's buffer."""

    least: float
    usual: float
    most: float


OVERFLOW = {"cubic": Overflow(0.15, 0.6, 1.55), "bbr": Overflow(0.0, 0.05, 0.8)}
"""From all-reduces whose bursts do not fit: 8 with cubic, 17 with BBR; `usual` is near the median."""


@dataclass(frozen=True, slots=True)
class Gloo:
    """gloo over TCP, and the settings under it that change what an all-reduce costs.

    `router_buffer_s` is the queue in front of each link between regions, in seconds of the link's rate; None: not
    known, bursts are taken to fit. `slow_start_after_idle` is Linux's setting of that name (on unless switched off).
    """

    congestion_control: Literal["cubic", "bbr"] = "cubic"
    mtu_bytes: int = 1500
    router_buffer_s: float | None = None
    slow_start_after_idle: bool = True

    def __post_init__(self) -> None:
        if self.congestion_control not in OVERFLOW:
            raise ValueError(f"congestion control {self.congestion_control!r} must be one of {', '.join(OVERFLOW)}")
        if self.mtu_bytes <= HEADER_BYTES:
            raise ValueError(f"an MTU of {self.mtu_bytes} bytes must be > {HEADER_BYTES}")
        if self.router_buffer_s is not None and not 0 < self.router_buffer_s < math.inf:
            raise ValueError(f"a router's buffer of {self.router_buffer_s} s must be > 0 and finite")

    @property
    def packet_bytes(self) -> int:
        """Payload of a packet."""
        return self.mtu_bytes - HEADER_BYTES

    def pace_s(self, round_trip_s: float, segment_bytes: float) -> float:
        """The least seconds in which BBR sends a segment, whatever the link's rate; 0 with cubic."""
        if self.congestion_control != "bbr":
            return 0.0
        unpaced = UNPACED_PACKETS * self.packet_bytes / (2 * segment_bytes)
        return PACED_SHARE * round_trip_s / 2 * max(0.0, 1 - unpaced)

    def is_overflowing(self, burst_bytes: float, bandwidth_bytes_per_s: float) -> bool:
        """Whether bursts of together so many bytes do not fit the buffer in front of a link of this payload rate."""
        if self.router_buffer_s is None:
            return False
        rate = bandwidth_bytes_per_s * self.mtu_bytes / self.packet_bytes
        return burst_bytes > self.router_buffer_s * rate


CUBIC = Gloo()


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
    transport: Gloo = field(default=CUBIC, repr=False)
    is_exchange: bool = field(default=False, repr=False)
    """Whether it is two ranks of stages, which send each other all they have."""

    @property
    def edge_bytes(self) -> float:
        """What crosses every edge in each of the two phases."""
        return self.num_hops * self.num_buckets * self.segment_bytes

    @property
    def burst_bytes(self) -> float:
        """What an edge sends at once: two segments of every bucket."""
        return 2 * self.num_buckets * self.segment_bytes

    def edge_s(
        self, rtt_s: float, bandwidth_bytes_per_s: float, num_sharing: float, flow_bytes_per_s: float | None = None
    ) -> float:
        """Seconds the all-reduce takes if this edge is the worst; `num_sharing` ring edges use its link.

        With R = round trip + software, x = m / bandwidth, K hops, b buckets, q edges on the link, the greater of
        2 (floor(K / 2) (R + x) + b x + (0 if K is even else R)), the round trips of two segments in flight, and
        2 K b q x + R + max(0, R - 2 (b - 1) q x), the link being full: other buckets fill it while one turns round.
        A single flow may get less than the link carries: then the edge's own x is m / flow. With BBR x and q x are the
        greatest of q x and `pace_s`. With b = 1 this is the form validated by measured all-reduces, with b = 2 by an
        event simulation of gloo's rings. An exchange takes half of `rtt_s`, twice its way, and as long as its bytes.
        """
        if self.is_exchange:
            rate = min(bandwidth_bytes_per_s / num_sharing, flow_bytes_per_s or math.inf)
            return (rtt_s + SOFTWARE_S) / 2 + 2 * self.edge_bytes / rate
        round_trip_s, others = rtt_s + SOFTWARE_S, self.num_buckets - 1
        shared_s = num_sharing * self.segment_bytes / bandwidth_bytes_per_s
        segment_s = self.segment_bytes / bandwidth_bytes_per_s
        if flow_bytes_per_s is not None and flow_bytes_per_s < bandwidth_bytes_per_s:
            segment_s = self.segment_bytes / flow_bytes_per_s
        if self.transport.congestion_control == "bbr":
            segment_s = max(segment_s, shared_s, self.transport.pace_s(round_trip_s, self.segment_bytes))
        waiting_s = self.num_hops // 2 * (round_trip_s + segment_s) + self.num_buckets * segment_s
        if self.num_hops % 2:
            waiting_s += round_trip_s
        slower_s = max(shared_s, segment_s)
        turning_s = max(0.0, round_trip_s - 2 * others * slower_s)
        full_s = 2 * self.num_hops * self.num_buckets * slower_s + round_trip_s + turning_s
        return max(2 * waiting_s, full_s)

    def overflow_s(self, rtt_s: float) -> float:
        """What an edge takes longer for each extra round trip of its bursts, of two hops each, in both phases."""
        return self.num_hops * (rtt_s + SOFTWARE_S)

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
        if self.transport.congestion_control == "bbr":  # sharing also lengthens the waiting
            return bisect.bisect_right(range(1, fit + 1), limit_s, key=seconds)
        while seconds(fit) > limit_s:  # rounding: the formula decides
            fit -= 1
        return fit

    def uplink_s(self, bytes_per_s: float, num_edges: float) -> float:
        """Seconds that `num_edges` edges leaving (or entering) a region keep its uplink busy."""
        return 2 * self.num_hops * self.num_buckets * num_edges * self.segment_bytes / bytes_per_s


def cut_ring(num_bytes: int, num_ranks: int, num_buckets: int, transport: Gloo = CUBIC) -> Ring:
    """How `num_buckets` equal buckets of together `num_bytes` are cut on `num_ranks` >= 2 ranks."""
    bucket_bytes = math.ceil(num_bytes / num_buckets)
    segments = max(math.ceil(bucket_bytes / MAX_SEGMENT_BYTES), 2 * num_ranks)
    per_rank = math.ceil(segments / num_ranks)
    return Ring((num_ranks - 1) * per_rank, bucket_bytes / (per_rank * num_ranks), num_buckets, transport)


def quickest(rings: Sequence[Ring]) -> Ring:
    """A ring that is on no link slower than any of these, all in as many buckets: what a bound for all of them takes.

    `edge_s` rises with K, K m and (floor(K / 2) + b) m: each is at most the least among the rings. With BBR it also
    rises with m alone.
    """
    num_hops, buckets, transport = min(ring.num_hops for ring in rings), rings[0].num_buckets, rings[0].transport
    full = min(ring.num_hops * ring.segment_bytes for ring in rings) / num_hops
    waiting = min((ring.num_hops // 2 + buckets) * ring.segment_bytes for ring in rings)
    segment_bytes = min(full, waiting / (num_hops // 2 + buckets))
    if transport.congestion_control == "bbr":
        segment_bytes = min(segment_bytes, *(ring.segment_bytes for ring in rings))
    return Ring(num_hops, segment_bytes, buckets, transport)
