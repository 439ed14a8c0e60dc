"""Links and prices of a topology document -> the planner's, by pair of machines and by pair of regions.

What a matrix says is there first; a link of the list stands in its place. Whatever cannot be is a mistake, told with
its place in the document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from hulk_placement.files.matrices import matrix_links
from hulk_placement.files.places import Key, Places
from hulk_placement.files.topology import Link as DeclaredLink
from hulk_placement.files.topology import TopologyFile
from hulk_placement.files.units import BANDWIDTH, FLOW, LATENCY, ONE_WAY
from hulk_placement.topology import UNKNOWN_BANDWIDTH_BYTES_PER_S, UNKNOWN_RTT_S, Link, LinkKind, Pair

UNKNOWN = Link(UNKNOWN_RTT_S, UNKNOWN_BANDWIDTH_BYTES_PER_S, kind=LinkKind.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Links:
    """Links by pair, with whether their rate is known; prices by pair of regions; the mistakes found on the way."""

    by_key: dict[Key, tuple[Link, bool]] = field(default_factory=dict)
    prices: dict[Pair, float] = field(default_factory=dict)
    mistakes: list[str] = field(default_factory=list)

    def of(self, are_regions: bool) -> dict[Pair, Link]:
        """The links between regions, or between machines."""
        return {pair: link for (regions, pair), (link, _) in self.by_key.items() if regions == are_regions}

    @property
    def num_without_rate(self) -> int:
        """Directed links of which only the latency is known."""
        return sum(not has_rate for _, has_rate in self.by_key.values())


def links_of(document: TopologyFile, places: Places) -> Links:
    """All links and prices of a document, and its mistakes."""
    found = Links()
    found.by_key.update(matrix_links(document, places, found.mistakes))
    put_all(found, document.links, places)
    _add_region_prices(document, found)
    join_ways(found)
    return found


def put_all(found: Links, entries: Iterable[DeclaredLink], places: Places) -> None:
    """Add the links of a list, and what is wrong with them."""
    seen: dict[Key, str] = {}
    for number, entry in enumerate(entries):
        where = f"links[{number}]"
        try:
            _put(found, places.are_regions((entry.source, entry.target), entry.between), entry, where, seen)
        except ValueError as error:
            found.mistakes.append(f"{where}: {error}")


def join_ways(found: Links) -> None:
    """Give one-way latencies the round trips that they make together."""
    found.by_key.update(dict(_round_trips(found)))


def _round_trips(found: Links) -> Iterator[tuple[Key, tuple[Link, bool]]]:
    """The links of one-way latencies: a round trip is there and back where the way back is said alike, else twice."""
    for key, (link, has_rate) in found.by_key.items():
        if link.one_way_s is None:
            continue
        are_regions, (source, target) = key
        back = found.by_key.get((are_regions, (target, source)))
        back_s = None if back is None else back[0].one_way_s
        if back_s is None or back_s == link.one_way_s:
            yield key, (replace(link, one_way_s=None), has_rate)
        else:
            yield key, (replace(link, rtt_s=link.one_way_s + back_s), has_rate)


def _put(found: Links, are_regions: bool, entry: DeclaredLink, where: str, seen: dict[Key, str]) -> None:
    source, target, price = entry.source, entry.target, entry.egress_price_per_gigabyte
    if not are_regions and source == target:
        raise ValueError(f"{source} -> {target} is one machine; the link in it is its `inside`")
    if not are_regions and price is not None:
        raise ValueError(f"{source} -> {target} are machines; prices are of regions")
    if are_regions and entry.own_wire:
        raise ValueError(f"{source} -> {target} are regions; a wire of their own have machines (between: machines)")
    link = UNKNOWN if entry.unknown else _link(entry)
    for pair in _pairs(source, target, entry.symmetric):
        key = are_regions, pair
        if key in seen:
            raise ValueError(f"{pair[0]} -> {pair[1]} is in {seen[key]} already")
        seen[key] = where
        if link is not None:
            found.by_key[key] = link, entry.bandwidth is None
        if price is not None:
            found.prices[pair] = price


def _link(entry: DeclaredLink) -> Link | None:
    """The link; None where the entry tells only a price."""
    rtt_s, by_size = entry.figure(LATENCY), _by_size(entry)
    rate = entry.figure(BANDWIDTH) or max((rate for _, rate in by_size), default=None)
    if rtt_s is None:
        return None
    return Link(
        rtt_s=rtt_s,
        one_way_s=entry.figure(ONE_WAY),
        bandwidth_bytes_per_s=UNKNOWN_BANDWIDTH_BYTES_PER_S if rate is None else rate,
        num_streams=entry.streams,
        age_s=entry.age_seconds,
        kind=LinkKind(entry.known),
        flow_bytes_per_s=entry.figure(FLOW),
        own_wire=entry.own_wire,
        by_size=by_size,
    )


def _by_size(entry: DeclaredLink) -> tuple[tuple[float, float], ...]:
    """Bytes of a message and the bytes/s that it gets."""
    points = [(point.message_bytes, point.figure(BANDWIDTH)) for point in entry.bandwidth_by_size or ()]
    return tuple((num_bytes, rate) for num_bytes, rate in points if rate is not None)


def _pairs(source: str, target: str, symmetric: bool) -> Iterable[Pair]:
    return dict.fromkeys([(source, target), (target, source)] if symmetric else [(source, target)])


def _add_region_prices(document: TopologyFile, found: Links) -> None:
    """Prices that a region states for all its traffic, where the pair has none of its own."""
    names = dict.fromkeys(machine.region for machine in document.machines)
    for region in document.regions:
        price = region.egress_price_per_gigabyte
        for other in names if price is not None else ():
            if other != region.name:
                found.prices.setdefault((region.name, other), price or 0.0)
