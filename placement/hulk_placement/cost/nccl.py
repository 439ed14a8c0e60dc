"""How long NCCL's all-reduce takes over TCP sockets between machines and NVLink or PCIe inside them. NOT MEASURED here.

Nobody has run this against NCCL on the links that Hulk is for: it is NCCL's published structure with its published
constants, an alpha-beta model, and its predictions are estimates. Sources: NCCL's user guide (environment variables);
Hu et al. 2025, "Demystifying NCCL" (arXiv 2507.04786), on channels, protocols, slots and chunks; NCCL's tuning table
(src/graph/tuning.cc) for the seconds of a hop.

Ring: data flow from rank r to rank r + 1 (gloo's the other way round). Each channel takes its part of the bytes in
loops of one chunk a rank; a chunk makes 2 (n - 1) hops, forwarded slice by slice. No ready message is waited for, and
n chunks are under way at a time, so a step takes the mean over the ring's edges of (one way + slice), or as long as the
fullest link needs for a chunk of every channel:

    T = loops x 2 (n - 1) x max( mean over edges (one way + hop + slice / rate), max over edges (chunks / rate) )

A link never carries more than the buffers of all channels a round trip. Tree: `cost.nccl_tree`.

Settings are what `Nccl` has. NCCL's own tuner knows no long links; without `algorithm` and `protocol` the quickest by
this model are taken, and the run must be told (NCCL_ALGO, NCCL_PROTO) for the prediction to speak of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from hulk_placement.cost.groups import Group, GroupTime, Sharing, exactly
from hulk_placement.topology import Link, Pair, Topology

NUM_SLOTS = 8
"""Of a channel's buffer (NCCL_STEPS)."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """How a channel's buffer is used. `slot_bytes` are data; None: an eighth of NCCL_BUFFSIZE.

    A chunk takes `chunk_slots`, a slice, the unit that is forwarded, `slice_slots`. `wire_share` bytes are sent for
    each byte of data (flags). `hop_s` is what a hop takes in NCCL beyond the link, between machines and inside one.
    """

    slot_bytes: float | None
    chunk_slots: int
    slice_slots: int
    wire_share: float
    hop_s: float
    inside_hop_s: float


PROTOCOLS = {
    "Simple": Protocol(None, 4, 2, 1.0, 9.6e-6, 3.4e-6),
    "LL": Protocol(16 << 10, 1, 1, 2.0, 2.7e-6, 0.47e-6),
    "LL128": Protocol(562.5 * 1024, 1, 1, 128 / 120, 4.0e-6, 1.9e-6),
}
"""LL128 needs stores of 128 bytes that arrive whole, as over NVLink: NCCL does not take it over sockets by itself."""


@dataclass(frozen=True, slots=True)
class Nccl:
    """NCCL over sockets, and its settings.

    `num_channels` (NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS; an assumption, NCCL's log says how many there are),
    `buffer_bytes` a channel (NCCL_BUFFSIZE), `num_sockets` a channel's connection (NCCL_SOCKET_NTHREADS x
    NCCL_NSOCKS_PERTHREAD), `window_bytes` that a socket may have in flight (the last of net.ipv4.tcp_wmem), `inside`:
    the link between two accelerators of a machine (None: `Topology.inside`), `algorithm` and `protocol`
    (NCCL_ALGO, NCCL_PROTO; None: the quickest).
    """

    num_channels: int = 2
    buffer_bytes: int = 4 << 20
    num_sockets: int = 1
    window_bytes: int = 4 << 20
    inside: Link | None = None
    algorithm: Literal["ring", "tree"] | None = None
    protocol: Literal["Simple", "LL", "LL128"] | None = None

    def __post_init__(self) -> None:
        counts = (self.num_channels, self.buffer_bytes, self.num_sockets, self.window_bytes)
        if min(counts) < 1:
            raise ValueError(f"NCCL's channels, buffer, sockets and window {counts} must all be >= 1")

    def link(self, source: str, target: str, topology: Topology) -> Link:
        """What joins ranks on two machines, or two on one: the machine's own link between its accelerators."""
        return topology.link(source, target) if source != target else self.inside or topology.inside(source)

    def slot_bytes(self, protocol: Protocol) -> float:
        """Data that a slot holds."""
        return protocol.slot_bytes or self.buffer_bytes / NUM_SLOTS

    def rate(self, link: Link, num_sharing: float, protocol: Protocol, num_channels: int) -> float:
        """Bytes of data per second over an edge: its part of the link, at most what flows and buffers let through."""
        window = min(NUM_SLOTS * self.slot_bytes(protocol) * protocol.wire_share, self.num_sockets * self.window_bytes)
        on_wire = link.bandwidth_bytes_per_s / num_sharing
        if link.rtt_s > 0:
            on_wire = min(on_wire, num_channels * window / link.rtt_s)
        if link.flow_bytes_per_s is not None:
            on_wire = min(on_wire, num_channels * self.num_sockets * link.flow_bytes_per_s)
        return on_wire / protocol.wire_share

    def protocols(self, crosses_machines: bool) -> Iterator[Protocol]:
        """Those that may be in force."""
        for name, protocol in PROTOCOLS.items():
            if name == self.protocol or (self.protocol is None and not (name == "LL128" and crosses_machines)):
                yield protocol


def ring_edges(group: Group) -> Counter[Pair]:
    """NCCL's ring over the group's ranks: the (source, target) pairs of machines, and how often each."""
    machines = group.machines
    if len(machines) < 2:
        return Counter()
    return Counter((machines[rank - 1], machines[rank]) for rank in range(len(machines)))


def nccl_ring_times(groups: Sequence[Group], topology: Topology, transport: Nccl) -> tuple[GroupTime, ...]:
    """What each group's ring takes, all at the same time; with the quickest protocol where none is set."""
    edges = [ring_edges(group) for group in groups]
    sharing, num_bytes = Sharing(edges, topology), [float(group.num_bytes) for group in groups]
    times = []
    for number, group in enumerate(groups):
        ways = [
            (pair, transport.link(*pair, topology), sharing.num_sharing(number, pair, num_bytes))
            for pair in sharing.links[number]
            for _ in range(edges[number][pair])
        ]
        protocols = transport.protocols(len(set(group.machines)) > 1)
        times.append(
            min((_ring(group, ways, transport, protocol) for protocol in protocols), key=lambda time: time.seconds)
            if ways
            else exactly(0.0, None)
        )
    return tuple(times)


_Ways = Sequence[tuple[Pair, Link, float]]
"""The ring's edges: machines, link, and how many edges share it."""


def _ring(group: Group, ways: _Ways, transport: Nccl, protocol: Protocol) -> GroupTime:
    """One ring with one protocol: whole loops, then a shorter one with what is left."""
    part_bytes = group.num_bytes / (transport.num_channels * len(ways))
    chunk_bytes = protocol.chunk_slots * transport.slot_bytes(protocol)
    num_loops, left_bytes = divmod(part_bytes, chunk_bytes)
    whole_s, worst = _step(ways, transport, protocol, chunk_bytes)
    last_s, worst_last = _step(ways, transport, protocol, left_bytes)
    seconds = 2 * (len(ways) - 1) * (num_loops * whole_s + (last_s if left_bytes else 0.0))
    return exactly(seconds, worst if num_loops else worst_last)


def _step(ways: _Ways, transport: Nccl, protocol: Protocol, chunk_bytes: float) -> tuple[float, Pair]:
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
