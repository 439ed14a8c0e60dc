"""What the kernel knows of the job's own TCP connections: round trips and delivery rates without sending a byte.

gloo and NCCL own their sockets, but they are this process's file descriptors, so TCP_INFO (linux/tcp.h, struct
tcp_info) can be read from them. Links in use are refreshed this way; no probe disturbs the training.
"""

import contextlib
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final

ESTABLISHED: Final = 1
CLOSE_WAIT: Final = 8  # the peer has ended before this process: what was sent to it still counts
_INFO_BYTES: Final = 208
_MIN_RTT_OFFSET: Final = 148  # u32, microseconds, minimum of the kernel's last 300 s
_DELIVERY_RATE_OFFSET: Final = 160  # u64, bytes per second, of the last window that filled the pipe
_BYTES_SENT_OFFSET: Final = 200  # u64, payload, retransmissions counted again


@dataclass(frozen=True, slots=True)
class Connection:
    """One connection to a peer. `min_rtt_s` is 0 before the first sample."""

    peer: IPv6Address
    peer_port: int
    local_port: int
    min_rtt_s: float
    delivery_rate_bytes_per_s: int
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class LinkSample:
    """A directed link as its own traffic shows it; zeros before there was any."""

    rtt_s: float
    bandwidth_bytes_per_s: float


def canonical(address: str) -> IPv6Address:
    """One form for both families.

    >>> canonical("10.0.0.1") == canonical("::ffff:10.0.0.1")
    True
    """
    parsed = ip_address(address.partition("%")[0])
    return parsed if isinstance(parsed, IPv6Address) else IPv6Address(f"::ffff:{parsed}")


def connections() -> list[Connection]:
    """Every TCP connection of this process that was established and is not closed here."""
    found: list[Connection] = []
    for descriptor in _sockets():
        # A descriptor may be closed, or not be TCP, between the listing and the look.
        with contextlib.suppress(OSError):
            found.extend(_inspect(descriptor))
    return found


class Traffic:
    """What this process sends to its peers; bytes of a connection that has ended stay counted.

    `exclude_port` is the local port of the metrics server, whose readers may share an address with a peer.
    """

    def __init__(self, peers: Mapping[int, IPv6Address], exclude_port: int) -> None:
        self._peers = peers
        self._exclude_port = exclude_port
        self._sent_bytes: dict[tuple[IPv6Address, int, int], int] = {}

    def look(self, to_rank: int) -> LinkSample:
        """Count what was sent until now; the link to one rank, by the busiest of the connections to its host."""
        addresses = set(self._peers.values())
        ours = [c for c in connections() if c.peer in addresses and c.local_port != self._exclude_port]
        self._sent_bytes |= {(c.peer, c.peer_port, c.local_port): c.sent_bytes for c in ours}
        return _link(c for c in ours if c.peer == self._peers[to_rank])

    @property
    def sent_bytes(self) -> int:
        """Bytes sent to all peers from the start to the last look."""
        return sum(self._sent_bytes.values())


def _link(towards: Iterable[Connection]) -> LinkSample:
    busiest = max(towards, key=lambda c: c.sent_bytes, default=None)
    if busiest is None:
        return LinkSample(0.0, 0.0)
    return LinkSample(busiest.min_rtt_s, float(busiest.delivery_rate_bytes_per_s))


def _sockets() -> Iterator[int]:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                yield int(name)


def _inspect(descriptor: int) -> Iterator[Connection]:
    with socket.socket(fileno=os.dup(descriptor)) as view:
        if view.family not in (socket.AF_INET, socket.AF_INET6) or view.type != socket.SOCK_STREAM:
            return
        info = view.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        if info[0] not in (ESTABLISHED, CLOSE_WAIT):
            return
        peer, peer_port = view.getpeername()[:2]
        yield _parse(info, peer, peer_port, view.getsockname()[1])


def _parse(info: bytes, peer: str, peer_port: int, local_port: int) -> Connection:
    """Older kernels return a shorter structure: what is missing reads as zero."""
    padded = info.ljust(_INFO_BYTES, b"\0")
    (min_rtt_us,) = struct.unpack_from("=I", padded, _MIN_RTT_OFFSET)
    (delivery_rate,) = struct.unpack_from("=Q", padded, _DELIVERY_RATE_OFFSET)
    (sent,) = struct.unpack_from("=Q", padded, _BYTES_SENT_OFFSET)
    rtt_s = 0.0 if min_rtt_us == 0xFFFFFFFF else min_rtt_us / 1e6
    return Connection(canonical(peer), peer_port, local_port, rtt_s, delivery_rate, sent)
