"""Linear and mixed-integer programs for HiGHS: columns and rows are collected, then solved once.

The solver is loaded by the first program that is solved: a plan without competition needs none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hulk_placement.fleet.room import Floats


@dataclass(slots=True)
class Rows:
    """A program that is being written down: maximise costs × columns, each from 0 to its upper bound."""

    costs: list[float] = field(default_factory=list)
    uppers: list[float] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    _columns: list[int] = field(default_factory=list)
    _values: list[float] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    _lowers: list[float] = field(default_factory=list)
    _limits: list[float] = field(default_factory=list)

    @property
    def scale(self) -> float:
        """The largest cost: the solver's tolerances are absolute, and are to be small beside it."""
        return max((abs(cost) for cost in self.costs), default=0.0) or 1.0

    @property
    def num_columns(self) -> int:
        """How many columns there are."""
        return len(self.costs)

    def columns(self, costs: Sequence[float], uppers: Sequence[float], whole: bool = False) -> list[int]:
        """New columns; their numbers."""
        first = len(self.costs)
        self.costs += costs
        self.uppers += uppers
        numbers = list(range(first, len(self.costs)))
        if whole:
            self.whole += numbers
        return numbers

    def add(self, columns: Sequence[int], values: Sequence[float], limit: float, equal: bool = False) -> None:
        """values × columns <= limit, or = limit; the limit is not below 0, so a row without columns says nothing."""
        if not columns:
            return
        self._starts.append(len(self._columns))
        self._columns += columns
        self._values += values
        self._lowers.append(limit if equal else -np.inf)
        self._limits.append(limit)

    def load(self, highs: Any) -> None:
        """Hand the program to the solver."""
        import highspy

        none, num = np.zeros(0), self.num_columns
        highs.addCols(
            num,
            -np.array(self.costs) / self.scale,
            np.zeros(num),
            np.array(self.uppers),
            0,
            np.zeros(num, dtype=np.int32),
            none.astype(np.int32),
            none,
        )
        for column in self.whole:
            highs.changeColIntegrality(column, highspy.HighsVarType.kInteger)
        highs.addRows(
            len(self._starts),
            np.array(self._lowers),
            np.array(self._limits),
            len(self._columns),
            np.array(self._starts, dtype=np.int32),
            np.array(self._columns, dtype=np.int32),
            np.array(self._values),
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The optimum and the columns there."""

    objective: float
    values: Floats


def solve(rows: Rows, seconds: float | None = None) -> Answer:
    """The optimum; ArithmeticError where the solver finds none, which is a program that has none."""
    if not rows.num_columns:
        return Answer(0.0, np.zeros(0))
    import highspy

    highs: Any = highspy.Highs()
    for option, value in (
        ("output_flag", False),
        ("threads", 1),
        ("random_seed", 0),
        ("mip_rel_gap", 0.0),
        ("mip_abs_gap", 1e-9),
        ("dual_feasibility_tolerance", 1e-10),
    ):
        highs.setOptionValue(option, value)
    if seconds is not None:
        highs.setOptionValue("time_limit", seconds)
    rows.load(highs)
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise ArithmeticError(f"program of {rows.num_columns} columns: {highs.getModelStatus()}")
    return Answer(-float(highs.getObjectiveValue()) * rows.scale, np.array(highs.getSolution().col_value))
