"""A comparison of searches -> rows with their gaps to what no plan can beat."""

from __future__ import annotations

import math

from hulk_placement.layouts.compare import Comparison, Row
from hulk_placement.report.rows import SearchRow, SearchRows
from hulk_placement.report.view import microseconds
from hulk_placement.split import compare as split
from hulk_placement.workload import Workload


def search_rows(found: Comparison, workload: Workload, seconds_each: float) -> SearchRows:
    """The rows, the best first, with their gaps to the bound: that of the best layout where a search has seen all."""
    is_time = workload.objective == "time"
    proven_s = [row.step_s for row in found.rows if row.is_proven and is_time and row.step_s < math.inf]
    bound_s = max([found.least_s, *proven_s])
    rows = sorted(found.rows, key=lambda row: row.step_s)
    return SearchRows(
        rows=tuple(_search_row(row, bound_s, is_time) for row in rows),
        seconds_each=seconds_each,
        bound_microseconds=microseconds(bound_s),
        bound_is_reached=bool(proven_s),
    )


def division_rows(found: split.Comparison, are_times: bool, seconds_each: float) -> SearchRows:
    """The rows of several jobs together, the best first: steps and bound are geometric means over the jobs."""
    proven_s = [row.mean_step_s for row in found.rows if row.is_proven and are_times and row.mean_step_s < math.inf]
    bound_s = max([found.least_s, *proven_s])
    return SearchRows(
        rows=tuple(_division_row(row, bound_s, are_times) for row in sorted(found.rows, key=lambda r: r.mean_step_s)),
        seconds_each=seconds_each,
        bound_microseconds=microseconds(bound_s),
        bound_is_reached=bool(proven_s),
    )


def _division_row(row: split.Row, bound_s: float, are_times: bool) -> SearchRow:
    is_found = row.mean_step_s < math.inf
    return SearchRow(
        search=row.search,
        seconds=row.seconds,
        evaluations=row.num_evaluations,
        layout=f"{' + '.join(map(str, row.num_accelerators))} accelerators" if is_found else None,
        step_microseconds=microseconds(row.mean_step_s) if is_found and are_times else None,
        price_per_step=row.mean_step_s if is_found and not are_times else None,
        gap=max(0.0, 1 - bound_s / row.mean_step_s) if is_found and are_times else None,
        is_proven=row.is_proven,
        is_time_over=row.is_time_over,
    )


def _search_row(row: Row, bound_s: float, is_time: bool) -> SearchRow:
    is_found, shape = row.step_s < math.inf, row.shape
    layout = None
    if shape is not None:
        micro_batch = shape.option.micro_batch
        layout = f"{shape.data} x {shape.pipeline} x {shape.option.tensor}, micro-batch {micro_batch}"
        layout += f", {shape.option.schedule}" if shape.pipeline > 1 else ""
    return SearchRow(
        search=row.search,
        seconds=row.seconds,
        evaluations=row.num_evaluations,
        layout=layout,
        step_microseconds=microseconds(row.step_s) if is_found and is_time else None,
        price_per_step=row.step_s if is_found and not is_time else None,
        gap=max(0.0, 1 - bound_s / row.step_s) if is_found and is_time else None,
        is_proven=row.is_proven,
        is_time_over=row.is_time_over,
    )


def outcome_words(row: SearchRow) -> str:
    """The layout that a search found, or why it has none.

    >>> outcome_words(SearchRow(search="exact", seconds=1.0, evaluations=9, is_time_over=True))
    'no plan found when the time ended, after 1.00 s'
    >>> outcome_words(SearchRow(search="exact", seconds=0.2, evaluations=9, is_proven=True))
    'impossible: it has looked at everything'
    """
    if row.layout is not None:
        return row.layout
    if row.is_proven:
        return "impossible: it has looked at everything"
    if row.is_time_over:
        return f"no plan found when the time ended, after {row.seconds:.2f} s"
    return "no plan found in what it tries"
