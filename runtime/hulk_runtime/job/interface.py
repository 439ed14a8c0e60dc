"""The network interface by which a pod reaches rank 0: what gloo and NCCL are told to talk over.

A pod may have several (Multus, `hostNetwork`), of any names. Where there is only one beside loopback, that is it; else
the routing table decides, which a connected UDP socket shows without sending anything.
"""

import array
import fcntl
import socket
import struct
import time
from collections.abc import Callable, Mapping, MutableMapping
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from hulk_runtime import names

LOOPBACK: Final = "lo"
RETRY_S: Final = 0.2
_IF_INET6: Final = Path("/proc/net/if_inet6")
_SIOCGIFCONF: Final = 0x8912
_MAX_ADDRESSES: Final = 256
_IFREQ: Final = struct.Struct("16s16x8x") if struct.calcsize("P") == 8 else struct.Struct("16s16x")


def choose(environ: MutableMapping[str, str], resolve_s: float) -> None:
    """Fill in what gloo and NCCL talk over, where nobody has; left to torch when rank 0's name does not resolve."""
    chosen = environ.get(names.ENV_GLOO_INTERFACE) or toward(environ.get(names.ENV_MASTER_ADDR, "127.0.0.1"), resolve_s)
    if chosen:
        for name in (names.ENV_GLOO_INTERFACE, names.ENV_NCCL_INTERFACE):
            environ.setdefault(name, chosen)


def toward(host: str, resolve_s: float, addresses: Callable[[], Mapping[str, str]] | None = None) -> str | None:
    """The interface of the route to a host; None when its name does not resolve in time, or is this very machine."""
    by_address = (addresses or interfaces)()
    others = set(by_address.values()) - {LOOPBACK}
    if len(others) == 1 and not _is_loopback(host):
        return others.pop()
    own = _own_address(host, time.monotonic() + resolve_s)
    return None if own is None else by_address.get(own)


def interfaces() -> dict[str, str]:
    """The interface of every address of this network namespace, link-local ones left out."""
    return {address: name for address, name in (*_ipv4(), *_ipv6()) if not ip_address(address).is_link_local}


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _own_address(host: str, deadline_s: float) -> str | None:
    """The address from which this machine reaches a host; None when it does not know one until the deadline."""
    while True:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind, protocol) as view:
                view.connect(address)
                return str(view.getsockname()[0])
        except OSError:
            if time.monotonic() >= deadline_s:
                return None
            time.sleep(RETRY_S)


def _ipv4() -> list[tuple[str, str]]:
    """By SIOCGIFCONF: the addresses of all interfaces that are up."""
    rows = array.array("B", bytes(_IFREQ.size * _MAX_ADDRESSES))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("iL", len(rows), rows.buffer_info()[0])
        length = struct.unpack("iL", fcntl.ioctl(any_socket, _SIOCGIFCONF, request))[0]
    found = rows.tobytes()[:length]
    return [
        (socket.inet_ntoa(found[start + 20 : start + 24]), found[start : start + 16].split(b"\0", 1)[0].decode())
        for start in range(0, length, _IFREQ.size)
    ]


def _ipv6() -> list[tuple[str, str]]:
    """By the kernel's table; none where IPv6 is off."""
    try:
        rows = [line.split() for line in _IF_INET6.read_text().splitlines()]
    except OSError:
        return []
    return [(str(ip_address(bytes.fromhex(row[0]))), row[5]) for row in rows]
