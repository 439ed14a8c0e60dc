"""Region labels of nodes and the administrator's list of pinned ones -> the nodes whose labels are not to be believed.

Who has a node's credentials can change its labels, the region among them, but not its name. A region that the list
names is closed: its nodes are those of the list, as long as their labels agree. Regions that it does not name go by
labels alone.

| node's label | pinned to | the list names the label's region | new pods     |
|--------------|-----------|-----------------------------------|--------------|
| eu           | eu        | yes                               | in eu        |
| eu           | us        | yes or no                         | none         |
| eu           | nothing   | yes                               | none         |
| eu           | nothing   | no                                | in eu        |

A pin is a node's name, or the beginning of names and `*`. A name goes before a beginning, a longer one before a
shorter one.
"""

from collections.abc import Mapping
from typing import Final

from hulk_operator.api import HulkTopologySpec

CONTRADICTED: Final = "RegionContradicted"
NOT_PINNED: Final = "RegionNotPinned"
_ANY: Final = "*"


def untrusted(regions: Mapping[str, str], declared: HulkTopologySpec) -> dict[str, tuple[str, str]]:
    """Of the nodes whose region by label is given, those not to use: a reason and a sentence.

    >>> from hulk_operator.api import PinnedRegion
    >>> pins = tuple(PinnedRegion(node=node, region=region) for node, region in (("eu-*", "eu"), ("eu-9", "us")))
    >>> sorted(untrusted({"eu-1": "us", "eu-2": "eu", "eu-9": "us", "c": "eu"}, HulkTopologySpec(pinned_regions=pins)))
    ['c', 'eu-1']
    """
    pinned = {pin.node: pin.region for pin in declared.pinned_regions}
    closed = frozenset(pinned.values())
    lengths = sorted({len(pin) - 1 for pin in pinned if pin.endswith(_ANY)}, reverse=True)
    found = {}
    for node, region in regions.items():
        names = (node, *(node[:length] + _ANY for length in lengths if length <= len(node)))
        own = next((pinned[name] for name in names if name in pinned), None)
        if own is not None and own != region:
            found[node] = CONTRADICTED, f"its label says region {region}, the HulkTopology pins it to {own}"
        elif own is None and region in closed:
            found[node] = NOT_PINNED, f"its label says region {region}, whose nodes the HulkTopology pins without it"
    return found
