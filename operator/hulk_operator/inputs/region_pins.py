"""Region labels of nodes and the administrator's list of pinned ones -> the nodes that no region rule may rely on.

Who has a node's credentials can change its labels, the region among them. A region that the list names is closed: its
nodes are those of the list, as long as their labels agree. Regions that it does not name go by labels alone.

| node's label | pinned to | other pins of the label's region | for jobs that are bound to regions |
|--------------|-----------|----------------------------------|------------------------------------|
| eu           | eu        |                                  | in eu                              |
| eu           | us        |                                  | not used                           |
| eu           | nothing   | some                             | not used                           |
| eu           | nothing   | none                             | in eu                              |
"""

from collections.abc import Mapping

from hulk_operator.api import HulkJobSpec, HulkTopologySpec

CONTRADICTED = "RegionContradicted"
NOT_PINNED = "RegionNotPinned"


def untrusted(regions: Mapping[str, str], declared: HulkTopologySpec) -> dict[str, tuple[str, str]]:
    """Of the nodes whose region by label is given, those not to rely on: a reason and a sentence.

    >>> from hulk_operator.api import PinnedRegion
    >>> pins = tuple(PinnedRegion(node=node, region=region) for node, region in (("a", "eu"), ("b", "us")))
    >>> sorted(untrusted({"a": "us", "b": "us", "c": "eu", "d": "ap"}, HulkTopologySpec(pinned_regions=pins)))
    ['a', 'c']
    """
    pinned = {pin.node: pin.region for pin in declared.pinned_regions}
    closed = frozenset(pinned.values())
    found = {}
    for node, region in regions.items():
        if node in pinned and pinned[node] != region:
            found[node] = CONTRADICTED, f"its label says region {region}, the HulkTopology pins it to {pinned[node]}"
        elif node not in pinned and region in closed:
            found[node] = NOT_PINNED, f"its label says region {region}, whose nodes the HulkTopology pins without it"
    return found


def is_bound(spec: HulkJobSpec, residency: tuple[str, ...] | None) -> bool:
    """Whether regions decide where the job may run."""
    asked = spec.placement
    return residency is not None or bool(
        asked.regions or asked.denied_regions or any(pin.regions for pin in asked.pins)
    )
