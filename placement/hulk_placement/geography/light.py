"""Latencies that cannot be: round trips, and one-way ones, that light in a fibre between two places would not make."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from hulk_placement.topology import Link, Topology

Coordinates = tuple[float, float]
"""Degrees north and degrees east."""

EARTH_RADIUS_KM = 6371.0
"""Mean radius of the WGS 84 ellipsoid."""

FIBRE_KM_PER_S = 299_792.458 / 1.468
"""Light in standard single-mode fibre: the group index at 1550 nm is 1.468 (Corning SMF-28 data sheet)."""

_MOST_SHOWN = 10


def distance_km(a: Coordinates, b: Coordinates) -> float:
    """The great circle between two places, by the haversine formula on a sphere.

    >>> round(distance_km((0, 0), (0, 90)))
    10008
    """
    north, south = math.radians(a[0]), math.radians(b[0])
    apart = math.radians(b[1] - a[1])
    chord = math.sin((south - north) / 2) ** 2 + math.cos(north) * math.cos(south) * math.sin(apart / 2) ** 2
    return 2 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(chord)))


def least_rtt_s(a: Coordinates, b: Coordinates) -> float:
    """What light in a straight fibre takes from one place to the other and back."""
    return 2 * distance_km(a, b) / FIBRE_KM_PER_S


def below_light(topology: Topology, coordinates: Mapping[str, Coordinates]) -> list[str]:
    """A warning for every link with a latency below what light needs between its regions; many are counted."""
    region_of = {machine.name: machine.region for machine in topology.machines}
    found = [
        sentence
        for links, of_machines in ((topology.region_links, False), (topology.node_links, True))
        for (source, target), link in links.items()
        for ends in [(region_of[source], region_of[target]) if of_machines else (source, target)]
        if coordinates.keys() >= set(ends)
        for sentence in _too_quick(f"{source} -> {target}", link, coordinates[ends[0]], coordinates[ends[1]])
    ]
    more = len(found) - _MOST_SHOWN
    return found[:_MOST_SHOWN] + ([f"{more} more links are below what light needs"] if more > 0 else [])


def _too_quick(name: str, link: Link, source: Coordinates, target: Coordinates) -> Iterator[str]:
    """The round trip is said of a link that has no other one-way latency than half of it."""
    least_s, km = least_rtt_s(source, target), f"{distance_km(source, target):.0f} km"
    if link.one_way_s is None and link.rtt_s < least_s:
        yield (
            f"{name}: a round trip of {link.rtt_s * 1e3:.3g} ms is below the {least_s * 1e3:.3g} ms that light in "
            f"fibre needs for {km} and back"
        )
    if link.one_way_s is not None and link.one_way_s < least_s / 2:
        yield (
            f"{name}: a one-way latency of {link.one_way_s * 1e3:.3g} ms is below the {least_s / 2 * 1e3:.3g} ms that "
            f"light in fibre needs for {km}"
        )
