"""Which echoes stand and which bandwidth tests are under way: the standing part of every node's measurements."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from hulk_operator import names
from hulk_operator.api import EchoAddress, Measurement, NodeProfile
from hulk_operator.probing.types import Budget, Pair

MEET_S: Final = 30.0  # the agents' patience until both sides have met
TRANSFER_S: Final = 30.0  # what the transfers may take beyond the ordered seconds, twice
START_S: Final = 1.0  # both sides should know their order by then
MAX_TARGETS: Final = 200  # echoes of one node; the other entries of a profile are for tests and links under load


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A bandwidth test under way, as both its sides' profiles have it."""

    id: int
    source: str
    target: str


class Ids:
    """Measurement ids: the Unix time in milliseconds, counted up where two would be equal.

    >>> ids = Ids(1.5, [1400])
    >>> ids.take(), ids.take()
    (1500, 1501)
    >>> Ids(1.5, [9000]).take()
    9001
    """

    def __init__(self, now_s: float, used: Iterable[int]) -> None:
        self._next = max(int(now_s * 1000), max(used, default=0) + 1)

    def take(self) -> int:
        """An id that is higher than every other."""
        self._next += 1
        return self._next - 1


def pending(profiles: Mapping[str, NodeProfile], now_s: float) -> dict[int, UnderWay]:
    """Tests that at least one side has not finished and that are not over by time."""
    found: dict[int, UnderWay] = {}
    for name, profile in profiles.items():
        for order in profile.spec.measurements:
            if order.kind == "bandwidth" and order.id > profile.status.last_id and now_s < _over_s(order):
                source, target = (name, order.target) if order.role == "client" else (order.target, name)
                found[order.id] = UnderWay(order.id, source, target)
    return found


def echo_order(order_id: int, target: str, address: EchoAddress) -> Measurement:
    """Measure the round-trip time to a node from now on."""
    return Measurement(id=order_id, target=target, address=address.address, port=address.port, kind="rtt")


def bandwidth_orders(
    order_id: int, pair: Pair, addresses: Mapping[str, EchoAddress], budget: Budget, now_s: float
) -> dict[str, Measurement]:
    """Both sides' orders of one test, by node: the source sends."""
    source, target = pair
    start = datetime.fromtimestamp(now_s + START_S, UTC)

    def side(role: str, peer: str) -> Measurement:
        return Measurement.model_validate(
            {
                "id": order_id,
                "target": peer,
                "address": addresses[peer].address,
                "port": names.AGENT_BANDWIDTH_PORT,
                "kind": "bandwidth",
                "role": role,
                "streams": budget.streams,
                "seconds": budget.seconds,
                "maxBytes": budget.max_bytes,
                "notBefore": start,
            }
        )

    return {source: side("client", target), target: side("server", source)}


def _over_s(order: Measurement) -> float:
    start_s = order.not_before.timestamp() if order.not_before else order.id / 1000
    return start_s + MEET_S + 2 * order.seconds + TRANSFER_S
