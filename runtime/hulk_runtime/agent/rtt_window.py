"""A rolling window of round-trip times: what the last samples say about one link."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

WINDOW_SIZE: Final = 60
MIN_SAMPLES: Final = 5  # fewer say nothing about a 95th percentile


@dataclass(frozen=True, slots=True)
class Rtt:
    """Round-trip time of one directed link over a window of `num_samples` echoes, the newest at `time_s` (Unix)."""

    p50_us: int
    p95_us: int
    num_samples: int
    time_s: float


@dataclass(slots=True)
class Window:
    """The newest `WINDOW_SIZE` samples of one target, and how many requests went unanswered in a row.

    >>> window = Window()
    >>> for time_s, rtt_us in enumerate([100, 120, 110, 900, 105]):
    ...     window.add(float(time_s), rtt_us)
    >>> window.rtt()
    Rtt(p50_us=110, p95_us=900, num_samples=5, time_s=4.0)
    """

    _samples_us: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW_SIZE))
    _newest_s: float = 0.0
    num_lost_in_a_row: int = 0

    def add(self, time_s: float, rtt_us: int) -> None:
        """Take one answered echo."""
        self._samples_us.append(rtt_us)
        self._newest_s = time_s
        self.num_lost_in_a_row = 0

    def lose(self) -> None:
        """Take one unanswered echo; after a whole window of them the old samples say nothing about a new path."""
        self.num_lost_in_a_row += 1
        if self.num_lost_in_a_row >= WINDOW_SIZE:
            self._samples_us.clear()

    @property
    def num_samples(self) -> int:
        """Samples in the window."""
        return len(self._samples_us)

    def rtt(self) -> Rtt | None:
        """Nearest-rank percentiles of the window, None below `MIN_SAMPLES`."""
        if len(self._samples_us) < MIN_SAMPLES:
            return None
        ordered = sorted(self._samples_us)
        return Rtt(_nearest_rank(ordered, 50), _nearest_rank(ordered, 95), len(ordered), self._newest_s)


def _nearest_rank(ordered: list[int], percent: int) -> int:
    return ordered[-(-percent * len(ordered) // 100) - 1]
