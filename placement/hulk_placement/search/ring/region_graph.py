"""What the ring over regions is searched in: the graph, the workers asked for, and how much work may be done."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hulk_placement.cost.gloo import Ring
from hulk_placement.solution import Budget, Readings
from hulk_placement.stopping import RUN_S, Stopping, known_steps, stopping
from hulk_placement.topology import SAME_MACHINE
from hulk_placement.workload import Workload


@dataclass(frozen=True, slots=True)
class RegionGraph:
    """Links between numbered regions; [a][a] joins machines inside region a.

    `rtt_s[a][b]` in seconds; `bandwidth[a][b]` in bytes/s, 0 where the link may not be used, of which one flow gets
    `flow[a][b]`. `roomy[a]` says that a machine of the region may hold several workers, which then need no such link.
    `uplink[a]` in bytes/s, 0 where the region has no limit of its own.
    """

    rtt_s: tuple[tuple[float, ...], ...]
    bandwidth: tuple[tuple[float, ...], ...]
    flow: tuple[tuple[float, ...], ...]
    uplink: tuple[float, ...]
    roomy: tuple[bool, ...]

    def __len__(self) -> int:
        return len(self.uplink)

    def edge_s(self, ring: Ring, source: int, target: int, num_sharing: int) -> float:
        """Seconds of the ring if this edge is its worst; infinite where the link may not be used."""
        if not self.bandwidth[source][target]:
            return float("inf")
        rtt_s, bandwidth = self.rtt_s[source][target], self.bandwidth[source][target]
        return ring.edge_s(rtt_s, bandwidth, num_sharing, self.flow[source][target])

    def max_sharing(self, ring: Ring, source: int, target: int, limit_s: float, at_most: int) -> int:
        """The most ring edges (0..at_most) that may use a link so that none takes longer."""
        if not self.bandwidth[source][target]:
            return 0
        rtt_s, bandwidth = self.rtt_s[source][target], self.bandwidth[source][target]
        return ring.max_sharing(rtt_s, bandwidth, limit_s, at_most, self.flow[source][target])

    def inside_s(self, ring: Ring, region: int) -> float:
        """The least seconds of an edge inside a region that is one of several in the ring."""
        between = self.edge_s(ring, region, region, 1)
        within = ring.edge_s(SAME_MACHINE.rtt_s, SAME_MACHINE.bandwidth_bytes_per_s, 1)
        return min(between, within) if self.roomy[region] else between


@dataclass(frozen=True, slots=True)
class Demand:
    """Workers asked for, `num_large` of which take one more sequence than the others.

    `slots[a]` workers of region a are fast enough, `large[a]` of them also for the larger share.
    """

    num_workers: int
    num_large: int
    slots: tuple[int, ...]
    large: tuple[int, ...]


@dataclass(slots=True)
class Work:
    """Iterations done, how many are allowed, and how often a search gave up before it had tried everything.

    `end_s` is when it must stop by `clock`. Where that comes first, `stopped_at` keeps the iterations done until then;
    as `stop_at` they end the same search at the same place on any machine. `stopping` may end it before, by the run
    of the best plan that was `found`. `readings` keeps either for the same pass to be made again.
    """

    limit: int
    done: int = 0
    num_given_up: int = 0
    stop_at: int | None = None
    end_s: float = math.inf
    clock: Callable[[], float] = time.monotonic
    stopped_at: int | None = None
    stopping: Stopping | None = None
    seconds_a_unit: float | None = None
    """Seconds of run for one of cost; None until the first plan, by which the run takes RUN_S."""
    run_s: float = math.inf
    """By the best plan that was found."""
    waited_s: float | None = None
    """What it took until it was not worth waiting for; None where it was not `stopping` that ended it."""
    readings: Readings = field(default_factory=dict)

    @classmethod
    def begun(
        cls,
        budget: Budget,
        workload: Workload,
        limit: int,
        start_s: float,
        seconds: float,
        clock: Callable[[], float],
        num_inner: int = 1,
    ) -> Work:
        """Work for one of the searches of a pass; it makes the seconds of so many steps least, or their price."""
        given, made = budget.record.begin()
        return cls(
            limit,
            stop_at=next(iter(given), None) if given else None,
            end_s=start_s + seconds if given is None else math.inf,
            clock=clock,
            stopping=stopping(budget, start_s),
            seconds_a_unit=None if (num_steps := known_steps(workload)) is None else num_steps / num_inner,
            readings=made,
        )

    def spend(self, num: int = 1) -> bool:
        """Count iterations; False when nothing more may be done.

        Only here is the clock looked at, and never twice at one count: so the count alone says where it ended a search.
        """
        self.done += num
        if self.stop_at is None:
            now_s = self.clock()
            if now_s >= self.end_s:
                self._stop(self.done)
            elif self.stopping is not None and self.stopping.is_over(now_s, self.run_s):
                self._stop(self.done, now_s - self.stopping.start_s)
        return not self.exhausted

    def _stop(self, done: int, waited_s: float | None = None) -> None:
        self.stop_at = self.stopped_at = done
        self.waited_s = waited_s
        self.readings[done] = 100

    def found(self, cost: float) -> None:
        """A plan of such a cost was found; infinite: none."""
        if cost < math.inf:
            if self.seconds_a_unit is None:
                self.seconds_a_unit = RUN_S / cost if cost else 0.0
            self.run_s = min(self.run_s, self.seconds_a_unit * cost)

    @property
    def exhausted(self) -> bool:
        """Whether nothing more may be done."""
        return self.done >= self.limit or (self.stop_at is not None and self.done >= self.stop_at)

    @property
    def incomplete(self) -> bool:
        """Whether something was left untried."""
        return self.exhausted or self.num_given_up > 0

    def part(self, limit: int) -> Work:
        """Work of its own for a part of the search, which stops when this one must; `add` it afterwards."""
        stop_at = None if self.stop_at is None else max(0, self.stop_at - self.done)
        return replace(self, limit=limit, done=0, num_given_up=0, stop_at=stop_at, stopped_at=None, readings={})

    def add(self, part: Work) -> None:
        """Count a part's iterations."""
        if part.stopped_at is not None:
            self._stop(self.done + part.stopped_at, part.waited_s)
        self.seconds_a_unit, self.run_s = part.seconds_a_unit, min(self.run_s, part.run_s)
        self.done += part.done
