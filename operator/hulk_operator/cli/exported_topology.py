"""Nodes and measured round trips -> the levels region, zone and node as Kueue and Volcano write them.

Both go by labels of nodes, or by names. A node that lacks a label is in no domain: what to label it with follows from
whom it is near to, as far as that was measured.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hulk_operator import names
from hulk_operator.cluster import Object
from hulk_operator.inputs.node import labels
from hulk_operator.inputs.quantity import amounts

LEVELS: Final = (names.NODE_REGION, names.NODE_ZONE, names.NODE_HOST_NAME)
NEAR_S: Final = {names.NODE_REGION: 5e-3, names.NODE_ZONE: 1e-3}
"""Round trips up to which two nodes are taken to be in one region, or in one zone of it: those between zones of public
clouds take 1 to 2 ms, those between their regions more than 5."""
KUEUE: Final = f"{names.KUEUE_GROUP}/{names.KUEUE_VERSION}"
VOLCANO: Final = "topology.volcano.sh/v1alpha1"
TOPOLOGY: Final = "hulk"
YOURS: Final = "NAME"

RoundTrips = Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class Place:
    """A node with accelerators, and its labels of the levels; empty: it lacks that one."""

    name: str
    levels: Mapping[str, str]
    num_accelerators: int

    @property
    def region(self) -> str:
        """Its region's name."""
        return self.levels[names.NODE_REGION]

    @property
    def zone(self) -> str:
        """Its zone's name."""
        return self.levels[names.NODE_ZONE]


def places(nodes: Mapping[str, Object], resource: str) -> tuple[Place, ...]:
    """The nodes that offer a resource, by name."""
    found = []
    for name, node in sorted(nodes.items()):
        num = amounts((node.get("status") or {}).get("allocatable") or {}).get(resource, 0)
        if num:
            found.append(Place(name, {level: str(labels(node).get(level, "")) for level in LEVELS}, num))
    return tuple(found)


def kueue_objects(found: Sequence[Place]) -> list[Object]:
    """A Topology of the three levels, and a ResourceFlavor for each region."""
    levels = [{"nodeLabel": level} for level in LEVELS]
    return [
        _object(KUEUE, "Topology", TOPOLOGY, {"levels": levels}),
        *(
            _object(
                KUEUE,
                "ResourceFlavor",
                _name("region", region),
                {"nodeLabels": {names.NODE_REGION: region}, "topologyName": TOPOLOGY},
            )
            for region in _regions(found)
        ),
    ]


def volcano_objects(found: Sequence[Place]) -> list[Object]:
    """A HyperNode for each zone (tier 1), each region of zones (tier 2), and all regions (tier 3)."""
    made, regions = [], []
    for region, inside in _regions(found).items():
        zones: dict[str, list[Place]] = defaultdict(list)
        for place in inside:
            zones[place.zone].append(place)
        for zone, nodes in sorted(zones.items()):
            made.append(
                _hyper_node(_name("zone", region, zone or "none"), 1, "zone", "Node", [one.name for one in nodes])
            )
        members = [_name("zone", region, zone or "none") for zone in sorted(zones)]
        regions.append(_name("region", region))
        made.append(_hyper_node(regions[-1], 2, "region", "HyperNode", members))
    return [*made, _hyper_node("all-regions", 3, "cluster", "HyperNode", regions)] if regions else []


def summary(found: Sequence[Place], resource: str) -> Iterator[str]:
    """What each region has: what quotas are made of."""
    for region, inside in _regions(found).items():
        num = sum(place.num_accelerators for place in inside)
        yield f"{region}: {num} {resource} on {len(inside)} node{'' if len(inside) == 1 else 's'}"


def lacking(found: Sequence[Place], round_trips: RoundTrips) -> Iterator[str]:
    """The commands that give nodes the labels that they lack, and why.

    >>> far = Place("a", {names.NODE_REGION: "", names.NODE_ZONE: "z", names.NODE_HOST_NAME: "a"}, 1)
    >>> near = Place("b", {names.NODE_REGION: "eu", names.NODE_ZONE: "z", names.NODE_HOST_NAME: "b"}, 1)
    >>> list(lacking([far, near], {("a", "b"): 0.0004}))
    ['kubectl label nodes a topology.kubernetes.io/region=eu  # 0.4 ms from b']
    """
    for level in LEVELS[:2]:
        yield from _lacking(level, found, round_trips)
    for place in found:
        if not place.levels[names.NODE_HOST_NAME]:
            yield _command([place.name], names.NODE_HOST_NAME, place.name, "its own name")


def _lacking(level: str, found: Sequence[Place], round_trips: RoundTrips) -> Iterator[str]:
    """Of one level: nodes near to one that has the label get its value; of others somebody has to choose the name."""
    near = _near(level, found, round_trips)
    values = {place.name: place.levels[level] for place in found if place.levels[level]}
    left = [place for place in found if not place.levels[level]]
    limit = f"{NEAR_S[level] * 1e3:g} ms"
    alone: dict[str, list[str]] = defaultdict(list)  # by region
    while left:
        group = _joined(left[0].name, {place.name for place in left}, near)
        neighbours = sorted((rtt_s, other) for name in group for other, rtt_s in near[name].items() if other in values)
        if neighbours:
            rtt_s, other = neighbours[0]
            yield _command(group, level, values[other], f"{rtt_s * 1e3:.1f} ms from {other}")
        elif len(group) > 1:
            yield _command(group, level, YOURS, f"within {limit} of each other: choose a name")
        else:
            alone[left[0].region].append(left[0].name)
        left = [place for place in left if place.name not in group]
    for names_ in alone.values():
        yield _command(names_, level, YOURS, f"none is known to be within {limit} of another: choose names")


def _near(level: str, found: Sequence[Place], round_trips: RoundTrips) -> dict[str, dict[str, float]]:
    """For each node, those near enough to be of one domain with it; zones are parts of one region."""
    regions = {place.name: place.region for place in found}
    near: dict[str, dict[str, float]] = {place.name: {} for place in found}
    for (source, target), rtt_s in round_trips.items():
        if source in near and target in near and rtt_s <= NEAR_S[level]:
            if level == names.NODE_ZONE and regions[source] != regions[target]:
                continue
            near[source][target] = near[target][source] = min(rtt_s, near[source].get(target, rtt_s))
    return near


def _joined(first: str, bare: set[str], near: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Those without a label that are near to one another, one by one."""
    group, left = {first}, [first]
    while left:
        new = (near[left.pop()].keys() & bare) - group
        group |= new
        left += new
    return sorted(group)


def _command(nodes: Iterable[str], level: str, value: str, why: str) -> str:
    return f"kubectl label nodes {' '.join(nodes)} {level}={value}  # {why}"


def _regions(found: Sequence[Place]) -> dict[str, list[Place]]:
    """The nodes of each region that has a name."""
    regions: dict[str, list[Place]] = defaultdict(list)
    for place in found:
        if place.region:
            regions[place.region].append(place)
    return dict(sorted(regions.items()))


def _hyper_node(name: str, tier: int, of: str, kind: str, members: Iterable[str]) -> Object:
    chosen = [{"type": kind, "selector": {"exactMatch": {"name": member}}} for member in members]
    return _object(VOLCANO, "HyperNode", name, {"tier": tier, "tierName": of, "members": chosen})


def _object(version: str, kind: str, name: str, spec: Mapping[str, Any]) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}


def _name(*parts: str) -> str:
    """An object's name of label values.

    >>> _name("region", "EU_West.1")
    'region-eu-west.1'
    """
    return re.sub(r"[^a-z0-9.-]+", "-", "-".join(parts).lower()).strip("-.")
