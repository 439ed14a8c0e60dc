"""Numbers as people read them, as in the report of a plan."""

from hulk_placement.report.units import ABSENT, age, count, duration, percent, rate, size, span

__all__ = ["ABSENT", "age", "count", "duration", "percent", "rate", "size", "span"]
