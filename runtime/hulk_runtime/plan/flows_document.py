"""The key `collective` of the plan's wire form (docs/reference/plan-wire.md) -> CollectivePlan."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from hulk_runtime.plan.document import Must, Natural
from hulk_runtime.plan.flows import Alternative, CollectivePlan, Flow, LinkFigures, SizeClass, Uplink

Seconds = Annotated[float, Must("be >= 0", lambda value: value >= 0)]
Cap = Annotated[float, Must("be > 0", lambda value: value > 0)] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowDocument:
    """A share of the vector and its way over regions by number."""

    share: float
    exchange: tuple[Natural, ...]
    reduce: tuple[tuple[Natural, Natural], ...] = ()
    broadcast: tuple[tuple[Natural, Natural], ...] = ()

    def flow(self) -> Flow:
        """Raises ValueError."""
        return Flow(self.share, self.exchange, self.reduce, self.broadcast)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternativeDocument:
    """Flows for a class when a link turns out to be slow."""

    slow: tuple[Natural, Natural]
    flows: tuple[FlowDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassDocument:
    """The flows of vectors up to `max_bytes`; what they are predicted to take, and what nothing can be faster than."""

    max_bytes: int
    chunk_bytes: int
    predicted_seconds: Seconds
    bound_seconds: Seconds
    flows: tuple[FlowDocument, ...]
    alternatives: tuple[AlternativeDocument, ...] = ()
    advance_seconds: Seconds = 0.0

    def size_class(self) -> SizeClass:
        """Raises ValueError."""
        others = tuple(
            Alternative(other.slow, tuple(flow.flow() for flow in other.flows)) for other in self.alternatives
        )
        flows = tuple(flow.flow() for flow in self.flows)
        return SizeClass(
            self.max_bytes,
            self.chunk_bytes,
            flows,
            others,
            predicted_s=self.predicted_seconds,
            advance_s=self.advance_seconds,
            bound_s=self.bound_seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutDocument:
    """The classes to go on with when a region is cut off."""

    region: Natural
    classes: tuple[ClassDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveDocument:
    """All-reduces between regions. A link is [source, target, bytes per second, seconds one way].

    An uplink is [region, bytes per second out of it, bytes per second into it], None for no limit.
    """

    regions: tuple[str, ...]
    links: tuple[tuple[Natural, Natural, float, float], ...]
    classes: tuple[ClassDocument, ...]
    uplinks: tuple[tuple[Natural, Cap, Cap], ...] = ()
    without: tuple[WithoutDocument, ...] = ()
    compression: Literal["none", "bf16", "int8", "int4"] = "none"
    on_region_loss: Literal["restart", "continue"] = "restart"
    fixed_shares: bool = False
    encryption: Literal["wan", "none"] = "wan"

    def plan(self, region_of_rank: Sequence[str]) -> CollectivePlan:
        """The plan of ranks in these regions. Raises ValueError with what does not fit."""
        unknown = set(region_of_rank) - set(self.regions)
        if unknown:
            raise ValueError(f"collective: ranks in {', '.join(sorted(unknown))}, regions {', '.join(self.regions)}")
        for what, numbers in (
            ("links", [link[:2] for link in self.links]),
            ("uplinks", [region for region, *_ in self.uplinks]),
            ("without", [cut.region for cut in self.without]),
        ):
            if len(numbers) != len(set(numbers)):
                raise ValueError(f"collective: {what} of {numbers}: each only once")
        return CollectivePlan(
            regions=tuple(
                tuple(rank for rank, region in enumerate(region_of_rank) if region == name) for name in self.regions
            ),
            links={(a, b): LinkFigures(rate, one_way_s) for a, b, rate, one_way_s in self.links},
            classes=tuple(found.size_class() for found in self.classes),
            without={cut.region: tuple(found.size_class() for found in cut.classes) for cut in self.without},
            compression=self.compression,
            on_region_loss=self.on_region_loss,
            fixed_shares=self.fixed_shares,
            encryption=self.encryption,
            names=self.regions,
            uplinks={region: Uplink(out or math.inf, into or math.inf) for region, out, into in self.uplinks},
        )
