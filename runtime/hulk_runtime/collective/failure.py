"""Which rank ended a group, and how all ranks come to say the same about it."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hulk_runtime.collective.frames import GarbageError

SETTLE_S: Final = 2.0
"""How long ranks listen to each other before they say who was lost: a second cause may be on its way."""
MAX_REASON_BYTES: Final = 512
_RANK: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True, order=True)
class Failure:
    """A lost rank, and what was seen of it."""

    rank: int
    reason: str

    def pack(self) -> bytes:
        """The payload of an ABORT frame.

        >>> Failure.parse(memoryview(Failure(3, "it closed its connection").pack())).rank
        3
        """
        return _RANK.pack(self.rank) + self.reason.encode()[:MAX_REASON_BYTES]

    @classmethod
    def parse(cls, payload: memoryview) -> "Failure":
        """What `pack` made. Raises GarbageError."""
        if not _RANK.size < len(payload) <= _RANK.size + MAX_REASON_BYTES:
            raise GarbageError(f"a failure in {len(payload)} bytes")
        (rank,) = _RANK.unpack(payload[: _RANK.size])
        reason = bytes(payload[_RANK.size :]).decode(errors="replace")
        return cls(rank, "".join(c if c.isprintable() else "?" for c in reason))


class Verdict:
    """The failures that ranks told each other; all take the same one, the smallest."""

    def __init__(self, failure: Failure, told_by: int, now_s: float) -> None:
        self.failure = failure
        self._told = {told_by, failure.rank}
        self._until_s = now_s + SETTLE_S

    def add(self, failure: Failure, told_by: int) -> None:
        """A rank said what it saw."""
        self.failure = min(self.failure, failure)
        self._told |= {told_by, failure.rank}

    def is_settled(self, now_s: float, connected: Iterable[int]) -> bool:
        """Whether every rank that is still connected, but lost ones, has said what it saw; or time is up."""
        return now_s > self._until_s or self._told.issuperset(connected)

    def is_late(self, now_s: float) -> bool:
        """Whether peers had time enough to close as well."""
        return now_s > self._until_s + SETTLE_S
