"""The frames that ranks send each other: a header of 24 bytes, then the payload (docs/reference/collective-wire.md).

Everything that arrives is checked against what may arrive; what does not fit is garbage, and garbage ends the group.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from hulk_runtime.plan.flows import MAX_CHUNK_BYTES

WIRE_VERSION: Final = 6
MAGIC: Final = 0x4B48
MAX_PAYLOAD_BYTES: Final = MAX_CHUNK_BYTES
_HEADER: Final = struct.Struct("<HBBIIHHII")
HEADER_BYTES: Final = _HEADER.size
STEADY: Final = 1
"""Flag: the sender had something to send without a pause from the beginning of the former frame to that of this one,
and its congestion window was open, so that the time between the two says how fast the way is."""

TYPES_FROM: Final = 1
NUM_TYPES: Final = 3
"""From this bit on a CHUNK's flags say the number of the vector's type: bfloat16 is not to be added to float16."""


class GarbageError(ValueError):
    """Bytes that no peer of this version sends."""


class Kind(IntEnum):
    """What a frame is."""

    CHUNK = 1
    BEAT = 2
    WARM = 3
    ABORT = 4
    LEAVE = 5
    VIEW = 6


class Phase(IntEnum):
    """What a chunk is on its way to: a sum of a subtree, a partner of the exchange, or back as the result."""

    SUM = 0
    EXCHANGE = 1
    RESULT = 2


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before a payload of `num_bytes`. Only chunks and beats use operation and chunk, only chunks part."""

    kind: Kind
    num_bytes: int = 0
    epoch: int = 0
    operation: int = 0
    part: int = 0
    chunk: int = 0
    phase: Phase = Phase.SUM
    flags: int = 0

    @property
    def type(self) -> int:
        """Of the vector that a chunk is of."""
        return self.flags >> TYPES_FROM

    def pack(self) -> bytes:
        """The header's 24 bytes: little endian; magic, kind, phase, epoch, operation, part, flags, chunk, length.

        >>> parse(Header(Kind.CHUNK, num_bytes=8, operation=3, part=1, chunk=2).pack()).operation
        3
        """
        return _HEADER.pack(
            MAGIC, self.kind, self.phase, self.epoch, self.operation, self.part, self.flags, self.chunk, self.num_bytes
        )


def steady(head: bytes) -> bytes:
    """The header with the flag.

    >>> parse(steady(Header(Kind.BEAT).pack())).flags
    1
    """
    return head[:_FLAGS_AT] + bytes([head[_FLAGS_AT] | STEADY]) + head[_FLAGS_AT + 1 :]


def parse(head: bytes | bytearray | memoryview) -> Header:
    """The header in 24 bytes. Raises GarbageError with what is wrong."""
    magic, kind, phase, epoch, operation, part, flags, chunk, num_bytes = _HEADER.unpack(head)
    if magic != MAGIC:
        raise GarbageError(f"a frame begins with {bytes(head).hex()}, not with {MAGIC.to_bytes(2, 'little').hex()}")
    if kind not in _KINDS or phase not in _PHASES or flags >> TYPES_FROM >= (NUM_TYPES if kind == Kind.CHUNK else 1):
        raise GarbageError(f"a frame of kind {kind}, phase {phase}, flags {flags:#x}")
    if num_bytes > MAX_PAYLOAD_BYTES or (num_bytes > 0) != (kind in _WITH_PAYLOAD):
        raise GarbageError(f"a frame of kind {_KINDS[kind].name} with {num_bytes} bytes")
    return Header(_KINDS[kind], num_bytes, epoch, operation, part, chunk, _PHASES[phase], flags)


_FLAGS_AT: Final = 14
_KINDS: Final = {int(kind): kind for kind in Kind}
_PHASES: Final = {int(phase): phase for phase in Phase}
_WITH_PAYLOAD: Final = frozenset((Kind.CHUNK, Kind.WARM, Kind.ABORT, Kind.VIEW))
