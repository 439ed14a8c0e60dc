"""Which rank ended a group, and how all ranks come to say the same about it."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hulk_runtime.collective.wire.frames import GarbageError

MAX_REASON_BYTES: Final = 512
_RANK: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True, order=True)
class Failure:
    """A lost rank, and what was seen of it."""

    rank: int
    reason: str

    def __post_init__(self) -> None:
        """All ranks say the same words: those that a frame holds."""
        words = self.reason.encode(errors="replace")[:MAX_REASON_BYTES].decode(errors="ignore")
        object.__setattr__(self, "reason", "".join(c if c.isprintable() else "?" for c in words))

    def pack(self) -> bytes:
        """The payload of an ABORT frame.

        >>> Failure.parse(memoryview(Failure(3, "it closed its connection").pack())).rank
        3
        """
        return _RANK.pack(self.rank) + self.reason.encode()

    @classmethod
    def parse(cls, payload: memoryview) -> "Failure":
        """What `pack` made. Raises GarbageError."""
        if not _RANK.size < len(payload) <= _RANK.size + MAX_REASON_BYTES:
            raise GarbageError(f"a failure in {len(payload)} bytes")
        (rank,) = _RANK.unpack(payload[: _RANK.size])
        return cls(rank, bytes(payload[_RANK.size :]).decode(errors="replace"))


class Verdict:
    """The failures that ranks told each other; all take the same one, the smallest.

    A rank that `hears_all` the others is done when all have spoken; else a word may come by others for `settle_s`.
    """

    def __init__(self, failure: Failure, told_by: int, now_s: float, settle_s: float, hears_all: bool) -> None:
        self.failure = failure
        self._told = {told_by, failure.rank}
        self._until_s, self._settle_s, self._hears_all = now_s + settle_s, settle_s, hears_all
        self._is_settled = False

    def add(self, failure: Failure, told_by: int) -> bool:
        """A rank said what it saw; whether that is the smallest so far. What has been settled stays."""
        self._told |= {told_by, failure.rank}
        if self._is_settled or failure >= self.failure:
            return False
        self.failure = failure
        return True

    def knows(self, rank: int) -> bool:
        """Whether a rank has said what it saw, or is lost."""
        return rank in self._told

    def is_settled(self, now_s: float, connected: Iterable[int]) -> bool:
        """Whether every rank that is still connected, but lost ones, has said what it saw; or time is up."""
        have_spoken = self._hears_all and self._told.issuperset(connected)
        self._is_settled = self._is_settled or have_spoken or now_s > self._until_s
        return self._is_settled

    def is_late(self, now_s: float) -> bool:
        """Whether peers had time enough to close as well."""
        return now_s > self._until_s + self._settle_s
