"""NodeProfiles -> the links that can be believed, and for the others the reason why not.

Whoever controls a node controls what its agent says. Nothing it says can be proved, but what is impossible is refused
here, once, so that neither the planner nor the metrics ever see it. A stopped agent's links are kept: they are stale,
and their age is part of them. Agents keep what they measured towards nodes that are gone since; that is passed over.
"""

import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from hulk_placement.topology import Link, LinkKind

from hulk_operator.api import LinkStatus, NodeProfile
from hulk_operator.probing.types import Pair

MAX_BANDWIDTH_BYTES_PER_S: Final = 1_250_000_000_000  # 10 Tbit/s
MAX_RTT_S: Final = 60.0
MAX_CLOCK_SKEW_S: Final = 300.0
GONE_S: Final = 86_400.0  # a link to no node that is older than this is a former node's
LOAD_RETENTION_S: Final = 86_400.0  # of what a job saw, which nobody measures again when the job has ended
SAME_AGE_S: Final = 900.0  # samples of one region pair this close in time are equally good


@dataclass(frozen=True, slots=True)
class LinkSample:
    """What is known of the link source -> target (nodes). A figure that was not measured is None, its time 0."""

    source: str
    target: str
    under_load: bool
    rtt_s: float | None
    rtt_p95_s: float | None
    time_s: float
    bandwidth_bytes_per_s: float | None
    bandwidth_time_s: float
    num_streams: int
    num_samples: int

    @property
    def pair(self) -> Pair:
        """(source, target)."""
        return self.source, self.target

    @property
    def newest_s(self) -> float:
        """Unix time of its newest figure."""
        return max(self.time_s, self.bandwidth_time_s)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A link that was not believed."""

    source: str
    target: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The believable links, and what was refused."""

    links: tuple[LinkSample, ...]
    rejections: tuple[Rejection, ...] = ()

    def idle(self) -> dict[Pair, LinkSample]:
        """The links as measured without load, by (source, target)."""
        return {link.pair: link for link in self.links if not link.under_load}


def accept(profiles: Iterable[NodeProfile], nodes: Collection[str], now: datetime) -> Accepted:
    """Judge every link of every profile. `nodes` are the names of all nodes there are."""
    links: list[LinkSample] = []
    rejections: list[Rejection] = []
    for profile in profiles:
        source = profile.metadata.name
        for row in profile.status.links:
            if row.target not in nodes and (now - row.time).total_seconds() > GONE_S:
                continue
            why = _objection(source, row, nodes, now)
            if why:
                rejections.append(Rejection(source, row.target, *why))
            else:
                links.append(sample(source, row))
    return Accepted(tuple(links), tuple(rejections))


def sample(source: str, row: LinkStatus) -> LinkSample:
    """A row of a profile's status in the units of the inside."""
    measured_at = row.bandwidth_time or row.time
    return LinkSample(
        source=source,
        target=row.target,
        under_load=row.under_load,
        rtt_s=row.rtt_p50_microseconds / 1e6 if row.rtt_p50_microseconds is not None else None,
        rtt_p95_s=row.rtt_p95_microseconds / 1e6 if row.rtt_p95_microseconds is not None else None,
        time_s=row.time.timestamp() if row.rtt_p50_microseconds is not None else 0.0,
        bandwidth_bytes_per_s=float(row.bandwidth_bytes_per_second) if row.bandwidth_bytes_per_second else None,
        bandwidth_time_s=measured_at.timestamp() if row.bandwidth_bytes_per_second else 0.0,
        num_streams=row.streams or 1,
        num_samples=row.samples,
    )


def current(links: Iterable[LinkSample], region_of: Mapping[str, str]) -> tuple[LinkSample, ...]:
    """The idle links between known nodes, without bandwidths that a newer one of the same region pair has replaced.

    After a representative was replaced the old pair's figures stay in its profile; they must not be mixed with the
    new pair's. Inside a region every link stands for itself.
    """
    idle = [link for link in links if not link.under_load and {link.source, link.target} <= region_of.keys()]
    newest: dict[Pair, float] = {}
    for link in idle:
        pair = _regions(link, region_of)
        newest[pair] = max(newest.get(pair, 0.0), link.bandwidth_time_s)

    def stands(link: LinkSample) -> bool:
        pair = _regions(link, region_of)
        replaced = link.bandwidth_time_s < newest[pair] - SAME_AGE_S
        return pair[0] == pair[1] or not link.bandwidth_time_s or not replaced

    return tuple(link for link in idle if stands(link))


def measured(links: Iterable[LinkSample], region_of: Mapping[str, str], now: datetime) -> dict[Pair, Link]:
    """The planner's links: those of `current`, and for pairs without one what a job saw; both figures must be known.

    What a job saw is one user's word: it counts for LOAD_RETENTION_S.
    """
    found, oldest_s = tuple(links), now.timestamp() - LOAD_RETENTION_S
    loaded = (
        link
        for link in found
        if link.under_load and {link.source, link.target} <= region_of.keys() and link.newest_s > oldest_s
    )
    return {
        link.pair: Link(
            rtt_s=link.rtt_s,
            bandwidth_bytes_per_s=link.bandwidth_bytes_per_s,
            num_streams=link.num_streams,
            age_s=max(0.0, now.timestamp() - min(link.time_s, link.bandwidth_time_s)),
            kind=LinkKind.UNDER_LOAD if link.under_load else LinkKind.MEASURED,
        )
        for link in (*loaded, *current(found, region_of))
        if link.rtt_s is not None and link.bandwidth_bytes_per_s is not None
    }


def by_region(links: Iterable[LinkSample], region_of: Mapping[str, str]) -> dict[Pair, LinkSample]:
    """One sample per directed region pair, (a, a) the inside of a: medians of its newest idle figures.

    Its source and target are regions; its times are those of the newest figure.
    """
    groups: dict[Pair, list[LinkSample]] = {}
    for link in current(links, region_of):
        groups.setdefault(_regions(link, region_of), []).append(link)
    return {pair: _summary(pair, group) for pair, group in groups.items()}


def _regions(link: LinkSample, region_of: Mapping[str, str]) -> Pair:
    return region_of[link.source], region_of[link.target]


def _summary(pair: Pair, group: Iterable[LinkSample]) -> LinkSample:
    found = list(group)
    rtt_time_s = max(link.time_s for link in found)
    recent = [link for link in found if link.time_s >= rtt_time_s - SAME_AGE_S]
    rates = [link.bandwidth_bytes_per_s for link in found if link.bandwidth_bytes_per_s is not None]
    return LinkSample(
        source=pair[0],
        target=pair[1],
        under_load=False,
        rtt_s=_median(link.rtt_s for link in recent),
        rtt_p95_s=_median(link.rtt_p95_s for link in recent),
        time_s=rtt_time_s,
        bandwidth_bytes_per_s=_median(rates),
        bandwidth_time_s=max(link.bandwidth_time_s for link in found),
        num_streams=max(link.num_streams for link in found),
        num_samples=sum(link.num_samples for link in found),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _objection(source: str, row: LinkStatus, nodes: Collection[str], now: datetime) -> tuple[str, str] | None:
    """Reason and sentence against a row, None when there is nothing against it."""
    p50, p95, rate = row.rtt_p50_microseconds, row.rtt_p95_microseconds, row.bandwidth_bytes_per_second
    ahead_s = max((time - now).total_seconds() for time in (row.time, row.bandwidth_time or row.time))
    checks = (
        (source not in nodes, "UnknownSource", f"there is no node {source}"),
        (row.target not in nodes, "UnknownTarget", f"there is no node {row.target}"),
        (row.target == source, "LinkToItself", f"{source} measured itself"),
        (p50 is None and rate is None, "EmptyLink", "neither a round-trip time nor a bandwidth"),
        (p50 is not None and p50 <= 0, "ImpossibleRtt", f"round trip {p50} us must be > 0"),
        (p50 is not None and p50 > MAX_RTT_S * 1e6, "ImpossibleRtt", f"round trip {p50} us is over {MAX_RTT_S} s"),
        (p95 is not None and p95 < (p50 or 0), "ImpossibleRtt", f"p95 {p95} us is below p50 {p50} us"),
        (rate is not None and rate <= 0, "ImpossibleBandwidth", f"bandwidth {rate} B/s must be > 0"),
        (
            rate is not None and rate > MAX_BANDWIDTH_BYTES_PER_S,
            "ImpossibleBandwidth",
            f"bandwidth {rate} B/s is over {MAX_BANDWIDTH_BYTES_PER_S} B/s (10 Tbit/s)",
        ),
        (row.samples < 1, "ImpossibleSamples", f"{row.samples} samples must be >= 1"),
        (ahead_s > MAX_CLOCK_SKEW_S, "TimeInFuture", f"measured {ahead_s:.0f} s in the future"),
    )
    return next(((reason, text) for wrong, reason, text in checks if wrong), None)
