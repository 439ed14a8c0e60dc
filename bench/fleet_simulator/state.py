"""One job's life in a simulation: what it has done, where it runs, what it held."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hulk_placement.fleet.room import workers
from hulk_placement.fleet.types import Job
from hulk_placement.fleet.utility import UtilityKind

DONE = 1e-9
"""Of a job's work, what is left when it counts as done."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time on which a job kept its workers."""

    job: str
    start_s: float
    end_s: float
    workers: int
    mapping: Mapping[str, int]


@dataclass(slots=True)
class Life:
    """A job that has arrived."""

    job: Job
    mapping: dict[str, int] = field(default_factory=dict)
    work: float = field(init=False)
    moved_s: float = -math.inf
    ready_s: float = 0.0
    served_s: float = 0.0
    joules: float = 0.0
    power_cost: float = 0.0
    ended_s: float | None = None
    since_s: float = 0.0
    spans: list[Span] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.work = self.job.work_done

    @property
    def left(self) -> float:
        """Samples not done."""
        return max(0.0, self.job.total_work - self.work)

    def as_job(self) -> Job:
        """As the policy sees it now."""
        return replace(self.job, work_done=self.work, moved_s=self.moved_s, served_s=self.served_s)

    def move(self, mapping: dict[str, int], now_s: float) -> None:
        """On other workers from now on; work goes on when the restart is over."""
        self._close(now_s)
        self.mapping, self.moved_s, self.since_s = mapping, now_s, now_s
        self.ready_s = now_s + self.job.restart_s

    def go_on(self, start_s: float, end_s: float, rate: float) -> None:
        """Work from one event to the next."""
        if not self.mapping:
            return
        count, passed_s = workers(self.mapping), end_s - start_s
        self.work += rate * max(0.0, end_s - max(start_s, self.ready_s))
        self.served_s += count * self.job.accelerators_per_worker * passed_s
        self.joules += count * self.job.watts_per_worker * passed_s
        self.power_cost += self.job.utility.power_cost(count, self.job.watts_per_worker) * passed_s
        if self.left <= DONE * self.job.total_work:
            self._close(end_s)
            self.work, self.ended_s, self.mapping = self.job.total_work, end_s, {}

    def utility(self) -> float:
        """What its work is worth, less what its power cost."""
        utility, total = self.job.utility, self.job.total_work
        if utility.kind is UtilityKind.DEADLINE and utility.deadline_s is not None:
            if self.ended_s is not None and self.ended_s <= utility.deadline_s:
                return utility.weight
            return utility.value(self.work, total, late=True)
        return utility.value(self.work, total) - self.power_cost

    def all_spans(self, now_s: float) -> list[Span]:
        """Its stretches, the present one up to now."""
        self._close(now_s)
        return self.spans

    def _close(self, now_s: float) -> None:
        if self.mapping and now_s > self.since_s:
            self.spans.append(Span(self.job.key, self.since_s, now_s, workers(self.mapping), dict(self.mapping)))
        self.since_s = now_s
