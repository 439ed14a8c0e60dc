"""Where a rank is among the others, from the environment that `gang` gives it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Place:
    """One rank of a gang; regions are numbered in the order of their first rank."""

    rank: int
    addresses: tuple[str, ...]
    regions: tuple[tuple[int, ...], ...]
    """Ranks of each region."""

    @classmethod
    def of_environment(cls) -> Self:
        names = os.environ["REGIONS"].split(",")
        regions = tuple(
            tuple(rank for rank, other in enumerate(names) if other == name) for name in dict.fromkeys(names)
        )
        return cls(int(os.environ["RANK"]), tuple(os.environ["ADDRESSES"].split(",")), regions)

    @property
    def region(self) -> int:
        """This rank's."""
        return next(number for number, ranks in enumerate(self.regions) if self.rank in ranks)
