"""What trainings of pipelines showed, and what they say together."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bench.training import Training
from bench.verdicts import verdict

NUM_STAGES: Final = 3
SEARCHED: Final = "searched"
USUAL: Final = ("gpipe", "1f1b")
ORDERS: Final = (*USUAL, SEARCHED)
AS_PLANNED: Final = "executed as planned"
"""How the last line of a rank begins that ran its blocks in the plan's order."""

MAX_RATIO: Final = 1.0
NOISE: Final = 0.03
"""Two medians that differ by less are the same."""

MAX_MEAN_ERROR: Final = 0.05


@dataclass(frozen=True, slots=True)
class Case:
    """Links by name, how many pipelines, and whose order of blocks."""

    links: str
    num_pipelines: int
    order: str
    round: int = 0

    @property
    def job_name(self) -> str:
        """Of its job: each training's is another."""
        return f"{self.links}-{self.num_pipelines}-{self.order}-{self.round}"


def cases(links: str, nums: Sequence[int], orders: Sequence[str], num_rounds: int) -> Iterator[Case]:
    """All of some links; the orders take turns, each round begins with another one.

    >>> [case.order for case in cases("near", (1,), ("a", "b"), 2)]
    ['a', 'b', 'b', 'a']
    """
    for num in nums:
        for number in range(num_rounds):
            first = number % len(orders)
            for order in (*orders[first:], *orders[:first]):
                yield Case(links, num, order, number)


@dataclass(frozen=True, slots=True)
class Row:
    """One training. Seconds of a step; bubbles, which hold transfers, are those of the stage that computes longest."""

    links: str
    num_pipelines: int
    order: str
    schedule: str
    """What the plan calls it."""
    predicted_s: float
    observed_s: float
    predicted_bubble_s: float
    observed_bubble_s: float
    observed_transfer_s: float
    is_as_planned: bool
    usable: bool
    conditions: str

    @staticmethod
    def of(case: Case, training: Training) -> Row:
        """A training's row."""
        observed = training.status["observed"]["pipeline"]
        return Row(
            case.links,
            case.num_pipelines,
            case.order,
            training.status["plan"]["schedule"],
            training.predicted_s,
            training.observed_s,
            training.status["prediction"]["bubbleMicroseconds"] / 1e6,
            observed["bubbleMicroseconds"] / 1e6,
            observed["transferMicroseconds"] / 1e6,
            len(training.last_lines) == NUM_STAGES * case.num_pipelines
            and all(line.startswith(AS_PLANNED) for line in training.last_lines),
            training.valid and training.in_time,
            str(training.conditions),
        )

    @property
    def case(self) -> tuple[str, int, str]:
        """What all rounds of it share."""
        return self.links, self.num_pipelines, self.order

    @property
    def error(self) -> float:
        """(predicted - observed) / observed."""
        return self.predicted_s / self.observed_s - 1

    def __str__(self) -> str:
        counts = "" if self.usable else ", does not count"
        what = f"{self.links}, {self.num_pipelines} x {NUM_STAGES} stages, {self.order}"
        seconds = f"predicted {self.predicted_s:.3f} s, observed {self.observed_s:.3f} s ({self.error:+.1%})"
        return f"{what}: {seconds}; {self.conditions}{counts}"


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Whether the searched order wins where it was foreseen, predictions' errors, and the executed orders."""
    usable = [row for row in rows if row.usable]
    lines = []
    for links, num in dict.fromkeys((row.links, row.num_pipelines) for row in usable):
        same = [row for row in usable if (row.links, row.num_pipelines) == (links, num)]
        for usual in USUAL:
            foreseen, seen = (_ratio(same, usual, name) for name in ("predicted_s", "observed_s"))
            if foreseen is None or seen is None:
                continue
            told = f"{links}, {num} x {NUM_STAGES}: step of the searched order / {usual}'s, predicted {foreseen:.3f}"
            aim = MAX_RATIO if foreseen < 1 - NOISE else MAX_RATIO + NOISE
            lines.append(verdict(f"{told}, observed", seen, "at most", aim))
    errors = [abs(row.error) for row in usable]
    mean = statistics.mean(errors) if errors else None
    lines.append(verdict(f"prediction's error, mean of {len(errors)}", mean, "at most", MAX_MEAN_ERROR))
    num_others = sum(not row.is_as_planned for row in rows)
    what = f"trainings of {len(rows)} with a rank whose order was not the plan's"
    lines.append(verdict(what, num_others, "at most", 0))
    return lines


def _ratio(rows: Sequence[Row], usual: str, name: str) -> float | None:
    """Medians of the searched order's figures and of a usual one's."""
    each = [[getattr(row, name) for row in rows if row.order == order] for order in (SEARCHED, usual)]
    return statistics.median(each[0]) / statistics.median(each[1]) if all(each) else None
