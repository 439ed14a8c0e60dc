"""What flows between two machines draw on, and share with others, apart from uplinks.

Inside a region each machine pair has a link for itself. Between two regions all draw on the regions' link. A machine
pair with a link of its own is one flow's way there: only flows of the same pair, in the same direction, share its rate.
Where such a link is known to carry more than the regions' link is, the regions' link carries as much, and machine pairs
that inherit share the lesser rate that is theirs.

All that leaves a machine whose NIC has a limit draws on that, and all that enters it, inside its region too. A pair
with a wire of its own shares nothing but that wire.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from hulk_placement.topology import Pair, Topology


class Shared(NamedTuple):
    """Something that flows share: the link of a machine or region pair, the part of it that is inherited, a NIC.

    `ends` are machines of the first, regions of the next two, one machine, twice, of a NIC.
    """

    part: Literal["machines", "regions", "inherited", "NIC out of", "NIC into"]
    ends: Pair


def drawn_on(source: str, target: str, topology: Topology) -> tuple[tuple[Shared, float], ...]:
    """What a flow from one machine to another draws on, with the bytes/s of each; nothing inside one machine."""
    if source == target:
        return ()
    link = topology.link(source, target)
    wire = (Shared("machines", (source, target)), link.bandwidth_bytes_per_s)
    if link.own_wire:
        return (wire,)
    nics = _nics(source, target, topology)
    if link.shared is None:
        return wire, *nics
    capacity = topology.capacity(link.shared)
    common = (Shared("regions", link.shared), capacity)
    if topology.has_own_link(source, target):
        return wire, *nics, common
    inherited = topology.region_link(*link.shared).bandwidth_bytes_per_s
    if inherited < capacity:
        return (Shared("inherited", link.shared), inherited), *nics, common
    return *nics, common


def _nics(source: str, target: str, topology: Topology) -> tuple[tuple[Shared, float], ...]:
    """The limits of both machines' NICs, as far as they have any."""
    out_of, into = topology.machine(source).nic_bytes_per_s, topology.machine(target).nic_bytes_per_s
    return (
        *(((Shared("NIC out of", (source, source)), out_of),) if out_of else ()),
        *(((Shared("NIC into", (target, target)), into),) if into else ()),
    )
