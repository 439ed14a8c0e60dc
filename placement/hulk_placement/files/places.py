"""What the names of a topology document mean: machines or regions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from hulk_placement.topology import Pair

Key = tuple[bool, Pair]
"""Of a directed link: whether it joins regions (or else machines), and its source and target."""


@dataclass(frozen=True, slots=True)
class Places:
    """The names of a document's machines and of their regions."""

    machines: frozenset[str]
    regions: frozenset[str]

    def are_regions(self, names: Collection[str], between: str | None) -> bool:
        """Whether the names are regions, or else machines. ValueError where they are neither, or some of each.

        >>> Places(frozenset({"a"}), frozenset({"eu"})).are_regions(["eu", "eu"], between=None)
        True
        """
        if between != "machines" and self.regions.issuperset(names):
            return True
        if between != "regions" and self.machines.issuperset(names):
            return False
        nobody = dict.fromkeys(name for name in names if name not in self.machines | self.regions)
        if nobody:
            raise ValueError(f"neither a machine nor a region: {', '.join(nobody)}")
        raise ValueError(f"{', '.join(names)}: not all of them are {between or 'machines, nor all regions'}")
