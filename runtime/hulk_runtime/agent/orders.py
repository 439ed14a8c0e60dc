"""What the operator orders: NodeProfile.spec as frozen values, parsed once at the edge.

An order that this agent does not understand (a kind of a later version) is left out, so that an older agent keeps
measuring what it can. Rules the API server already checks are not checked again.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from typing import Any, Final

RTT: Final = "rtt"
BANDWIDTH: Final = "bandwidth"
CLIENT: Final = "client"
SERVER: Final = "server"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a peer's agent listens; an IP address in the one form in which sockets say it."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class RttOrder:
    """Measure the round-trip time to a node for as long as the order stands."""

    target: str
    address: Address


@dataclass(frozen=True, slots=True)
class BandwidthOrder:
    """One bandwidth test with a peer. The client sends, so it measures the link from its own node to the target.

    `num_bytes` and `seconds` both bound what is sent; the test may run from `not_before_s` (Unix), 0: from
    when the order is first seen.
    """

    id: int
    role: str
    target: str
    address: Address
    num_streams: int
    seconds: int
    num_bytes: int
    not_before_s: float


@dataclass(frozen=True, slots=True)
class Orders:
    """Everything ordered from one node."""

    rtt: tuple[RttOrder, ...] = ()
    bandwidth: tuple[BandwidthOrder, ...] = ()

    def rtt_targets(self) -> dict[str, Address]:
        """Address by node name."""
        return {order.target: order.address for order in self.rtt}


def parse(spec: Mapping[str, Any]) -> Orders:
    """The orders of a NodeProfile's spec (camelCase, as the API server returns it)."""
    measurements = spec.get("measurements", [])
    return Orders(
        rtt=tuple(_rtt(row) for row in measurements if row["kind"] == RTT),
        bandwidth=tuple(
            _bandwidth(row) for row in measurements if row["kind"] == BANDWIDTH and row.get("role") in (CLIENT, SERVER)
        ),
    )


def _rtt(row: Mapping[str, Any]) -> RttOrder:
    return RttOrder(row["target"], _address(row))


def _address(row: Mapping[str, Any]) -> Address:
    host = row["address"]
    with suppress(ValueError):  # what is none, nobody will answer at
        host = str(ip_address(host))
    return Address(host, row["port"])


def _bandwidth(row: Mapping[str, Any]) -> BandwidthOrder:
    return BandwidthOrder(
        id=int(row["id"]),
        role=row["role"],
        target=row["target"],
        address=_address(row),
        num_streams=row["streams"],
        seconds=row["seconds"],
        num_bytes=row["maxBytes"],
        not_before_s=datetime.fromisoformat(row["notBefore"]).timestamp() if "notBefore" in row else 0.0,
    )
