"""Hulk's own all-reduce as a compared method: its plan, its bound and its prediction come from the planner."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from hulk_placement.collective.classes import plan_collective
from hulk_placement.collective.document import as_document
from hulk_placement.collective.network import Network
from hulk_placement.collective.plan import CollectivePlan

from bench.allreduce.gloo_orders import INSIDE_BYTES_PER_S, INSIDE_RTT_S, LinkOf, Pair

_PORTS = itertools.count(29600)
"""Each plan connects anew."""

Regions = Sequence[Sequence[int]]


def network(regions: Regions, links: LinkOf) -> Network:
    """What the planner is told: the truth of the lab's file, unless the links are made up."""
    numbers = range(len(regions))
    no_cap = (math.inf,) * len(regions)
    return Network(
        regions=tuple(f"region-{number}" for number in numbers),
        ranks=tuple(map(tuple, regions)),
        rate=tuple(tuple(links[a, b][0] if a != b else 0.0 for b in numbers) for a in numbers),
        latency_s=tuple(tuple(links[a, b][1] if a != b else 0.0 for b in numbers) for a in numbers),
        egress=no_cap,
        ingress=no_cap,
        inside_rate=(INSIDE_BYTES_PER_S,) * len(regions),
        inside_latency_s=(INSIDE_RTT_S / 2,) * len(regions),
    )


def method(
    regions: Regions, links: LinkOf, sizes: Sequence[int], *, inside: bool = False, **settings: Any
) -> Mapping[str, Any]:
    """The method with a plan for these sizes; `settings` are the runtime's. With `inside` gloo sums inside regions."""
    return as_method(plan_collective(network(regions, links), sizes), inside=inside, **settings)


def as_method(plan: CollectivePlan, *, inside: bool = False, **settings: Any) -> Mapping[str, Any]:
    """The method that a plan is, whoever made it; ranks are numbered region after region."""
    return {
        "port": next(_PORTS),
        "kind": "wan",
        "plan": as_document(plan),
        "region_of_rank": [
            name for name, ranks in zip(plan.network.regions, plan.network.ranks, strict=True) for _ in ranks
        ],
        "settings": settings,
        "inside": inside,
    }


def planned(method: Mapping[str, Any], num_bytes: int) -> Mapping[str, Any]:
    """The class that the ranks' own plan has for vectors of exactly this size: what is printed is what it says.

    Another planner may find other flows: what it has planned before is where its search begins.
    """
    return next(found for found in method["plan"]["classes"] if found["maxBytes"] == num_bytes)


def loads(flows: Sequence[Mapping[str, Any]]) -> dict[Pair, float]:
    """Share of the vector that crosses each directed region pair.

    >>> loads([{"share": 0.5, "exchange": [0, 1], "reduce": [[2, 0]], "broadcast": [[2, 1]]}])
    {(0, 1): 0.5, (1, 0): 0.5, (2, 0): 0.5, (1, 2): 0.5}
    """
    found: dict[Pair, float] = {}
    for flow in flows:
        uses = [
            *itertools.permutations(flow["exchange"], 2),
            *((child, parent) for child, parent in flow["reduce"]),
            *((parent, child) for child, parent in flow["broadcast"]),
        ]
        for pair in uses:
            found[pair] = found.get(pair, 0.0) + flow["share"]
    return found


def ring_flows(order: Sequence[int]) -> list[dict[str, Any]]:
    """The pipelined ring as flows: an equal share ends its sum in every region and goes once more round.

    >>> ring_flows((0, 1, 2))[0]
    {'share': 0.3333333333333333, 'exchange': [0], 'reduce': [[1, 2], [2, 0]], 'broadcast': [[1, 0], [2, 1]]}
    """
    count = len(order)
    flows = []
    for start in range(count):
        root, *rest = [order[(start + step) % count] for step in range(count)]
        chain = [[a, b] for a, b in itertools.pairwise([*rest, root])]
        back = [[b, a] for a, b in itertools.pairwise([root, *rest])]
        flows.append({"share": 1 / count, "exchange": [root], "reduce": chain, "broadcast": back})
    return flows


def unencrypted(method: Mapping[str, Any]) -> Mapping[str, Any]:
    """The method, whose ranks send each other bytes as they are."""
    return {**method, "port": next(_PORTS), "plan": {**method["plan"], "encryption": "none"}}


def with_flows(method: Mapping[str, Any], flows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The method with these flows for every size."""
    plan = method["plan"]
    classes = [{**found, "flows": flows, "alternatives": []} for found in plan["classes"]]
    return {**method, "plan": {**plan, "classes": classes}}
