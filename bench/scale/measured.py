"""What is known of the operator at a moment, and what happened between two: requests, bytes, lags, passes, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any, Final

from bench.scale import prometheus
from bench.scale.prometheus import LAG, PASSES, TESTS, Samples
from bench.scale.supervised import Processor

Counts = dict[tuple[str, str], tuple[int, int]]
"""Requests and bytes of answers, by verb and kind."""
PROBING: Final = ("nodeprofiles", "nodeprofiles/status", "pods of agents")


@dataclass(frozen=True, slots=True)
class Moment:
    """Everything that only grows, as it is now."""

    time_s: float
    counts: Counts
    renewals_s: Sequence[float]
    samples: Samples
    num_ends: int
    num_too_large: int
    processor: Processor
    stood_s: float


def counts_of(meter: Mapping[str, Any]) -> Counts:
    """As the server says them."""
    return {(verb, kind): (requests, num_bytes) for verb, kind, requests, num_bytes in meter["rows"]}


@dataclass(frozen=True, slots=True)
class Span:
    """What happened between two moments. Seconds, MiB and bytes as their names say; a gap of None: there was none.

    `lag_max_s` is the bound of the last bucket that has any. `waited_s`: for how long the event loop waited for a
    processor that others had, and so was late for no reason of its own.
    """

    phase: str
    seconds: float
    requests: dict[str, int]
    received_bytes: dict[str, int]
    probing_requests: int
    probing_bytes: int
    num_tests: int
    num_passes: int
    pass_s: float | None
    lag_p50_s: float | None
    lag_p99_s: float | None
    lag_p999_s: float | None
    lag_max_s: float | None
    lease_gap_s: float | None
    num_ends: int
    num_too_large: int
    cpu_s: float
    waited_s: float
    stood_s: float
    own_mib: float
    with_planner_mib: float
    values: dict[str, float | None] = field(default_factory=dict)

    @property
    def num_requests(self) -> int:
        """All of them; a watch is one."""
        return sum(self.requests.values())

    @property
    def num_bytes(self) -> int:
        """Of all answers."""
        return sum(self.received_bytes.values())


def span(phase: str, before: Moment, after: Moment, own_mib: float, with_planner_mib: float) -> Span:
    """Between two moments."""
    grown = {key: _minus(now, before.counts.get(key, (0, 0))) for key, now in after.counts.items()}
    seen = prometheus.difference(after.samples, before.samples)
    used = after.processor - before.processor
    num_passes = round(seen.get(f"{PASSES}_count", 0))
    of_probing = [row for (_, kind), row in grown.items() if kind in PROBING]
    return Span(
        phase=phase,
        seconds=after.time_s - before.time_s,
        requests={" ".join(key): row[0] for key, row in grown.items() if row[0]},
        received_bytes={" ".join(key): row[1] for key, row in grown.items() if row[1]},
        probing_requests=sum(row[0] for row in of_probing),
        probing_bytes=sum(row[1] for row in of_probing),
        num_tests=round(seen.get(TESTS, 0)),
        num_passes=num_passes,
        pass_s=seen[f"{PASSES}_sum"] / num_passes if num_passes else None,
        lag_p50_s=prometheus.quantile(seen, LAG, 0.5),
        lag_p99_s=prometheus.quantile(seen, LAG, 0.99),
        lag_p999_s=prometheus.quantile(seen, LAG, 0.999),
        lag_max_s=prometheus.quantile(seen, LAG, 1.0),
        lease_gap_s=longest_gap(after.renewals_s, before.time_s),
        num_ends=after.num_ends - before.num_ends,
        num_too_large=after.num_too_large - before.num_too_large,
        cpu_s=used.cpu_s,
        waited_s=used.waited_s,
        stood_s=after.stood_s - before.stood_s,
        own_mib=own_mib,
        with_planner_mib=with_planner_mib,
    )


def longest_gap(times_s: Sequence[float], since_s: float) -> float | None:
    """The longest pause between two that end after a moment.

    >>> longest_gap([1.0, 3.5, 6.0, 11.0], since_s=5.0)
    5.0
    """
    return max((b - a for a, b in pairwise(times_s) if b >= since_s), default=None)


@dataclass(frozen=True, slots=True)
class Polls:
    """Seconds between two polls of one job's workers: median of the jobs' medians, and the longest of any job."""

    num_jobs: int
    median_s: float | None
    max_s: float | None


def polls(asked: Mapping[str, Sequence[float]], since_s: float, until_s: float) -> Polls:
    """From when each job began and was then asked; the ends of the time count as polls.

    >>> polls({"a": [-5.0, -2.0, 1.0, 4.0, 7.0], "b": [2.0], "c": [20.0]}, 0.0, 10.0)
    Polls(num_jobs=2, median_s=5.5, max_s=8.0)
    """
    gaps = []
    for begun_s, *times in asked.values():
        if begun_s < until_s:
            within = [time_s for time_s in times if max(since_s, begun_s) <= time_s < until_s]
            gaps.append([b - a for a, b in pairwise((max(since_s, begun_s), *within, until_s))])
    if not gaps:
        return Polls(0, None, None)
    return Polls(len(gaps), median(map(median, gaps)), max(map(max, gaps)))


def _minus(after: tuple[int, int], before: tuple[int, int]) -> tuple[int, int]:
    return after[0] - before[0], after[1] - before[1]
