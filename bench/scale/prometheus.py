"""What the operator tells of itself on /metrics, added up over its restarts."""

from __future__ import annotations

import math
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

Samples = dict[str, float]
LAG: Final = "hulk_operator_event_loop_lag_seconds"
PASSES: Final = "hulk_operator_planning_pass_seconds"
TESTS: Final = "hulk_probing_tests_total"
WANTED: Final = (LAG, PASSES, TESTS, "hulk_operator_lease_held", "hulk_operator_errors", "hulk_operator_queue_depth")


@dataclass(slots=True)
class Scrapes:
    """Counters of one port. A process that is started again counts from 0; what its predecessor had counted is kept."""

    port: int
    _ended: Samples = field(default_factory=dict)
    _last: Samples = field(default_factory=dict)

    def look(self) -> None:
        """Scrape, if somebody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
                self._last = parsed(answer.read().decode())
        except OSError:
            return

    def restarted(self) -> None:
        """The next scrape is another process's."""
        self._ended, self._last = self.total(), {}

    def total(self) -> Samples:
        """Counted so far."""
        return {key: self._ended.get(key, 0.0) + self._last.get(key, 0.0) for key in {*self._ended, *self._last}}


def parsed(text: str) -> Samples:
    """
    >>> parsed("# TYPE x gauge\\nhulk_operator_lease_held 1.0\\nother 2.0\\n")
    {'hulk_operator_lease_held': 1.0}
    """
    rows = (line.rpartition(" ") for line in text.splitlines() if line.startswith(WANTED))
    return {key: float(value) for key, _, value in rows}


def difference(after: Mapping[str, float], before: Mapping[str, float]) -> Samples:
    """What was counted meanwhile."""
    return {key: value - before.get(key, 0.0) for key, value in after.items()}


def quantile(samples: Mapping[str, float], name: str, share: float) -> float | None:
    """A quantile of a histogram, even within a bucket; of the last moment its bucket's bound. None: there are none.

    >>> seen = {'x_bucket{le="1.0"}': 50.0, 'x_bucket{le="2.0"}': 100.0, 'x_bucket{le="+Inf"}': 100.0}
    >>> quantile(seen, "x", 0.75), quantile(seen, "x", 1.0)
    (1.5, 2.0)
    """
    buckets = sorted(
        (float(key.partition('le="')[2].rstrip('"}')), count)
        for key, count in samples.items()
        if key.startswith(f"{name}_bucket")
    )
    if not buckets or not buckets[-1][1]:
        return None
    wanted, below, low_s = share * buckets[-1][1], 0.0, 0.0
    for bound_s, count in buckets:
        if count >= wanted:
            part = (wanted - below) / (count - below) if count > below else 1.0
            return low_s if math.isinf(bound_s) else low_s + part * (bound_s - low_s)
        below, low_s = count, bound_s
    raise AssertionError("the last bucket holds all")
