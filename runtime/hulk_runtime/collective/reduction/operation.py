"""One all-reduce on one rank: what arrives is added, and what is complete is sent on. Knows nothing of sockets.

Chunks of a vector are independent of each other: each goes its part's way as soon as what it waits for is there.
Contributions are added in a fixed order, whatever order they arrive in.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from hulk_runtime.collective.planned.roles import Role
from hulk_runtime.collective.reduction.hop_encoding import Hops
from hulk_runtime.collective.reduction.vector import DTYPES, Values
from hulk_runtime.collective.wire.frames import TYPES_FROM, GarbageError, Header, Kind, Phase


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A chunk to send. The smallest `urgency` goes first: older operations, then the longest way."""

    target: int
    header: bytes
    payload: memoryview
    urgency: tuple[int, float, float]


CHUNKS_AT_ONCE: Final = 256
"""Many enough to fill every link, few enough that peers hear of a rank meanwhile."""

Send = Callable[[Outgoing], None]


class Operation:
    """An all-reduce in progress. `send` is called for every chunk that must leave."""

    def __init__(
        self, number: int, epoch: int, rank: int, values: Values, roles: Sequence[Role], hops: Hops, send: Send
    ) -> None:
        self.number = number
        self._epoch, self._rank, self._values, self._roles, self._send = epoch, rank, values, roles, send
        self._hops = hops
        self._num_added = [[0] * role.num_chunks for role in roles]
        self._sums: dict[tuple[int, int], torch.Tensor] = {}
        self._waiting: dict[tuple[int, int, int], memoryview] = {}
        self._exchanged: dict[tuple[int, int], dict[int, torch.Tensor]] = {}
        self._claimed: set[tuple[int, int, int, Phase]] = set()
        self.num_pending = sum(role.num_chunks for role in roles)

    def begin(self) -> Iterator[None]:
        """Send what needs nobody else's values, some of it from one yield to the next."""
        num_begun = 0
        for part, role in enumerate(self._roles):
            for chunk in range(0 if role.children else role.num_chunks):
                self._summed(part, chunk, self._values.own(*role.chunk(chunk)))
                num_begun += 1
                if num_begun % CHUNKS_AT_ONCE == 0:
                    yield

    def place(self, source: int, header: Header) -> memoryview | None:
        """Where to receive a chunk's payload: a result's own place, or None for anywhere. Raises GarbageError."""
        role = self._role(header)
        start, stop = role.chunk(header.chunk)
        if self._hops.num_bytes(source, stop - start) != header.num_bytes or header.type != self._values.type:
            vector = f"of a vector of {DTYPES[header.type]}, here of {DTYPES[self._values.type]}"
            raise GarbageError(f"{_name(header)} from rank {source} has {header.num_bytes} bytes {vector}")
        claim = (header.part, header.chunk, source, header.phase)
        if source not in _sources(role, header.phase) or claim in self._claimed:
            raise GarbageError(f"{_name(header)} from rank {source} was not expected")
        self._claimed.add(claim)
        in_place = header.phase is Phase.RESULT and not self._hops.compress(source)
        return self._values.place(start, stop) if in_place else None

    def arrived(self, source: int, header: Header, payload: memoryview) -> None:
        """A chunk that `place` let in is here."""
        if header.phase is Phase.SUM:
            self._waiting[header.part, header.chunk, source] = payload
            self._add(header.part, header.chunk)
        elif header.phase is Phase.EXCHANGE:
            self._exchange(header.part, header.chunk, source, self._read(source, header.part, header.chunk, payload))
        elif self._hops.compress(source):
            start, stop = self._roles[header.part].chunk(header.chunk)
            self._values.keep(start, stop, self._read(source, header.part, header.chunk, payload))
            self._finished(header.part, header.chunk, payload)
        else:
            self._finished(header.part, header.chunk, None)

    def _read(self, source: int, part: int, chunk: int, payload: memoryview) -> torch.Tensor:
        start, stop = self._roles[part].chunk(chunk)
        return self._hops.read(source, payload, stop - start)

    def _role(self, header: Header) -> Role:
        if header.part >= len(self._roles) or header.chunk >= self._roles[header.part].num_chunks:
            raise GarbageError(f"{_name(header)} does not exist")
        return self._roles[header.part]

    def awaits(self, source: int) -> bool:
        """Whether a rank still has to send something."""
        return any(
            (part, chunk, source, phase) not in self._claimed
            for part, role in enumerate(self._roles)
            for phase in Phase
            if source in _sources(role, phase)
            for chunk in range(role.num_chunks)
        )

    def _add(self, part: int, chunk: int) -> None:
        """Add what is next in order and here."""
        role, added = self._roles[part], self._num_added[part]
        while added[chunk] < len(role.children):
            source = role.children[added[chunk]]
            payload = self._waiting.pop((part, chunk, source), None)
            if payload is None:
                return
            if (part, chunk) not in self._sums:
                self._sums[part, chunk] = self._values.own(*role.chunk(chunk))
            self._sums[part, chunk].add_(self._read(source, part, chunk, payload))
            added[chunk] += 1
        self._summed(part, chunk, self._sums.pop((part, chunk)))

    def _summed(self, part: int, chunk: int, total: torch.Tensor) -> None:
        role = self._roles[part]
        if role.exchange:
            payload, mine = self._hops.shared(total, (part, chunk))
            for other in role.exchange:
                if other != self._rank:
                    self._emit(part, chunk, Phase.EXCHANGE, other, payload, role.tails_s[other])
            self._exchange(part, chunk, self._rank, mine)
        elif role.parent is not None:
            payload = self._hops.payload(role.parent, total, (part, chunk))
            self._emit(part, chunk, Phase.SUM, role.parent, payload, role.tails_s[role.parent])
        else:
            self._decided(part, chunk, total)

    def _exchange(self, part: int, chunk: int, source: int, sums: torch.Tensor) -> None:
        role = self._roles[part]
        seen = self._exchanged.setdefault((part, chunk), {})
        seen[source] = sums
        if len(seen) == len(role.exchange):
            del self._exchanged[part, chunk]
            self._decided(part, chunk, self._values.sum([seen[rank] for rank in role.exchange]))

    def _decided(self, part: int, chunk: int, total: torch.Tensor) -> None:
        """The sum of all ranks was made here."""
        role = self._roles[part]
        compressed, kept = self._hops.rounded(total) if role.is_broadcast else (None, total)
        self._values.keep(*role.chunk(chunk), kept)
        self._finished(part, chunk, compressed)

    def _finished(self, part: int, chunk: int, compressed: memoryview | None) -> None:
        """The result is in its place; other regions get it as `compressed`, where results are."""
        role = self._roles[part]
        plain = self._values.place(*role.chunk(chunk))
        for target in role.targets:
            result = compressed if compressed is not None and self._hops.compress(target) else plain
            self._emit(part, chunk, Phase.RESULT, target, result, role.result_tails_s[target])
        self.num_pending -= 1

    def _emit(self, part: int, chunk: int, phase: Phase, target: int, payload: memoryview, tail_s: float) -> None:
        flags = self._values.type << TYPES_FROM
        header = Header(Kind.CHUNK, len(payload), self._epoch, self.number, part, chunk, phase, flags)
        role = self._roles[part]
        position = chunk / role.num_chunks
        urgency = (self.number, position * role.advance_s - tail_s, position)
        self._send(Outgoing(target, header.pack(), payload, urgency))


def _sources(role: Role, phase: Phase) -> tuple[int | None, ...]:
    """Who may send chunks of a phase."""
    return {Phase.SUM: role.children, Phase.EXCHANGE: role.exchange, Phase.RESULT: (role.source,)}[phase]


def _name(header: Header) -> str:
    return f"chunk {header.chunk} of part {header.part}, operation {header.operation}, phase {header.phase.name}"
