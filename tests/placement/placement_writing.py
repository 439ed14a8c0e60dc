"""`Placement`s and `DeviceLink`s -> the values of their documents, which read back to the very same ones."""

from __future__ import annotations

from typing import Any

from hulk_placement.files.part import API_VERSION
from hulk_placement.files.placement import BUSY, BUSY_S, LATENCY, LATENCY_S, MEMORY, SPAN, SPAN_S
from hulk_placement.files.placement_reading import GIB, Links, ReadPlacement
from hulk_placement.files.units import MEMORY as MEMORY_BYTES
from hulk_placement.schedule.links import DeviceLink
from hulk_placement.schedule.placement import Block, Kind


def placement_document(read: ReadPlacement) -> dict[str, Any]:
    """The document's values. Transfers are left out: they come of links."""
    names = read.placement.names
    span, memory = SPAN_S if read.in_seconds else SPAN, MEMORY_BYTES if read.in_gibibytes else MEMORY
    unit = GIB if read.in_gibibytes else 1

    def said(block: Block) -> dict[str, Any]:
        return {
            "name": block.name,
            **({} if block.kind is Kind.FORWARD else {"kind": str(block.kind)}),
            "devices": list(block.devices),
            **span.write(block.span),
            **(memory.write(block.memory * unit) if block.memory else {}),
            **({"after": [names[number] for number in block.after]} if block.after else {}),
            **({"stage": block.stage} if block.stage != block.name[1:] else {}),
        }

    blocks = [said(block) for block in read.placement.blocks]
    return {"apiVersion": API_VERSION, "kind": "Placement", "devices": read.placement.num_devices, "blocks": blocks}


def links_document(links: Links, in_seconds: bool) -> dict[str, Any]:
    """The document's values, an entry for each direction."""
    busy, latency = (BUSY_S, LATENCY_S) if in_seconds else (BUSY, LATENCY)

    def said(link: DeviceLink) -> dict[str, Any]:
        return {
            "source": link.source,
            "target": link.target,
            **(busy.write(link.busy) if link.busy else {}),
            **(latency.write(link.latency) if link.latency else {}),
            **({"uplinks": list(link.channels)} if link.channels else {}),
        }

    return {"apiVersion": API_VERSION, "kind": "Links", "links": [said(link) for link in links.values()]}
