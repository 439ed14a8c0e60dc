"""Who takes part, and how those who are left agree to go on without a region that was cut off.

A membership is an epoch and the ranks in it. A rank that loses another one says whom it has lost, to all that are left,
whenever that changes. When all that are left say the same, whole regions are missing, and the others are more than half
of the members (of two halves: the one with the lowest rank), they are the next epoch's members. In every other case the
group ends. Two groups cannot go on: both would be a majority of the same members, and a rank is in one epoch only.

    members 0 1 2 | 3 4, ranks 3 and 4 in a region of their own, which is cut off:
    0, 1, 2 each say {3, 4}    3 of 5 go on, epoch 1
    3, 4 each say {0, 1, 2}    2 of 5 end
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hulk_runtime.collective.wire.failure import Failure
from hulk_runtime.collective.wire.frames import GarbageError

_COUNT: Final = struct.Struct("<H")


@dataclass(frozen=True, slots=True)
class Membership:
    """The ranks of an epoch. Epoch 0 has all."""

    epoch: int
    members: frozenset[int]


def pack(losses: Iterable[Failure]) -> bytes:
    """The payload of a VIEW frame: a count, then for each lost rank the length of what `Failure.pack` makes, and that.

    >>> [loss.rank for loss in parse(memoryview(pack([Failure(3, "silent"), Failure(4, "silent")])))]
    [3, 4]
    """
    packed = [loss.pack() for loss in losses]
    return _COUNT.pack(len(packed)) + b"".join(_COUNT.pack(len(each)) + each for each in packed)


def parse(payload: memoryview) -> list[Failure]:
    """What `pack` made. Raises GarbageError."""
    try:
        (count,) = _COUNT.unpack_from(payload, 0)
        losses, at = [], _COUNT.size
        for _ in range(count):
            (length,) = _COUNT.unpack_from(payload, at)
            at += _COUNT.size
            losses.append(Failure.parse(payload[at : at + length]))
            at += length
    except struct.error as error:
        raise GarbageError(f"a view that is cut off: {error}") from error
    if at != len(payload) or not losses:
        raise GarbageError(f"a view of {len(losses)} lost ranks in {len(payload)} bytes, {at} of them used")
    return losses


def require_others(losses: Iterable[Failure], membership: Membership, sender: int, receiver: int) -> None:
    """What a member says: whoever loses another says nothing to it any more. Raises GarbageError."""
    wrong = sorted({loss.rank for loss in losses} - (membership.members - {sender, receiver}))
    if wrong:
        raise GarbageError(f"a loss of ranks {wrong}, in epoch {membership.epoch}, from rank {sender} to {receiver}")


@dataclass
class Regroup:
    """One rank's side of an agreement. `regions` are the ranks of each region; it ends at `deadline_s`."""

    rank: int
    membership: Membership
    regions: Sequence[frozenset[int]]
    deadline_s: float
    losses: dict[int, Failure] = field(default_factory=dict)
    _views: dict[int, frozenset[int]] = field(default_factory=dict)

    @property
    def lost(self) -> frozenset[int]:
        """Every rank that somebody who is left has lost."""
        return frozenset(self.losses)

    @property
    def left(self) -> frozenset[int]:
        """The members that nobody has lost."""
        return self.membership.members - self.lost

    def lose(self, losses: Iterable[Failure]) -> frozenset[int]:
        """Add lost members; the ranks that were not known to be lost."""
        new = {loss.rank: loss for loss in losses if loss.rank in self.left}
        self.losses |= new
        return frozenset(new)

    def hear(self, rank: int, losses: Sequence[Failure]) -> frozenset[int]:
        """What a rank says that it has lost; as `lose`. What lost ranks say does not count."""
        if rank not in self.left:
            return frozenset()
        self._views[rank] = self._views.get(rank, frozenset()) | {loss.rank for loss in losses}
        return self.lose(losses)

    def outcome(self, now_s: float) -> Membership | Failure | None:
        """The next membership, or why the group ends; None while ranks do not agree yet."""
        first = min(self.losses.values())
        if self.rank in self.lost:
            return self.losses[self.rank]
        agreed = all(self._views.get(rank) == self.lost for rank in self.left if rank != self.rank)
        if agreed and self._are_whole_regions():
            return Membership(self.membership.epoch + 1, self.left) if self._is_majority() else first
        return first if now_s > self.deadline_s else None

    def _are_whole_regions(self) -> bool:
        present = [region & self.membership.members for region in self.regions]
        return all(region <= self.lost or not region & self.lost for region in present)

    def _is_majority(self) -> bool:
        left, members = self.left, self.membership.members
        half = 2 * len(left) == len(members)
        return 2 * len(left) > len(members) or (half and min(members) in left)


def shares_of(members: Sequence[int], shares: Mapping[int, int], total: int) -> dict[int, int]:
    """What each member takes of a global batch, in proportion to its share so far; whole numbers, at least 1.

    >>> shares_of([0, 1], {0: 2, 1: 4, 2: 3}, 9)
    {0: 3, 1: 6}
    """
    held = sum(shares[rank] for rank in members)
    exact = {rank: total * shares[rank] / held for rank in members}
    found = {rank: max(1, int(exact[rank])) for rank in members}
    by_rest = sorted(members, key=lambda rank: (found[rank] - exact[rank], rank))
    for rank in by_rest[: max(0, total - sum(found.values()))]:
        found[rank] += 1
    return found
