"""A comparison of searches -> rows with their gaps to what no plan can beat."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hulk_placement.layouts.compare import Comparison, Row
from hulk_placement.report.rows import SearchRow, SearchRows
from hulk_placement.report.view import microseconds
from hulk_placement.split import compare as split
from hulk_placement.workload import Workload


def search_rows(found: Comparison, workload: Workload, seconds_each: float) -> SearchRows:
    """The rows, the best first, with their gaps to the bound: that of the best layout where a search has seen all."""
    rows = [(row, _layout_words(row)) for row in found.rows]
    return _side_by_side(rows, found.least, workload.objective == "time", seconds_each)


def division_rows(found: split.Comparison, are_times: bool, seconds_each: float) -> SearchRows:
    """The rows of several jobs together, the best first: steps and bound are geometric means over the jobs."""
    rows = [(row, _division_words(row)) for row in found.rows]
    return _side_by_side(rows, found.least, are_times, seconds_each)


def _side_by_side(
    found: Sequence[tuple[Row | split.Row, str | None]], least: float, are_times: bool, seconds_each: float
) -> SearchRows:
    proven = [row.cost for row, _ in found if row.is_proven and row.cost < math.inf]
    bound = max([least, *proven])
    return SearchRows(
        rows=tuple(
            SearchRow(
                search=row.search,
                seconds=row.seconds,
                evaluations=row.num_evaluations,
                layout=layout,
                step_microseconds=microseconds(row.cost) if row.cost < math.inf and are_times else None,
                price_per_step=row.cost if row.cost < math.inf and not are_times else None,
                gap=max(0.0, 1 - bound / row.cost) if 0.0 < row.cost < math.inf else None,
                is_proven=row.is_proven,
                is_time_over=row.is_time_over,
            )
            for row, layout in sorted(found, key=lambda pair: pair[0].cost)
        ),
        seconds_each=seconds_each,
        bound_microseconds=microseconds(bound) if are_times else None,
        bound_price_per_step=None if are_times else bound,
        bound_is_reached=bool(proven),
    )


def _division_words(row: split.Row) -> str | None:
    return f"{' + '.join(map(str, row.num_accelerators))} accelerators" if row.cost < math.inf else None


def _layout_words(row: Row) -> str | None:
    shape = row.shape
    if shape is None:
        return None
    words = f"{shape.data} x {shape.pipeline} x {shape.option.tensor}, micro-batch {shape.option.micro_batch}"
    return f"{words}, {shape.option.schedule}" if shape.pipeline > 1 else words
