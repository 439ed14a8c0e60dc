"""Who is connected to a local TCP port, from /proc/net: the filter that iperf3 does not have.

An unprivileged process can neither add firewall rules nor accept on iperf3's behalf, but it can read the connections
of its own network namespace and end a server that a stranger has reached.
"""

import ipaddress
from pathlib import Path
from typing import Final

ESTABLISHED: Final = "01"
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def peers(local_port: int) -> frozenset[str]:
    """Addresses with an established connection to a local port."""
    found: set[str] = set()
    for table in _TABLES:
        if table.exists():  # tcp6 is absent where IPv6 is off
            found |= parse(table.read_text(), local_port)
    return frozenset(found)


def parse(table: str, local_port: int) -> set[str]:
    """The remote addresses in the text of one table.

    >>> row = "0: 0200007F:24BC 0300007F:9C41 01 00000000:00000000 00:00000000 00000000 0 0 1"
    >>> parse("header\\n" + row, 0x24BC), parse("header\\n" + row, 80)
    ({'127.0.0.3'}, set())
    """
    rows = (line.split() for line in table.splitlines()[1:])
    return {
        _host(remote.rpartition(":")[0])
        for _, local, remote, state, *_ in rows
        if state == ESTABLISHED and int(local.rpartition(":")[2], 16) == local_port
    }


def _host(text: str) -> str:
    """The kernel prints each 32-bit word in the machine's own (little-endian) order."""
    raw = bytes.fromhex(text)
    words = [raw[start : start + 4][::-1] for start in range(0, len(raw), 4)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
