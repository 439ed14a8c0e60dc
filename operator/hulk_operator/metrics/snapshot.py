"""What the metrics are made of: an immutable `Snapshot` of the operator's state, and the counters of `Health`.

A job that is deleted is not in the next snapshot, and so its series are gone: there is nothing to clean up.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from hulk_placement.plan import Plan

from hulk_operator.api import HulkJob, HulkSweep
from hulk_operator.probing import ProbeState

MAX_SILENCE_S: Final = 900.0  # a quiet watch is ended by the server after 120 s, jobs are read again every 300 s
BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LAG_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class RingPlace:
    """Where one rank of a ring is."""

    node: str
    region: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The operator's state at one moment. `rings`: the ranks of each job (`namespace/name`) that has a plan."""

    jobs: tuple[HulkJob, ...] = ()
    sweeps: tuple[HulkSweep, ...] = ()
    rings: Mapping[str, tuple[RingPlace, ...]] = field(default_factory=dict)
    probing: ProbeState = field(default_factory=ProbeState)
    queue_depth: int = 0
    lease_held: bool = False


@dataclass(slots=True)
class Histogram:
    """Durations by bucket: those up to each bound and above the one before it, and last those above all.

    >>> lags = Histogram((0.1, 1.0))
    >>> lags.add(0.1), lags.add(2.0)
    (None, None)
    >>> lags.counts, lags.sum_s
    ([1, 0, 1], 2.1)
    """

    bounds_s: tuple[float, ...]
    counts: list[int] = field(init=False)
    sum_s: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds_s) + 1)

    def add(self, duration_s: float) -> None:
        """One more."""
        self.counts[bisect_left(self.bounds_s, duration_s)] += 1
        self.sum_s += duration_s


@dataclass(slots=True)
class Health:
    """Counters that only grow while the operator runs, and when it last heard of what it must know of the cluster.

    Written by the operator's rooms, read by the collector and the health check.
    """

    clock: Callable[[], float] = time.monotonic

    reconciles: Histogram = field(default_factory=lambda: Histogram(BUCKETS_S))
    passes: Histogram = field(default_factory=lambda: Histogram(BUCKETS_S))  # of planning
    lags: Histogram = field(default_factory=lambda: Histogram(LAG_BUCKETS_S))  # of the event loop
    planning_s: float = 0.0
    writes: Counter[tuple[str, str]] = field(default_factory=Counter)  # (verb, plural)
    errors: Counter[str] = field(default_factory=Counter)  # by room
    moves: Counter[str] = field(default_factory=Counter)  # of the queue, by kind
    heard_at_s: dict[str, float] = field(default_factory=dict)  # by listing or watch

    @contextmanager
    def reconcile(self) -> Iterator[None]:
        """Measure the reconcile in the block."""
        start_s = time.perf_counter()
        try:
            yield
        finally:
            self.reconciles.add(time.perf_counter() - start_s)

    def planned(self, duration_s: float) -> None:
        """A planning pass has ended."""
        self.planning_s = duration_s
        self.passes.add(duration_s)

    def failed(self, where: str) -> None:
        """A pass of the room `where` ended in an error."""
        self.errors[where] += 1

    def moved(self, kind: str) -> None:
        """The queue has started, resized, moved or stopped a job."""
        self.moves[kind] += 1

    def heard(self, of: str) -> None:
        """The API server has just told the newest state of something, or that nothing changed."""
        self.heard_at_s[of] = self.clock()

    def unheard(self, of: str) -> None:
        """It is not listened to any more."""
        self.heard_at_s.pop(of, None)

    def hears(self) -> bool:
        """Whether nothing that was heard of once has been silent for too long: else decisions rest on an old picture.

        At first nothing is heard of, and that is well.
        """
        return self.clock() - min(self.heard_at_s.values(), default=self.clock()) <= MAX_SILENCE_S

    def wrote(self, verb: str, plural: str) -> None:
        """A write was sent to the API server."""
        self.writes[verb, plural] += 1


def ring(plan: Plan) -> tuple[RingPlace, ...]:
    """Where every rank of a plan is; with stages, every rank of the first one's ring."""
    if plan.layout.pipeline > 1:
        regions = {slot.machine: slot.region for slot in plan.workers}
        machines = [plan.machine(replica, 0) for replica in plan.ring(0)]
        return tuple(RingPlace(machine, regions[machine]) for machine in machines)
    return tuple(RingPlace(slot.machine, slot.region) for slot in plan.workers for _ in range(slot.num_accelerators))


def folded(ring: Iterable[RingPlace]) -> dict[RingPlace, int]:
    """The first rank on each node, because several may share one.

    >>> folded([RingPlace("a", "eu"), RingPlace("a", "eu"), RingPlace("b", "us")])[RingPlace("b", "us")]
    2
    """
    places: dict[RingPlace, int] = {}
    for rank, place in enumerate(ring):
        places.setdefault(place, rank)
    return places
