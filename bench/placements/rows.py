"""What trainings by chosen machines showed, row by row, and what the rows of all labs show together."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.orders import rotated
from bench.training import Training
from bench.verdicts import verdict

PLANNED, DEFAULT = "planned", "planned, default all-reduce"
CHOOSING = {"region-greedy": "greedy", "DT-FM-like": "evolutionary"}
"""Those that know links and speeds, by the search that stands for them."""

RANDOM = "random"
"""What the names of draws at random begin with."""

BEST, LUCKIEST = "the best blind placement", "the luckiest"
MIN_SAVED = 0.2
MAX_MEAN_ERROR, MAX_WORST_ERROR = 0.05, 0.15
MAX_BUSY_SHARE = 0.9
"""A lab alone leaves more of the processors idle; where other programs take the rest, its nodes are not as fast as they
should be, now more and now less, and a training shows that instead of its placement."""

NOISE = 0.03
"""Two medians that differ by less are the same."""


@dataclass(frozen=True, slots=True)
class Row:
    """One training: who chose its machines, what a step took and was predicted to take."""

    lab: str
    who: str
    order: tuple[str, ...]
    observed_s: float
    predicted_s: float
    observed_compute_s: float
    predicted_compute_s: float
    usable: bool
    conditions: str

    @staticmethod
    def of(lab: str, who: str, training: Training) -> Row:
        """A training's row."""
        return Row(
            lab,
            who,
            training.order,
            training.observed_s,
            training.predicted_s,
            training.observed_compute_s,
            training.predicted_compute_s,
            training.valid and training.in_time and training.conditions.busy_share <= MAX_BUSY_SHARE,
            str(training.conditions),
        )

    @property
    def error(self) -> float:
        """(predicted - observed) / observed."""
        return self.predicted_s / self.observed_s - 1

    def __str__(self) -> str:
        step = f"predicted {self.predicted_s:.3f} s, observed {self.observed_s:.3f} s ({self.error:+.1%})"
        compute = f"compute {self.predicted_compute_s:.3f} s, {self.observed_compute_s:.3f} s"
        counts = "" if self.usable else ", does not count"
        return f"{self.who}: {' '.join(self.order)}: {step}; {compute}; {self.conditions}{counts}"


def read(path: Path) -> list[Row]:
    """Rows of a file of raw ones."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [Row(**{**row, "order": tuple(row["order"])}) for row in found]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One lab's usable rows; a placement that several chose counts for each of them."""

    lab: str
    rows: tuple[Row, ...]

    def step_s(self, who: str) -> float | None:
        """The median of all trainings on the rings that somebody chose, whoever else did; None where none is usable."""
        rings = {rotated(row.order) for row in self.rows if row.who == who}
        same = [row for row in self.rows if rotated(row.order) in rings and (row.who == DEFAULT) == (who == DEFAULT)]
        return statistics.median(row.observed_s for row in same) if same else None

    @property
    def blind_s(self) -> dict[str, float]:
        """Of those that know nothing of links."""
        names = dict.fromkeys(row.who for row in self.rows if row.who not in (PLANNED, DEFAULT, *CHOOSING))
        return {who: step_s for who in names if (step_s := self.step_s(who)) is not None}

    @property
    def expected_s(self) -> dict[str, float]:
        """As `blind_s`, all draws at random as one, their median: who draws once does not get the luckiest."""
        found = {who: step_s for who, step_s in self.blind_s.items() if not who.startswith(RANDOM)}
        drawn = [step_s for who, step_s in self.blind_s.items() if who.startswith(RANDOM)]
        return found | ({RANDOM: statistics.median(drawn)} if drawn else {})

    def saved(self, who: str, others_s: Mapping[str, float]) -> float | None:
        """Part of the least of others' steps that somebody's does not take."""
        step_s = self.step_s(who)
        return 1 - step_s / min(others_s.values()) if step_s and others_s else None

    def beside(self, who: str) -> float | None:
        """The plan's step / somebody's."""
        planned_s, step_s = self.step_s(PLANNED), self.step_s(who)
        return planned_s / step_s if planned_s and step_s else None


def outcomes(rows: Iterable[Row]) -> list[Outcome]:
    """By lab, in the order of the rows."""
    usable = [row for row in rows if row.usable]
    return [Outcome(lab, tuple(r for r in usable if r.lab == lab)) for lab in dict.fromkeys(r.lab for r in usable)]


def verdicts(found: Sequence[Outcome]) -> list[str]:
    """The aims, over all labs."""
    lines, saved, lucky = [], [], []
    for outcome in found:
        shares = [outcome.saved(PLANNED, outcome.expected_s), outcome.saved(PLANNED, outcome.blind_s)]
        shares.append(outcome.saved(DEFAULT, outcome.blind_s))
        told = ["no figure" if share is None else f"{share:.1%}" for share in shares]
        lines.append(f"{outcome.lab}: {told[0]} less time than {BEST}, {told[1]} than {LUCKIEST}; {DEFAULT}: {told[2]}")
        saved += [share for share in shares[:1] if share is not None]
        lucky += [share for share in shares[2:] if share is not None]
    for who, beside, each in ((PLANNED, BEST, saved), (DEFAULT, LUCKIEST, lucky)):
        median = statistics.median(each) if each else None
        lines.append(verdict(f"{who}: less time than {beside}, median of labs", median, "at least", MIN_SAVED))
    for who in CHOOSING:
        ratios = [ratio for outcome in found if (ratio := outcome.beside(who)) is not None]
        worst = max(ratios) if ratios else None
        lines.append(verdict(f"planned step / {who}'s, worst lab", worst, "at most", 1 + NOISE))
    errors = [abs(row.error) for outcome in found for row in outcome.rows]
    mean, largest = (statistics.mean(errors), max(errors)) if errors else (None, None)
    lines.append(verdict(f"prediction's error, mean of {len(errors)}", mean, "at most", MAX_MEAN_ERROR))
    lines.append(verdict("prediction's error, worst", largest, "at most", MAX_WORST_ERROR))
    return lines
