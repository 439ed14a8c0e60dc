"""The plan of one all-reduce over regions: flows for every size of the vector, and for what may go wrong."""

from __future__ import annotations

from dataclasses import dataclass

from hulk_placement.collective.network import Network
from hulk_placement.collective.patterns import Flow, Link
from hulk_placement.sync import COMPRESSIONS, ENCRYPTIONS, ON_REGION_LOSS

WIRE_SHARE = {"none": 1.0, "bf16": 0.5, "int8": 65 / 256, "int4": 33 / 256}
"""Bytes on WAN hops by bytes of float32 values; whole numbers have a float32 scale for each 256 values."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """The flows for the case that one link has half its rate."""

    slow: Link
    flows: tuple[Flow, ...]


@dataclass(frozen=True, slots=True)
class SizeClass:
    """The flows of vectors up to `max_bytes`, and the predicted and least possible seconds of one of `max_bytes`.

    `advance_s` is what makes the last chunks of a flow give way to the first of others (`simulation.simulate`).
    """

    max_bytes: int
    chunk_bytes: int
    predicted_s: float
    bound_s: float
    flows: tuple[Flow, ...]
    alternatives: tuple[Alternative, ...] = ()
    advance_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Without:
    """The classes for the case that a region is cut off; the others are numbered anew, in the same order."""

    region: int
    classes: tuple[SizeClass, ...]


@dataclass(frozen=True, slots=True)
class CollectivePlan:
    """The classes in order of size; the last also serves anything larger."""

    network: Network
    classes: tuple[SizeClass, ...]
    without: tuple[Without, ...] = ()
    compression: str = "none"
    on_region_loss: str = "restart"
    fixed_shares: bool = False
    encryption: str = "wan"

    def __post_init__(self) -> None:
        if self.encryption not in ENCRYPTIONS:
            raise ValueError(f"encryption {self.encryption!r} is not known")
        if self.compression not in COMPRESSIONS or self.on_region_loss not in ON_REGION_LOSS:
            raise ValueError(f"compression {self.compression!r} or on region loss {self.on_region_loss!r} is not known")
        sizes = [found.max_bytes for found in self.classes]
        if not sizes or sizes != sorted(set(sizes)):
            raise ValueError(f"size classes {sizes} must be ascending, at least one")

    def of(self, num_bytes: int) -> SizeClass:
        """The class that serves a vector of so many bytes."""
        return next((c for c in self.classes if num_bytes <= c.max_bytes), self.classes[-1])
