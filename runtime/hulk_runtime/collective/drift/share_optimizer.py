"""How to share a vector out over given flows so that it takes least time, when links are not what the plan believed.

A small linear program, solved alike on every machine: each step rounded, in a fixed order, no BLAS. With the shares x
of the flows, every window of a link that matters (timing.py) says T >= sum over flows of (a + z + n B / rate) x,
because the shares sum to 1; rows are added where a solution breaks them. That is a matrix game: the least of
the largest row.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import torch

from hulk_runtime.collective.drift.cost_model import Clock, Timed, Window
from hulk_runtime.plan.flows import Flow

ENOUGH: Final = 0.005
"""A row broken by less than this share of T is left."""
MAX_ROUNDS: Final = 30
MAX_PIVOTS: Final = 400
MAX_CAPS: Final = 3
LEAST_SHARE: Final = 0.01
_TINY: Final = 1e-9


def best(clock: Clock, flows: Sequence[Flow]) -> tuple[float, tuple[Flow, ...]]:
    """Seconds, and the flows that are used with their new shares. `flows` with the same way count once."""
    ways = list(dict.fromkeys(replace(flow, share=0.0) for flow in flows))
    timed = sorted((clock.time(flow) for flow in ways), key=lambda way: way.latency_s)
    latencies_s = sorted({way.latency_s for way in timed}, reverse=True)
    found = [
        _share(clock, [way for way in timed if way.latency_s <= cap_s]) for cap_s in _spread(latencies_s, MAX_CAPS)
    ]
    seconds, shares = min(found, key=lambda one: one[0])
    used = [(way.flow, share) for way, share in zip(timed, shares, strict=False) if share > 0]
    return seconds, tuple(replace(flow, share=share) for flow, share in used)


def seconds(clock: Clock, flows: Sequence[Flow]) -> float:
    """What flows take as they are."""
    return clock.seconds([clock.time(flow) for flow in flows], [flow.share for flow in flows])[0]


def _share(clock: Clock, ways: Sequence[Timed]) -> tuple[float, list[float]]:
    """Seconds and the share of each way."""
    rows = [[way.latency_s + _TINY for way in ways]]
    known: set[Window] = set()
    least: tuple[float, list[float]] | None = None
    for _ in range(MAX_ROUNDS):
        shares = play(rows)
        clean = _without_crumbs(shares)
        needs_s, windows = clock.seconds(ways, clean)
        if least is None or needs_s < least[0]:
            least = (needs_s, clean)
        believed_s = max(sum_in_order(a * x for a, x in zip(row, shares, strict=True)) for row in rows)
        broken = [window for window, need_s in windows.items() if need_s > believed_s * (1 + ENOUGH)]
        fresh = [window for window in broken if window not in known]
        if not fresh:
            break
        known.update(fresh)
        rows += [[clock.need_s(window, way.count(window)) for way in ways] for window in fresh]
    assert least is not None
    return least


def play(rows: Sequence[Sequence[float]]) -> list[float]:
    """The mix of columns whose largest row sum is least; all entries >= 0, the first row's > 0.

    With y = x / value it is: maximise the sum of y where every row's is at most 1 (simplex, Dantzig's rule).

    >>> [round(share, 6) for share in play([[1.0, 3.0], [3.0, 1.0]])]
    [0.5, 0.5]
    """
    num_rows, num_columns = len(rows), len(rows[0])
    table = torch.ones((num_rows + 1, num_columns + 1), dtype=torch.float64, device="cpu")
    table[:-1, :-1] = torch.tensor(rows, dtype=torch.float64, device="cpu")
    table[:-1, :-1] /= table[:-1, :-1].max()
    table[-1, -1] = 0.0
    basic, outside = [num_columns + row for row in range(num_rows)], list(range(num_columns))
    for _ in range(MAX_PIVOTS):
        gains = table[-1].tolist()
        column = max(range(num_columns), key=lambda at: (gains[at], -outside[at]))
        if gains[column] <= _TINY:
            break
        entries, bounds = table[:-1, column].tolist(), table[:-1, -1].tolist()
        ratios = {at: bounds[at] / entry for at, entry in enumerate(entries) if entry > _TINY}
        least = min(ratios.values())
        leaving = min((at for at, ratio in ratios.items() if ratio == least), key=basic.__getitem__)
        _pivot(table, leaving, column)
        basic[leaving], outside[column] = outside[column], basic[leaving]
    bounds = table[:, -1].tolist()
    found = [0.0] * num_columns
    for at, variable in enumerate(basic):
        if variable < num_columns:
            found[variable] = max(0.0, bounds[at])
    total = sum_in_order(found)
    return [value / total for value in found]


def _pivot(table: torch.Tensor, leaving: int, column: int) -> None:
    """Exchange a row's variable and a column's; each entry by one multiplication and one subtraction."""
    pivot = table[leaving, column]
    row = table[leaving] / pivot
    row[column] = 1.0 / pivot
    factors = table[:, column].clone()
    factors[leaving] = 0.0
    table[:, column] = 0.0
    table -= torch.outer(factors, row)  # `addr_` would round both at once, where a processor can
    table[leaving] = row


def _without_crumbs(shares: Sequence[float]) -> list[float]:
    """Shares that are hardly worth a part of their own go to the others."""
    kept = [share if share >= LEAST_SHARE else 0.0 for share in shares]
    total = sum_in_order(kept)
    return [share / total for share in kept]


def _spread(values: Sequence[float], most: int) -> list[float]:
    """At most so many of the values, the first among them."""
    if len(values) <= most:
        return list(values)
    return [values[len(values) * number // most] for number in range(most)]


def sum_in_order(values: Iterable[float]) -> float:
    """One after the other: `sum` rounds differently from one version of Python to the next."""
    total = 0.0
    for value in values:
        total += value
    return total
