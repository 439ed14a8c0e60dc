"""The plan's key `collective`: flows of Hulk's own all-reduce over regions, as the operator writes them.

Regions are numbers into `regions`. What a pod cannot use is refused when the plan is read, before anything is started.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from hulk_runtime.collective import CollectivePlan
    from hulk_runtime.collective.plan import SizeClass as RuntimeClass

Number = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]
Edge = tuple[Number, Number]
LinkRow = tuple[Number, Number, Annotated[float, Field(gt=0)], Annotated[float, Field(ge=0)]]


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class Flow(_Wire):
    """A share of the vector; `reduce` and `broadcast` are (region, parent) of every region outside `exchange`."""

    share: float = Field(gt=0, le=1)
    exchange: tuple[Number, ...] = Field(min_length=1)
    reduce: tuple[Edge, ...]
    broadcast: tuple[Edge, ...]

    @property
    def regions(self) -> list[int]:
        """Every region that takes part, sorted."""
        return sorted([*self.exchange, *(region for region, _ in self.reduce)])


class Alternative(_Wire):
    """Better flows for the case that link `slow` (source, target) has half its rate."""

    slow: Edge
    flows: tuple[Flow, ...] = Field(min_length=1)


class SizeClass(_Wire):
    """The flows of vectors up to `max_bytes`, with the seconds that one of `max_bytes` should take, and the bound."""

    max_bytes: Positive
    chunk_bytes: Positive
    predicted_seconds: float
    bound_seconds: float
    flows: tuple[Flow, ...] = Field(min_length=1)
    alternatives: tuple[Alternative, ...] = ()


class Without(_Wire):
    """The classes of the other regions when one is cut off."""

    region: Number
    classes: tuple[SizeClass, ...] = Field(min_length=1)


class Collective(_Wire):
    """Regions, links `[source, target, bytesPerSecond, oneWaySeconds]`, and the size classes in ascending order."""

    regions: tuple[str, ...] = Field(min_length=1)
    links: tuple[LinkRow, ...]
    classes: tuple[SizeClass, ...] = Field(min_length=1)
    without: tuple[Without, ...] = ()
    compression: Literal["none", "bf16", "int8"]
    on_region_loss: Literal["restart", "continue"]

    @model_validator(mode="after")
    def _consistent(self) -> "Collective":
        everywhere = range(len(self.regions))
        for source, target, *_ in self.links:
            if source == target or max(source, target) >= len(self.regions):
                raise ValueError(f"link {source} to {target} among {len(self.regions)} regions")
        _require_classes(self.classes, everywhere)
        for cut in self.without:
            _require_classes(cut.classes, [region for region in everywhere if region != cut.region])
        return self

    def for_ranks(self, region_by_rank: Sequence[str]) -> "CollectivePlan":
        """What `hulk_runtime.collective` runs; ValueError where a flow's trees do not end in its exchange."""
        from hulk_runtime.collective import CollectivePlan, LinkFigures

        return CollectivePlan(
            regions=tuple(
                tuple(rank for rank, region in enumerate(region_by_rank) if region == name) for name in self.regions
            ),
            links={(source, target): LinkFigures(rate, one_way_s) for source, target, rate, one_way_s in self.links},
            classes=_for_runtime(self.classes),
            without={cut.region: _for_runtime(cut.classes) for cut in self.without},
            compression=self.compression,
        )


def _require_classes(classes: Sequence[SizeClass], regions: Iterable[int]) -> None:
    sizes = [found.max_bytes for found in classes]
    if sizes != sorted(set(sizes)):
        raise ValueError(f"size classes {sizes} are not ascending")
    expected = sorted(regions)
    for found in classes:
        for flows in (found.flows, *(other.flows for other in found.alternatives)):
            total = math.fsum(flow.share for flow in flows)
            if abs(total - 1) > 1e-6:
                raise ValueError(f"shares of the class up to {found.max_bytes} bytes sum to {total}, not 1")
            for flow in flows:
                _require_flow(flow, expected)


def _require_flow(flow: Flow, regions: list[int]) -> None:
    outside = sorted(region for region, _ in flow.broadcast)
    if flow.regions != regions or sorted([*flow.exchange, *outside]) != regions:
        raise ValueError(f"a flow over regions {flow.regions} in and {outside} out, not {regions}")
    for tree in (flow.reduce, flow.broadcast):
        parents = dict(tree)
        for region in parents:
            at, steps = region, 0
            while at in parents and steps <= len(parents):
                at, steps = parents[at], steps + 1
            if at not in flow.exchange:
                raise ValueError(f"region {region} does not reach the exchange {flow.exchange} by {tree}")


def _for_runtime(classes: Sequence[SizeClass]) -> "tuple[RuntimeClass, ...]":
    from hulk_runtime import collective

    return tuple(
        collective.SizeClass(
            found.max_bytes,
            found.chunk_bytes,
            tuple(collective.Flow(flow.share, flow.exchange, flow.reduce, flow.broadcast) for flow in found.flows),
        )
        for found in classes
    )
