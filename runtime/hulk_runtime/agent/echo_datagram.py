"""The light echo's datagram: 32 bytes, versioned, the same length there and back.

Hulk brings its own instead of ICMP because an unprivileged container may not open ICMP sockets, and because the reply
carries how long the peer held it, so that a busy peer's scheduling delay is not counted as network time.

    offset  size  field
    0       4     magic  b"HULK"
    4       1     version (1)
    5       1     kind: 1 request, 2 reply
    6       2     reserved, zero
    8       8     nonce, chosen by the requester, returned unchanged
    16      8     hold_ns: time between arrival and reply at the peer (0 in a request)
    24      8     reserved, zero

A reply is exactly as long as its request, a datagram of any other length is dropped and a reply is never answered, so
the echo can neither amplify nor loop.

>>> request = encode(Datagram(REQUEST, nonce=7))
>>> len(request), decode(request)
(32, Datagram(kind=1, nonce=7, hold_ns=0))
>>> decode(b"GET / HTTP/1.1") is None
True
"""

import struct
from dataclasses import dataclass
from typing import Final

VERSION: Final = 1
REQUEST: Final = 1
REPLY: Final = 2
_FORMAT: Final = struct.Struct("!4sBBHQQQ")
_MAGIC: Final = b"HULK"
NUM_BYTES: Final = _FORMAT.size


@dataclass(frozen=True, slots=True)
class Datagram:
    """One request or reply of the current version."""

    kind: int
    nonce: int
    hold_ns: int = 0


def encode(datagram: Datagram) -> bytes:
    """The `NUM_BYTES` bytes of a datagram."""
    return _FORMAT.pack(_MAGIC, VERSION, datagram.kind, 0, datagram.nonce, datagram.hold_ns, 0)


def decode(data: bytes) -> Datagram | None:
    """The datagram, or None for anything that is not one of this version (foreign traffic is no error)."""
    if len(data) != NUM_BYTES:
        return None
    magic, version, kind, _, nonce, hold_ns, _ = _FORMAT.unpack(data)
    if magic != _MAGIC or version != VERSION or kind not in (REQUEST, REPLY):
        return None
    return Datagram(kind, nonce, hold_ns)
