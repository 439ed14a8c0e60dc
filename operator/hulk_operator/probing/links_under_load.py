"""What a running job's own sockets say about its links -> entries under load in the sources' NodeProfiles.

They never touch the idle entries. A worker is the user's code: it is believed only about links between the nodes of
its own job, and only what is possible (the limits of `link_validation`), for a day. What it says steers plans, its own
and others', only between regions of which agents have measured nothing and nothing is declared.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from hulk_operator.api import LinkStatus, NodeProfile
from hulk_operator.observation import ObservedLink
from hulk_operator.probing.link_validation import LOAD_RETENTION_S, MAX_BANDWIDTH_BYTES_PER_S, MAX_RTT_S

MAX_ENTRIES: Final = 56  # of the 256 links of a profile; the others are the agent's
RETENTION: Final = timedelta(seconds=LOAD_RETENTION_S)


def rows(
    observed: Iterable[ObservedLink], job_nodes: Collection[str], now: datetime
) -> dict[str, tuple[LinkStatus, ...]]:
    """New entries by source node."""
    found: dict[str, list[LinkStatus]] = {}
    for link in observed:
        known = link.source in job_nodes and link.target in job_nodes and link.source != link.target
        row = _row(link, now) if known else None
        if row is not None:
            found.setdefault(link.source, []).append(row)
    return {source: tuple(entries) for source, entries in found.items()}


def merged(profile: NodeProfile, new: Iterable[LinkStatus], now: datetime) -> tuple[LinkStatus, ...]:
    """All entries under load that a profile shall have: the new ones, and older ones that are not too old."""
    old = {row.target: row for row in profile.status.links if row.under_load and now - row.time < RETENTION}
    entries = {**old, **{row.target: row for row in new}}
    newest = sorted(entries.values(), key=lambda row: (-row.time.timestamp(), row.target))[:MAX_ENTRIES]
    return tuple(sorted(newest, key=lambda row: row.target))


def _row(link: ObservedLink, now: datetime) -> LinkStatus | None:
    rtt_us = round(link.rtt_s * 1e6) if link.rtt_s is not None and 0 < link.rtt_s <= MAX_RTT_S else None
    rate = link.bandwidth_bytes_per_s
    possible = rate is not None and 1 <= rate <= MAX_BANDWIDTH_BYTES_PER_S
    figures: Mapping[str, object] = {
        "rttP50Microseconds": rtt_us or None,
        "rttP95Microseconds": rtt_us or None,
        "bandwidthBytesPerSecond": round(rate) if possible and rate is not None else None,
    }
    if not any(figures.values()):
        return None
    return LinkStatus.model_validate(
        {"target": link.target, "underLoad": True, "streams": 1, "samples": 1, "time": now, **figures}
    )
