"""Synchronisation through one machine: all send it their gradients, it sums them and sends the sum back.

It is no all-reduce that Hulk runs: it is here because published runs used it, and to be compared. Receives are posted
early, so a way costs a one-way delay and the bytes over what the link gives; links and uplinks are shared by all that
cross them. The server's own summing, and its network card, are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hulk_placement.cost.groups import Group, GroupTime, Sharing
from hulk_placement.cost.point_to_point import send_receive_s
from hulk_placement.topology import Link, Pair, Topology


@dataclass(frozen=True, slots=True)
class ParameterServer:
    """`machine` sums; None: the first of each group."""

    machine: str | None = None


def server_times(groups: Sequence[Group], topology: Topology, transport: ParameterServer) -> tuple[GroupTime, ...]:
    """What each group takes to send all gradients to its server and to get the sum back, all groups together."""
    there = _one_way(groups, [client_edges(group, transport) for group in groups], topology)
    back = _one_way(groups, [client_edges(group, transport, back=True) for group in groups], topology)
    return tuple(
        GroupTime(there_s + back_s, max((there_s, there_pair), (back_s, back_pair))[1] if there_pair else None)
        for (there_s, there_pair), (back_s, back_pair) in zip(there, back, strict=True)
    )


def client_edges(group: Group, transport: ParameterServer, back: bool = False) -> Counter[Pair]:
    """How often each pair of machines is crossed; the rank on the server's machine that sums sends nothing."""
    ranks, server = list(group.machines), transport.machine or group.machines[0]
    if server in ranks:
        ranks.remove(server)
    return Counter((server, name) if back else (name, server) for name in ranks)


def _one_way(
    groups: Sequence[Group], edges: Sequence[Counter[Pair]], topology: Topology
) -> list[tuple[float, Pair | None]]:
    sharing, num_bytes = Sharing(edges, topology), [float(group.num_bytes) for group in groups]

    def seconds(number: int, pair: Pair, link: Link) -> float:
        return send_receive_s(link, num_bytes[number], num_sharing=sharing.num_sharing(number, pair, num_bytes))

    found: list[tuple[float, Pair | None]] = []
    for number, links in enumerate(sharing.links):
        times = {pair: seconds(number, pair, link) for pair, link in links.items()}
        worst = max(sorted(times), key=times.__getitem__, default=None)
        found.append((0.0 if worst is None else times[worst], worst))
    return found
