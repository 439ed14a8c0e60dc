"""A collective plan as JSON values, and back: `collective` in the plan's wire form (docs/reference/plan-wire.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hulk_placement.collective.network import Network
from hulk_placement.collective.patterns import Flow, Pattern
from hulk_placement.collective.plan import Alternative, CollectivePlan, SizeClass, Without

SHARE_DIGITS = 6

Numbers = Sequence[int]
"""Of the regions that a flow goes over: their numbers in the plan."""


def as_document(plan: CollectivePlan) -> dict[str, Any]:
    """The plan's JSON values. Regions are numbers into `regions`, in the order in which workers first name them."""
    network = plan.network
    everyone = range(len(network.regions))
    return {
        "regions": list(network.regions),
        "links": [
            [a, b, round(network.rate[a][b]), round(network.latency_s[a][b], 6)]
            for a in everyone
            for b in everyone
            if network.rate[a][b] > 0
        ],
        "uplinks": [
            [region, _cap(network.egress[region]), _cap(network.ingress[region])]
            for region in everyone
            if min(network.egress[region], network.ingress[region]) < math.inf
        ],
        "classes": [_class(found, everyone) for found in plan.classes],
        "without": [
            {"region": cut.region, "classes": [_class(found, _others(everyone, cut.region)) for found in cut.classes]}
            for cut in plan.without
        ],
        "compression": plan.compression,
        "onRegionLoss": plan.on_region_loss,
        "fixedShares": plan.fixed_shares,
        "encryption": plan.encryption,
    }


def from_document(document: Mapping[str, Any], region_of_rank: Sequence[str]) -> CollectivePlan:
    """The plan in `as_document`'s values, of ranks in these regions; ValueError or KeyError for anything else.

    The insides of regions are not in it: they count as unlimited.
    """
    network = _network(document, region_of_rank)
    everyone = range(len(network.regions))
    return CollectivePlan(
        network=network,
        classes=tuple(_class_of(found, everyone) for found in document["classes"]),
        without=tuple(
            Without(
                cut["region"], tuple(_class_of(found, _others(everyone, cut["region"])) for found in cut["classes"])
            )
            for cut in document["without"]
        ),
        compression=document["compression"],
        on_region_loss=document["onRegionLoss"],
        fixed_shares=document.get("fixedShares", False),
        encryption=document.get("encryption", "wan"),
    )


def _cap(bytes_per_s: float) -> int | None:
    """Of an uplink; None without one."""
    return None if math.isinf(bytes_per_s) else max(1, round(bytes_per_s))


def _others(everyone: Numbers, region: int) -> Numbers:
    return [number for number in everyone if number != region]


def _class(found: SizeClass, numbers: Numbers) -> dict[str, Any]:
    return {
        "maxBytes": found.max_bytes,
        "chunkBytes": found.chunk_bytes,
        "advanceSeconds": found.advance_s,
        "predictedSeconds": round(found.predicted_s, 6),
        "boundSeconds": round(found.bound_s, 6),
        "flows": _flows(found.flows, numbers),
        "alternatives": [
            {"slow": [numbers[end] for end in other.slow], "flows": _flows(other.flows, numbers)}
            for other in found.alternatives
        ],
    }


def _flows(flows: Sequence[Flow], numbers: Numbers) -> list[dict[str, Any]]:
    """Flows with rounded shares that sum to 1, the largest first: it takes what rounding leaves."""
    largest, *others = sorted(flows, key=lambda flow: -flow.share)
    rounded = [(round(flow.share, SHARE_DIGITS), flow) for flow in others]
    left = round(1 - math.fsum(share for share, _ in rounded), SHARE_DIGITS)
    return [
        {
            "share": share,
            "exchange": [numbers[r] for r in flow.pattern.exchange],
            "reduce": [[numbers[r], numbers[parent]] for r, parent in flow.pattern.reduce],
            "broadcast": [[numbers[r], numbers[parent]] for r, parent in flow.pattern.broadcast],
        }
        for share, flow in sorted([(left, largest), *rounded], key=lambda item: -item[0])
    ]


def _class_of(found: Mapping[str, Any], numbers: Numbers) -> SizeClass:
    place = {number: index for index, number in enumerate(numbers)}
    return SizeClass(
        max_bytes=found["maxBytes"],
        chunk_bytes=found["chunkBytes"],
        advance_s=found.get("advanceSeconds", 0.0),
        predicted_s=found["predictedSeconds"],
        bound_s=found["boundSeconds"],
        flows=_flows_of(found["flows"], place),
        alternatives=tuple(
            Alternative((place[other["slow"][0]], place[other["slow"][1]]), _flows_of(other["flows"], place))
            for other in found.get("alternatives", [])
        ),
    )


def _flows_of(flows: Sequence[Mapping[str, Any]], place: Mapping[int, int]) -> tuple[Flow, ...]:
    def parents(edges: Sequence[Sequence[int]]) -> tuple[int, ...]:
        above = list(range(len(place)))
        for region, parent in edges:
            above[place[region]] = place[parent]
        return tuple(above)

    found = tuple(Flow(flow["share"], Pattern(parents(flow["reduce"]), parents(flow["broadcast"]))) for flow in flows)
    for flow, read in zip(flows, found, strict=True):
        if sorted(place[r] for r in flow["exchange"]) != list(read.pattern.exchange):
            raise ValueError(f"flow exchanges between {flow['exchange']}, but its trees end in {read.pattern.exchange}")
    return found


def _network(document: Mapping[str, Any], region_of_rank: Sequence[str]) -> Network:
    names = tuple(document["regions"])
    num = len(names)
    rate = [[0.0] * num for _ in names]
    latency_s = [[0.0 if a == b else math.inf for b in range(num)] for a in range(num)]
    for a, b, bytes_per_s, one_way_s in document["links"]:
        rate[a][b], latency_s[a][b] = float(bytes_per_s), float(one_way_s)
    egress, ingress = [math.inf] * num, [math.inf] * num
    for region, leaving, entering in document.get("uplinks", []):
        egress[region] = math.inf if leaving is None else float(leaving)
        ingress[region] = math.inf if entering is None else float(entering)
    return Network(
        regions=names,
        ranks=tuple(tuple(rank for rank, region in enumerate(region_of_rank) if region == name) for name in names),
        rate=tuple(map(tuple, rate)),
        latency_s=tuple(map(tuple, latency_s)),
        egress=tuple(egress),
        ingress=tuple(ingress),
        inside_rate=(math.inf,) * num,
        inside_latency_s=(0.0,) * num,
    )
