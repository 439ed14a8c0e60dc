"""What this node has measured: the newest figures per target <-> the links of NodeProfile.status.

A link is kept however old it is: while a job uses it, nobody may measure it, and an old figure, whose age is shown, is
better than none. What makes room for newer ones are the links measured longest ago, first of all those of nodes that
are gone. The agent owns the idle links only: entries under load belong to the operator.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from hulk_runtime.agent import VERSION
from hulk_runtime.agent.iperf import Transfer
from hulk_runtime.agent.orders import Address
from hulk_runtime.agent.rtt_window import Rtt

MAX_LINKS: Final = 200  # of the 256 a profile can hold; the others are for links under load


@dataclass(frozen=True, slots=True)
class Measured:
    """The idle link from this node to one target."""

    rtt: Rtt | None = None
    transfer: Transfer | None = None
    transfer_time_s: float = 0.0

    @property
    def time_s(self) -> float:
        """When the newest of its figures was measured (Unix)."""
        return max(self.rtt.time_s if self.rtt else 0.0, self.transfer_time_s)


Links = Mapping[str, Measured]


def with_rtts(links: Links, rtts: Mapping[str, Rtt]) -> dict[str, Measured]:
    """The links with newer round-trip times."""
    return {**links, **{target: replace(links.get(target, Measured()), rtt=rtt) for target, rtt in rtts.items()}}


def with_transfer(links: Links, target: str, transfer: Transfer, time_s: float) -> dict[str, Measured]:
    """The links with a newer bandwidth."""
    newer = replace(links.get(target, Measured()), transfer=transfer, transfer_time_s=time_s)
    return {**links, target: newer}


def kept(links: Links) -> dict[str, Measured]:
    """The newest `MAX_LINKS` links."""
    return dict(sorted(links.items(), key=lambda item: (-item[1].time_s, item[0]))[:MAX_LINKS])


def status(links: Links, last_id: int, echo: Address, keeps_windows: bool = False) -> dict[str, Any]:
    """The part of NodeProfile.status that the agent owns."""
    return {
        "lastId": last_id,
        "echo": {"address": echo.host, "port": echo.port},
        "agentVersion": VERSION,
        "keepsWindows": keeps_windows,
        "links": [_row(target, link) for target, link in sorted(links.items())],
    }


def read(rows: Iterable[Mapping[str, Any]]) -> dict[str, Measured]:
    """The agent's own links as an earlier process left them in the status.

    >>> read([{"target": "b", "underLoad": False, "time": "2026-01-02T03:04:05Z", "rttP50Microseconds": 70,
    ...        "rttP95Microseconds": 90, "samples": 60}])["b"].rtt.p95_us
    90
    """
    return {row["target"]: _link(row) for row in rows if not row.get("underLoad", False)}


def _row(target: str, link: Measured) -> dict[str, Any]:
    row: dict[str, Any] = {"target": target, "underLoad": False, "time": _text(link.time_s)}
    if link.rtt:
        row |= {"rttP50Microseconds": link.rtt.p50_us, "rttP95Microseconds": link.rtt.p95_us}
        row |= {"samples": link.rtt.num_samples}
    if link.transfer:
        row |= {"bandwidthBytesPerSecond": link.transfer.bytes_per_s, "streams": link.transfer.num_streams}
        row |= {"bandwidthTime": _text(link.transfer_time_s)}
    return row


def _link(row: Mapping[str, Any]) -> Measured:
    time_s = _seconds(row["time"])
    rtt = transfer = None
    if "rttP50Microseconds" in row and "rttP95Microseconds" in row:
        rtt = Rtt(row["rttP50Microseconds"], row["rttP95Microseconds"], row.get("samples", 1), time_s)
    if "bandwidthBytesPerSecond" in row:
        transfer = Transfer(row["bandwidthBytesPerSecond"], row.get("streams", 1))
    return Measured(rtt, transfer, _seconds(row.get("bandwidthTime", row["time"])) if transfer else 0.0)


def _text(time_s: float) -> str:
    return datetime.fromtimestamp(int(time_s), UTC).isoformat().replace("+00:00", "Z")


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
