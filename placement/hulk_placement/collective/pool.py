"""Many patterns at once, with when each of their link uses can begin and must be over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hulk_placement.collective.arrays import Floats, Ints
from hulk_placement.collective.timing import Delays, Uses, are_usable, uses

Forests = tuple[Ints, Ints]
"""`up_NR` and `down_NR` of N patterns."""

Window = tuple[int, float, float]
"""A resource, a release and a tail."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Patterns by number, with their uses sorted by resource; `starts` says where each resource's begin."""

    delays: Delays
    up_NR: Ints  # noqa: N815 - a shape suffix
    down_NR: Ints  # noqa: N815 - as above
    uses: Uses
    starts: Ints

    def __len__(self) -> int:
        return len(self.up_NR)

    def take(self, numbers: Ints) -> Pool:
        """Some of the patterns, numbered anew."""
        new = np.full(len(self), -1)
        new[numbers] = np.arange(len(numbers))
        old = self.uses
        kept = new[old.pattern] >= 0
        some = Uses(
            new[old.pattern[kept]],
            old.resource[kept],
            old.release_s[kept],
            old.tail_s[kept],
            old.latency_s[numbers],
        )
        return _sorted(self.delays, self.up_NR[numbers], self.down_NR[numbers], some)

    def counts(self, window: Window) -> Floats:
        """How often each pattern uses the window's resource within it."""
        resource, release_s, tail_s = window
        part = slice(self.starts[resource], self.starts[resource + 1])
        inside = (self.uses.release_s[part] >= release_s) & (self.uses.tail_s[part] >= tail_s)
        return np.bincount(self.uses.pattern[part][inside], minlength=len(self)).astype(float)


def timed(known: Delays, up_NR: Ints, down_NR: Ints) -> Pool:
    """The pool of those patterns that need no absent link."""
    usable = are_usable(up_NR, down_NR, known)
    up_NR, down_NR = up_NR[usable], down_NR[usable]
    return _sorted(known, up_NR, down_NR, uses(up_NR, down_NR, known))


def joined(one: Pool, other: Pool) -> Pool:
    """The patterns of both."""
    a, b = one.uses, other.uses
    both = Uses(
        np.concatenate([a.pattern, b.pattern + len(one)]),
        np.concatenate([a.resource, b.resource]),
        np.concatenate([a.release_s, b.release_s]),
        np.concatenate([a.tail_s, b.tail_s]),
        np.concatenate([a.latency_s, b.latency_s]),
    )
    up_NR, down_NR = np.concatenate([one.up_NR, other.up_NR]), np.concatenate([one.down_NR, other.down_NR])
    return _sorted(one.delays, up_NR, down_NR, both)


def _sorted(known: Delays, up_NR: Ints, down_NR: Ints, found: Uses) -> Pool:
    order = np.argsort(found.resource.astype(np.int16), kind="stable")
    resource = found.resource[order]
    ordered = Uses(found.pattern[order], resource, found.release_s[order], found.tail_s[order], found.latency_s)
    starts = np.searchsorted(resource, np.arange(len(known.capacity) + 1))
    return Pool(known, up_NR, down_NR, ordered, starts)
