"""How sums travel from rank to rank: as they are inside a region, compressed between regions where the plan says so.

What compression takes from a sum is kept and added to the next sum of the same chunk (error feedback). Of a result
nothing is kept: it must be rounded alike wherever it was made, so that all ranks get the same bits.
"""

from collections.abc import Hashable, MutableMapping
from typing import Final

import torch

from hulk_runtime.collective.reduction.compression import CODECS, Codec
from hulk_runtime.collective.reduction.vector import Values

Chunk = tuple[int, int]
"""Part and number."""
Residuals = MutableMapping[Chunk, torch.Tensor]


MOST_BETWEEN: Final = 1024
"""Named vectors after which a name counts as used no more: torch cuts its buckets anew after the first step."""


class Feedback:
    """What compression took from the vectors of each name, to be added to the next one of that name."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[int, Residuals, int]] = {}
        self._num_vectors = 0

    def of(self, name: Hashable, num_values: int) -> Residuals:
        """What the last vector left; of one of another length nothing is of use. Without a name it is kept nowhere."""
        length, residuals, _ = self._kept.pop(name, (0, {}, 0))
        if length != num_values:
            residuals = {}
        if name is not None:
            self._num_vectors += 1
            self._kept[name] = (num_values, residuals, self._num_vectors)
            self._forget_oldest()
        return residuals

    def _forget_oldest(self) -> None:
        oldest = next(iter(self._kept))
        if self._num_vectors - self._kept[oldest][2] > MOST_BETWEEN:
            del self._kept[oldest]

    def clear(self) -> None:
        """Chunks are others now, or other ranks sum them."""
        self._kept.clear()


class Hops:
    """The hops of one operation. `far` are the ranks of other regions, `residuals` what earlier operations left."""

    def __init__(self, values: Values, far: frozenset[int], codec: Codec | None, residuals: Residuals) -> None:
        self._values, self._far, self._codec, self._residuals = values, far, codec, residuals

    def compress(self, other: int) -> bool:
        """Whether what goes to or comes from a rank is compressed."""
        return self._codec is not None and other in self._far

    def num_bytes(self, other: int, num_values: int) -> int:
        """How long so many values are on the way to or from a rank."""
        if self._codec is not None and other in self._far:
            return self._codec.encoded_bytes(num_values)
        return num_values * self._values.bytes_per_value

    def payload(self, target: int, total: torch.Tensor, chunk: Chunk) -> memoryview:
        """A sum as it is sent to a rank."""
        if self._codec is not None and target in self._far:
            return self._codec.encode(total, self._residual(chunk, total))
        return self._values.payload(total)

    def shared(self, total: torch.Tensor, chunk: Chunk) -> tuple[memoryview, torch.Tensor]:
        """A sum to exchange: as it is sent, and as all others will read it, in memory of its own."""
        if self._codec is None:
            mine = self._values.partial(total)
            return self._values.payload(mine), mine
        payload = self._codec.encode(total, self._residual(chunk, total))
        return payload, self._codec.decode(payload, total.numel())

    def rounded(self, total: torch.Tensor) -> tuple[memoryview | None, torch.Tensor]:
        """A result as other regions get it (None: as it is), and what all then have."""
        if self._codec is None:
            return None, total
        payload = self._codec.encode(total, None)
        return payload, self._codec.decode(payload, total.numel())

    def read(self, source: int, payload: memoryview, num_values: int) -> torch.Tensor:
        """What a rank sent."""
        if self._codec is not None and source in self._far:
            return self._codec.decode(payload, num_values)
        return self._values.received(payload)

    def _residual(self, chunk: Chunk, total: torch.Tensor) -> torch.Tensor:
        kept = self._residuals.get(chunk)
        if kept is None or kept.numel() != total.numel():
            kept = self._residuals[chunk] = torch.zeros(total.numel(), dtype=torch.float32, device="cpu")
        return kept


def codec(name: str) -> Codec | None:
    """The codec of a plan's `compression`; None for none."""
    return None if name == "none" else CODECS[name]
