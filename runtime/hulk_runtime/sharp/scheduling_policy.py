"""Which unit a device computes next: pure, the same for the runtime and for a simulation of it.

A unit is the forward or backward pass of one shard for one mini-batch. A trial's units are done one after the other;
between trials there is no order, so whenever a device is free it may take the next unit of any trial that no other
device holds.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from hulk_runtime.sharp.exact_schedule import shortest

Scheduler = Literal["lrtf", "random", "fifo", "exact"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trial whose next unit can be done now: its number, and how long all that is left of it takes alone."""

    trial: int
    remaining_s: float


class Order(Protocol):
    """A scheduler."""

    def choose(self, device: int, candidates: Sequence[Candidate]) -> int | None:
        """The trial to go on with, one of the candidates; None: better wait. There is at least one candidate."""

    def ended(self, trial: int) -> None:
        """The trial has no more units, perhaps earlier than was thought. Said once or more often."""


class _Any:
    """A scheduler that only looks at the candidates."""

    def ended(self, trial: int) -> None:
        """It is no candidate any more."""


class LongestRemaining(_Any):
    """Sharded longest remaining time first: no trial is left to go on alone when the others have ended.

    Two trials of 3 and one of 2 units on two devices: 0 1, then 2 beside 0 (2 left each), 1 beside 2, and so on: all
    end after 4 units, where first come, first served ends after 3 + 2 = 5.

    >>> LongestRemaining().choose(0, [Candidate(0, 1.0), Candidate(1, 2.0), Candidate(2, 2.0)])
    1
    """

    def choose(self, device: int, candidates: Sequence[Candidate]) -> int | None:
        """The longest, of equal ones the first."""
        return max(candidates, key=lambda c: (c.remaining_s, -c.trial)).trial


class FirstCome(_Any):
    """The first trial that can go on."""

    def choose(self, device: int, candidates: Sequence[Candidate]) -> int | None:
        """By number."""
        return min(c.trial for c in candidates)


class Random(_Any):
    """Any, drawn from a seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def choose(self, device: int, candidates: Sequence[Candidate]) -> int | None:
        """All are equally likely."""
        return self._random.choice(candidates).trial


class Exact:
    """As a shortest schedule says, which was found beforehand for units that take what pilot runs measured.

    The order of a device is kept whatever the units take then. Trials that have ended early are passed over.
    """

    def __init__(self, trials: Sequence[Sequence[float]], num_devices: int) -> None:
        self._orders = [[unit.trial for unit in units] for units in shortest(trials, num_devices).devices]
        self._left = [len(units) for units in trials]

    def choose(self, device: int, candidates: Sequence[Candidate]) -> int | None:
        """The next one of the device's order, or wait for it."""
        order = self._orders[device]
        while order and not self._left[order[0]]:
            order.pop(0)
        if not order or order[0] not in {c.trial for c in candidates}:
            return None
        self._left[order[0]] -= 1
        return order.pop(0)

    def ended(self, trial: int) -> None:
        """Pass it over from now on."""
        self._left[trial] = 0


def make(scheduler: Scheduler, trials: Sequence[Sequence[float]], num_devices: int) -> Order:
    """The scheduler for trials whose units take so many seconds. Raises ConfigurationError (exact, too many units)."""
    if scheduler == "exact":
        return Exact(trials, num_devices)
    orders: dict[str, Callable[[], Order]] = {"lrtf": LongestRemaining, "fifo": FirstCome, "random": Random}
    return orders[scheduler]()
