"""What flows between two machines draw on, and share with others, apart from uplinks.

Inside a region each machine pair has a link for itself. Between two regions all draw on the regions' link. A machine
pair with a link of its own is one flow's way there: only flows of the same pair, in the same direction, share its rate.
Where such a link is known to carry more than the regions' link is, the regions' link carries as much, and machine pairs
that inherit share the lesser rate that is theirs.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from hulk_placement.topology import Pair, Topology


class Shared(NamedTuple):
    """Something that flows share: the link of a machine pair, of a region pair, or the part of it that is inherited.

    `ends` are machines of the first, regions of the others.
    """

    part: Literal["machines", "regions", "inherited"]
    ends: Pair


def drawn_on(source: str, target: str, topology: Topology) -> tuple[tuple[Shared, float], ...]:
    """What a flow from one machine to another draws on, with the bytes/s of each; nothing inside one machine."""
    if source == target:
        return ()
    link = topology.link(source, target)
    if link.shared is None:
        return ((Shared("machines", (source, target)), link.bandwidth_bytes_per_s),)
    capacity = topology.capacity(link.shared)
    common = (Shared("regions", link.shared), capacity)
    if topology.has_own_link(source, target):
        return (Shared("machines", (source, target)), link.bandwidth_bytes_per_s), common
    if link.bandwidth_bytes_per_s < capacity:
        return (Shared("inherited", link.shared), link.bandwidth_bytes_per_s), common
    return (common,)
