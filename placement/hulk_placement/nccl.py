"""NCCL over TCP sockets: its settings, its protocols, and what one of its connections carries.

Facts are those of NCCL's published sources (github.com/NVIDIA/nccl, 2.21 to 2.27), of its user guide (environment
variables) and of Hu et al. 2025, "Demystifying NCCL" (arXiv 2507.04786): channels, protocols, slots and chunks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from hulk_placement.topology import Link, Topology

Algorithm = Literal["ring", "tree"]
ProtocolName = Literal["Simple", "LL", "LL128"]
ALGORITHMS: tuple[str, ...] = get_args(Algorithm)

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
"""LL128 needs stores of 128 bytes that arrive whole, as over NVLink: NCCL does not take it over sockets by itself.

Seconds of a hop are those of NCCL's tuning table (src/graph/tuning.cc): of a ring over the network, and over NVLink.
"""


@dataclass(frozen=True, slots=True)
class Nccl:
    """NCCL over sockets, and its settings. Absent ones are NCCL's defaults, or assumptions that are called so.

    `num_channels` (NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS): 2, an assumption; NCCL's log says how many there are, and
    NCCL doubles the one ring that it finds over a single slow NIC. `buffer_bytes` of a channel (NCCL_BUFFSIZE, 4 MiB).
    `num_sockets` of a channel's connection (NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD): 1; NCCL takes 16 on AWS and
    4 on Google's gVNIC by the NIC's vendor. `window_bytes` that a socket has in flight at most (the last of
    net.ipv4.tcp_wmem, 4 MiB). `inside`: the link between two accelerators of a machine (None: `Topology.inside`).
    `algorithm` and `protocol` (NCCL_ALGO, NCCL_PROTO; None: those that NCCL's tuner takes, `cost.nccl_tuning`).
    """

    num_channels: int = 2
    buffer_bytes: int = 4 << 20
    num_sockets: int = 1
    window_bytes: int = 4 << 20
    inside: Link | None = None
    algorithm: Algorithm | None = None
    protocol: ProtocolName | None = None

    def __post_init__(self) -> None:
        counts = (self.num_channels, self.buffer_bytes, self.num_sockets, self.window_bytes)
        if min(counts) < 1:
            raise ValueError(f"NCCL's channels, buffer, sockets and window {counts} must all be >= 1")
        if self.algorithm not in (None, *ALGORITHMS) or self.protocol not in (None, *PROTOCOLS):
            among = f"{', '.join(ALGORITHMS)} and {', '.join(PROTOCOLS)}"
            raise ValueError(
                f"NCCL's algorithm {self.algorithm!r} and protocol {self.protocol!r} must be among {among}"
            )

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

    def between_stages(self, link: Link) -> Link:
        """A link as one stage finds it that sends another tensors over all its connections to that peer.

        NCCL's send and receive cut a tensor into chunks of at most 128 KiB (NCCL_P2P_NET_CHUNKSIZE), of which
        `NUM_SLOTS` a channel may wait for the socket. The sender's proxy thread gives a slot back as soon as the
        kernel has taken its bytes, not when they have arrived, and nobody waits for a ready message: so neither slots
        nor round trips bound what is in flight, only what the sockets carry. Each gets `Link.flow_bytes_per_s`, where
        that is known.
        """
        if link.flow_bytes_per_s is None:
            return link
        flow = min(link.bandwidth_bytes_per_s, self.num_channels * self.num_sockets * link.flow_bytes_per_s)
        return replace(link, flow_bytes_per_s=flow)
