"""Bandwidth by the iperf3 program: one ordered test between two agents -> the TCP payload rate that arrived.

The client sends, so the result is the rate of the link from the client's node to the server's, as counted by the
receiver, with the number of streams. Both bounds of an order hold: the first run lasts `seconds` and is paced so that
it cannot send more than half of the byte budget. Only where that pace, not the link, was the limit does a second run
send the other half as fast as it can; such a link is fast enough to take it in about the same time.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from hulk_runtime.agent.orders import BandwidthOrder

PROGRAM: Final = "iperf3"
OMITTED_SECONDS: Final = 1  # slow start is left out of the first run
PACED_SHARE: Final = 0.8  # a rate above this share of the pace may have been limited by it
CONNECT_TIMEOUT_MS: Final = 3_000


class IperfError(Exception):
    """iperf3 ran no test; the message is its own."""


class NotConnectedError(IperfError):
    """No data connection was made, so nothing of the byte budget is spent and the run may be tried again."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """What arrived in one run."""

    bytes_per_s: int
    num_streams: int


def pace_bytes_per_s(order: BandwidthOrder) -> float | None:
    """The first run's pace over all streams; None where the order sets no byte budget.

    >>> order = BandwidthOrder(1, "client", "b", None, 4, 4, 100_000_000, 0.0)
    >>> pace_bytes_per_s(order)
    10000000.0
    """
    if order.num_bytes == 0:
        return None
    return order.num_bytes / 2 / (order.seconds + OMITTED_SECONDS)


def needs_second_run(order: BandwidthOrder, bytes_per_s: float) -> bool:
    """Whether the first run's rate says more about its pace than about the link. Both sides decide by this rule."""
    pace = pace_bytes_per_s(order)
    return pace is not None and bytes_per_s >= PACED_SHARE * pace


def server_command(own_host: str, port: int) -> tuple[str, ...]:
    """One server for one test on one address."""
    return (PROGRAM, "-s", "-1", "-J", "-i", "0", "-B", own_host, "-p", str(port))


def first_run(order: BandwidthOrder, own_host: str) -> tuple[str, ...]:
    """The paced run of `seconds`."""
    pace = pace_bytes_per_s(order)
    paced = ("-b", str(max(1, int(pace * 8 / order.num_streams)))) if pace is not None else ()
    return (*_client(order, own_host), "-t", str(order.seconds), "-O", str(OMITTED_SECONDS), *paced)


def second_run(order: BandwidthOrder, own_host: str) -> tuple[str, ...]:
    """The unpaced run of half the byte budget."""
    return (*_client(order, own_host), "-n", str(order.num_bytes // 2))


def _client(order: BandwidthOrder, own_host: str) -> tuple[str, ...]:
    where = ("-c", order.address.host, "-p", str(order.address.port), "-B", own_host)
    how = ("-J", "-i", "0", "-P", str(order.num_streams), "--connect-timeout", str(CONNECT_TIMEOUT_MS))
    return (PROGRAM, *where, *how)


def parse(output: bytes) -> Transfer:
    """What arrived, from either side's JSON. `IperfError` with iperf3's own message when there is none.

    It is the receiver that counts; a sender believes no more than what it has sent.
    """
    report = _report(output)
    if "error" in report:
        connected = report.get("start", {}).get("connected")
        raise (IperfError if connected else NotConnectedError)(str(report["error"]))
    try:
        rate = report["end"]["sum_received"]["bits_per_second"] / 8
        if "connecting_to" in report.get("start", {}):
            rate = min(rate, report["end"]["sum_sent"]["bits_per_second"] / 8)
        num_streams = len(report["end"]["streams"])
    except (KeyError, TypeError) as error:
        raise IperfError(f"iperf3's report has no {error}") from error
    if not rate >= 1 or num_streams < 1:
        raise IperfError(f"nothing arrived: {rate} B/s over {num_streams} streams")
    return Transfer(round(rate), num_streams)


def accepted_host(output: bytes) -> str:
    """Who was tested, from a server's JSON; empty when nobody came."""
    accepted = _report(output).get("start", {}).get("accepted_connection", {})
    return str(accepted.get("host", ""))


def _report(output: bytes) -> dict[str, Any]:
    try:
        report = json.loads(output)
    except ValueError as error:
        raise IperfError(f"iperf3 printed no JSON: {output[:200]!r}") from error
    if not isinstance(report, dict):
        raise IperfError(f"iperf3 printed no report: {output[:200]!r}")
    return report
