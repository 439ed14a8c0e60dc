"""Nodes, measured links and declarations -> `TopologyReport`: the matrix as measured, without planning anything."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from hulk_placement.topology import Machine

from hulk_operator.api import DeclaredLink
from hulk_operator.cli.cluster_reads import Target, cluster_of
from hulk_operator.cli.inventory import inventory
from hulk_operator.cli.reports import LinkRow, RefusedLink, RegionRow, TopologyReport
from hulk_operator.probing.link_validation import Accepted, LinkSample, by_region, current
from hulk_operator.probing.types import Pair


def topology_report(
    machines: Iterable[Machine], accepted: Accepted, declared: Iterable[DeclaredLink], now: datetime
) -> TopologyReport:
    """Regions, every directed region pair, and every measured node pair, idle figures only."""
    known = {machine.name: machine for machine in machines}
    region_of = {name: machine.region for name, machine in known.items()}
    regions: dict[str, list[Machine]] = {}
    for machine in known.values():
        regions.setdefault(machine.region, []).append(machine)
    measured = by_region(accepted.links, region_of)
    said = {(link.source, link.target): link for link in declared}
    pairs = [
        (source, target)
        for source in sorted(regions)
        for target in sorted(regions)
        if source != target or len(regions[source]) > 1
    ]
    return TopologyReport(
        regions=tuple(_region(name, regions[name]) for name in sorted(regions)),
        region_links=tuple(_region_link(pair, measured, said, now) for pair in pairs),
        node_links=tuple(
            _measured(link, now) for link in sorted(current(accepted.links, region_of), key=lambda link: link.pair)
        ),
        refused=tuple(
            RefusedLink(source=entry.source, target=entry.target, reason=entry.reason, message=entry.message)
            for entry in accepted.rejections
        ),
    )


def _region(name: str, machines: list[Machine]) -> RegionRow:
    nodes = tuple(sorted(machine.name for machine in machines))
    return RegionRow(name=name, nodes=nodes, free_accelerators=sum(machine.num_accelerators for machine in machines))


def _region_link(
    pair: Pair, measured: Mapping[Pair, LinkSample], said: Mapping[Pair, DeclaredLink], now: datetime
) -> LinkRow:
    if pair in measured:
        return _measured(measured[pair], now)
    if pair in said:
        link = said[pair]
        return LinkRow(
            source=link.source,
            target=link.target,
            kind="declared",
            rtt_microseconds=link.rtt_microseconds,
            bandwidth_bytes_per_second=link.bandwidth_bytes_per_second,
        )
    return LinkRow(source=pair[0], target=pair[1], kind="unknown")


def _measured(link: LinkSample, now: datetime) -> LinkRow:
    """A sample's figures and the age of the older one."""
    times = [
        time_s
        for figure, time_s in ((link.rtt_s, link.time_s), (link.bandwidth_bytes_per_s, link.bandwidth_time_s))
        if figure is not None
    ]
    return LinkRow(
        source=link.source,
        target=link.target,
        kind="measured",
        rtt_microseconds=None if link.rtt_s is None else round(link.rtt_s * 1e6),
        bandwidth_bytes_per_second=None if link.bandwidth_bytes_per_s is None else round(link.bandwidth_bytes_per_s),
        streams=None if link.bandwidth_bytes_per_s is None else link.num_streams,
        age_seconds=max(0, round(now.timestamp() - min(times))),
    )


async def measured_topology(resource: str, target: Target) -> TopologyReport:
    """The matrix as the cluster's agents measured it."""
    async with cluster_of(target) as cluster:
        seen = await inventory(cluster)
    return topology_report(seen.topology(resource).machines, seen.accepted, seen.declared.links, seen.now)
