"""Measured seconds of a model's layers become the seconds of any micro-batch."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

Seconds = tuple[float, ...]


LEAST_S = 1e-12
"""Of both passes of a model: what takes less is a mistake in some figure, and speeds come near infinity."""


@dataclass(frozen=True, slots=True)
class TimesRow:
    """Seconds of every layer for one micro-batch of `micro_batch` sequences on one accelerator of `product`.

    `tensor` accelerators share each layer; what they spend on all-reduces is not in the seconds.
    """

    product: str
    micro_batch: int
    tensor: int
    forward_s: Seconds
    backward_s: Seconds

    def __post_init__(self) -> None:
        where = f"times of {self.product or 'no product'}, micro-batch {self.micro_batch}, tensor {self.tensor}"
        if not self.product or self.micro_batch < 1 or self.tensor < 1:
            raise ValueError(f"{where}: a product must be named, micro-batch and tensor must be >= 1")
        if len(self.forward_s) != len(self.backward_s):
            raise ValueError(f"{where}: {len(self.forward_s)} forward and {len(self.backward_s)} backward seconds")
        for figure in self.forward_s + self.backward_s:
            if not 0 <= figure < math.inf:
                raise ValueError(f"{where}: {figure} s must be >= 0 and finite")
        if self.forward_s and not sum(self.forward_s + self.backward_s):
            raise ValueError(
                f"{where}: all forward and backward seconds of the model's {len(self.forward_s)} layers are 0; one at "
                f"least must be > 0"
            )
        if 0 < sum(self.forward_s + self.backward_s) < LEAST_S:
            raise ValueError(f"{where}: {sum(self.forward_s + self.backward_s)} s of all layers must be >= {LEAST_S} s")

    def times(self, factor: float) -> TimesRow:
        """All seconds that many times as long."""
        forward_s, backward_s = (tuple(factor * each for each in row) for row in (self.forward_s, self.backward_s))
        return replace(self, forward_s=forward_s, backward_s=backward_s)


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Rows of measured seconds, one for each product, tensor degree and micro-batch that was measured."""

    rows: tuple[TimesRow, ...]

    def __post_init__(self) -> None:
        if not self.rows:
            raise ValueError("times: no row")
        measured = [(row.product, row.tensor, row.micro_batch) for row in self.rows]
        (product, tensor, micro_batch), how_often = Counter(measured).most_common(1)[0]
        if how_often > 1:
            raise ValueError(f"times: {how_often} rows for {product}, tensor {tensor}, micro-batch {micro_batch}")
        sizes = sorted({len(row.forward_s) for row in self.rows})
        if len(sizes) > 1:
            raise ValueError(f"times: rows of {' and '.join(map(str, sizes))} layers")

    def seconds(self, product: str, micro_batch: float, tensor: int) -> tuple[Seconds, Seconds] | None:
        """Forward and backward seconds of each layer for one micro-batch; None where the pair was not measured.

        Linear between two measured micro-batches, in proportion above the largest. Below the smallest: on the line
        through the two smallest, but not less than in proportion, as with only one. A layer that takes 3 s for 2
        sequences and 5 s for 4:

        >>> times = LayerTimes((TimesRow("T4", 2, 1, (3.0,), (6.0,)), TimesRow("T4", 4, 1, (5.0,), (10.0,))))
        >>> [times.seconds("T4", size, 1)[0] for size in (1, 3, 8)]
        [(2.0,), (4.0,), (10.0,)]
        """
        found = [row for row in self.rows if (row.product, row.tensor) == (product, tensor)]
        if not found:
            return None
        found.sort(key=lambda row: row.micro_batch)
        forward_s = _at(micro_batch, found, [row.forward_s for row in found])
        return forward_s, _at(micro_batch, found, [row.backward_s for row in found])


def _at(micro_batch: float, rows: Sequence[TimesRow], seconds: Sequence[Seconds]) -> Seconds:
    """The layers' seconds at a micro-batch, from the seconds of rows that ascend by micro-batch."""
    sizes = [row.micro_batch for row in rows]
    above = bisect_left(sizes, micro_batch)
    nearest = min(above, len(rows) - 1)
    proportional = [figure * micro_batch / sizes[nearest] for figure in seconds[nearest]]
    if len(rows) == 1 or above == len(rows):
        return tuple(proportional)
    low = max(0, above - 1)
    share = (micro_batch - sizes[low]) / (sizes[low + 1] - sizes[low])
    linear = [a + share * (b - a) for a, b in zip(seconds[low], seconds[low + 1], strict=True)]
    return tuple(map(max, linear, proportional)) if above == 0 else tuple(linear)
