"""Transfers of a placement over links between its devices: which outputs cross which link."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hulk_placement.schedule.placement import Placement, Transfer


@dataclass(frozen=True, slots=True)
class DeviceLink:
    """The directed link from one device to another, for what one block sends: `busy` time on it, then `latency`.

    `channels`: what else the same bytes keep busy, by name, such as the uplink out of a region.
    """

    source: int
    target: int
    busy: float = 0.0
    latency: float = 0.0
    channels: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As a channel."""
        return f"link {self.source} > {self.target}"


def with_links(placement: Placement, links: Mapping[tuple[int, int], DeviceLink]) -> Placement:
    """The placement with a transfer wherever a block needs what another computes elsewhere, over the links there are.

    A block on several devices needs it on each; of several that have it, the one whose link is quickest sends. Devices
    without a link between them exchange at once, as those of one machine.
    """
    return replace(placement, transfers=tuple(_transfers(placement, links)))


def _transfers(placement: Placement, links: Mapping[tuple[int, int], DeviceLink]) -> Iterator[Transfer]:
    for number, block in enumerate(placement.blocks):
        for needed in block.after:
            have = placement.blocks[needed].devices
            for device in block.devices:
                if device in have or any((source, device) not in links for source in have):
                    continue
                link = min(
                    (links[source, device] for source in have), key=lambda one: (one.busy + one.latency, one.source)
                )
                yield Transfer(needed, number, (link.name, *link.channels), link.busy, link.latency)
