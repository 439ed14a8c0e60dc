"""What every rank tells all others once in a step: a row of numbers, directly, read when all rows are there.

With gloo receives are posted before the step, so that a row takes one way; NCCL matches messages by their order, so
there all exchange their rows when they read them.
"""

from datetime import timedelta
from typing import Final

import torch

from hulk_runtime.collective.process_group import Group
from hulk_runtime.pipeline.posted_receives import Posted

TAG: Final = 1 << 26
"""Above those of a pipeline's messages."""


class Bulletin:
    """Of one rank; rows have `length` numbers."""

    def __init__(self, group: Group, length: int) -> None:
        self._group = group
        self._own = torch.zeros(length, dtype=torch.float64)
        is_direct = group.backend == "gloo"
        self._lines = {rank: Posted(rank, None, TAG, is_short=True) for rank in group.peers} if is_direct else None

    def expect(self) -> None:
        """A step begins: others may tell theirs. Raises PeerLostError."""
        for line in (self._lines or {}).values():
            line.expect(torch.empty_like(self._own))

    def tell(self, row: torch.Tensor) -> None:
        """Tell all others. Raises PeerLostError."""
        self._own = row
        for line in (self._lines or {}).values():
            line.send(row)

    def hear(self, patience: timedelta | None) -> torch.Tensor:
        """All rows, by rank, when they are there. Raises PeerLostError."""
        if self._lines is None:
            return self._group.exchange(self._own)
        rows = {rank: line.take(patience) for rank, line in self._lines.items()}
        return torch.stack([rows.get(rank, self._own) for rank in range(self._group.world_size)])
