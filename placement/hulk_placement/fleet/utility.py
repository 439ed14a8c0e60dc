"""What a job's accumulated work is worth: the utilities that a job can declare.

Work is counted in samples (worker-steps times samples per worker and step) and a utility depends on it alone, except
`energy`, which also pays for the watts of its workers, and `deadline`, which is worth little once it is late. Gains are
told as logarithms: far below its midpoint a sigmoid's gain underflows to zero, its logarithm does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class UtilityKind(StrEnum):
    """How utility grows with work x, of a total F."""

    SQRT = "sqrt"
    """weight × √x: returns diminish, so that nothing is trained to excess."""
    SIGMOID = "sigmoid"
    """weight / (1 + e^(-steepness × (x - midpoint))): worth nearly nothing until the midpoint, nearly all beyond."""
    PROPORTIONAL = "proportional"
    """weight × ln(1 + x / scale): proportional fairness, a job that has had little gains most."""
    ENERGY = "energy"
    """weight × x, less joule_price × watts² per second, watts of all its workers together."""
    DEADLINE = "deadline"
    """weight once all work is done by deadline_s; later, `late_share` of it, in proportion to the work."""
    THROUGHPUT = "throughput"
    """weight × x."""
    BACKLOG = "backlog"
    """-weight × (F - x)² / 2F: what is left weighs more than linearly, so that a batch ends together and early."""


NEEDED = {
    UtilityKind.SIGMOID: ("steepness", "midpoint"),
    UtilityKind.DEADLINE: ("deadline_s",),
    UtilityKind.ENERGY: ("power_price",),
}
"""The parameters without which a utility means nothing."""


@dataclass(frozen=True, slots=True)
class Utility:
    """One job's utility; ValueError where a parameter is missing or out of its range.

    `power_price` is what one squared watt costs for a second, in the unit of utility.

    >>> Utility(UtilityKind.SQRT, weight=2).value(9.0, 100.0)
    6.0
    """

    kind: UtilityKind = UtilityKind.THROUGHPUT
    weight: float = 1.0
    steepness: float | None = None
    midpoint: float | None = None
    scale: float = 1.0
    deadline_s: float | None = None
    late_share: float = 0.1
    power_price: float | None = None

    def __post_init__(self) -> None:
        missing = [name for name in NEEDED.get(self.kind, ()) if getattr(self, name) is None]
        if missing:
            raise ValueError(f"utility {self.kind}: needs {' and '.join(missing)}")
        for name, least, strict in (
            ("weight", 0.0, True),
            ("steepness", 0.0, True),
            ("scale", 0.0, True),
            ("midpoint", 0.0, False),
            ("late_share", 0.0, False),
            ("power_price", 0.0, False),
        ):
            _check(self.kind, name, getattr(self, name), least, strict)
        if self.late_share > 1 or (self.deadline_s is not None and not math.isfinite(self.deadline_s)):
            raise ValueError(
                f"utility {self.kind}: late_share {self.late_share} must be <= 1, deadline_s {self.deadline_s} finite"
            )

    def log_gain(self, before: ArrayLike, after: ArrayLike, total: float, late: bool = False) -> Floats:
        """Natural logarithm of what going from `before` to `after` samples is worth; -inf where that is nothing.

        `late` says that a deadline is over. The price of power is not in it: see `power_cost`.

        >>> sigmoid = Utility(UtilityKind.SIGMOID, steepness=1.0, midpoint=2000.0)
        >>> float(sigmoid.log_gain(0.0, 1000.0, 6000.0))
        -1000.0
        """
        start, end = np.broadcast_arrays(np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64))
        start, end = np.minimum(start, total), np.minimum(end, total)
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = self._log_gain(start, end, total, late) + math.log(self.weight)
        found: Floats = np.where(end > start, gains, -np.inf)
        return found

    def value(self, work: float, total: float, late: bool = False) -> float:
        """Utility of so many samples in all, above that of none; `backlog`'s is what it has worked off."""
        return float(np.exp(self.log_gain(0.0, work, total, late)))

    def gain(self, before: float, after: float, total: float, late: bool = False) -> float:
        """What going from `before` to `after` samples is worth."""
        return float(np.exp(self.log_gain(before, after, total, late)))

    def power_cost(self, workers: int, watts_per_worker: float) -> float:
        """What a second with so many workers costs, in the unit of utility: quadratic in the watts."""
        if self.kind is not UtilityKind.ENERGY:
            return 0.0
        return (self.power_price or 0.0) * (workers * watts_per_worker) ** 2

    def _log_gain(self, start: Floats, end: Floats, total: float, late: bool) -> Floats:
        match self.kind:
            case UtilityKind.SQRT:
                rise: Floats = np.sqrt(end) - np.sqrt(start)
                return np.log(rise)
            case UtilityKind.SIGMOID:
                steepness, midpoint = self.steepness or 1.0, self.midpoint or 0.0
                return _log_sigmoid_gain(steepness * (start - midpoint), steepness * (end - midpoint))
            case UtilityKind.PROPORTIONAL:
                return np.log(np.log1p((end - start) / (self.scale + start)))
            case UtilityKind.DEADLINE if late:
                return np.log(self.late_share * (end - start) / total)
            case UtilityKind.DEADLINE:
                return np.where(end >= total, 0.0, -np.inf)
            case UtilityKind.BACKLOG:
                return np.log((end - start) * (1 - (start + end) / (2 * total)))
            case _:
                return np.log(end - start)


def _log_sigmoid_gain(start: Floats, end: Floats) -> Floats:
    """ln(σ(end) - σ(start)) = ln σ(end) + ln σ(-start) + ln(1 - e^(start - end)), which never underflows."""
    found: Floats = -np.logaddexp(0.0, -end) - np.logaddexp(0.0, start) + np.log(-np.expm1(start - end))
    return found


def _check(kind: UtilityKind, name: str, value: float | None, least: float, strict: bool) -> None:
    if value is None:
        return
    if not math.isfinite(value) or value < least or (strict and value == least):
        raise ValueError(f"utility {kind}: {name} {value} must be {'>' if strict else '>='} {least:g} and finite")
