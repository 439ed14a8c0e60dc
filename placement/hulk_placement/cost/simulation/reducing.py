"""A plan's all-reduces as phases over shared ways, by the transport that runs them.

Every all-reduce alone takes what its transport's closed form says. What differs is what happens at the same time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hulk_placement.collective.network import Network
from hulk_placement.collective.plan import CollectivePlan
from hulk_placement.cost.gloo import AT_A_TIME, SOFTWARE_S, cut_ring
from hulk_placement.cost.gloo_rings import ring_times
from hulk_placement.cost.groups import Group
from hulk_placement.cost.hierarchical import Hierarchical, by_region, inside_seconds, leaders
from hulk_placement.cost.nccl import nccl_edges, nccl_times
from hulk_placement.cost.nccl_ring import ring_edges
from hulk_placement.cost.parameter_server import ParameterServer, client_edges
from hulk_placement.cost.simulation.outcome import simulate_step
from hulk_placement.cost.simulation.schedule import schedule
from hulk_placement.cost.simulation.step import AllReduce, Bucket, Edge, Phase, Place, Replica, Step, Way
from hulk_placement.cost.simulation.ways import Ways
from hulk_placement.cost.transports import Transport
from hulk_placement.cost.wan import simulated
from hulk_placement.nccl import Nccl
from hulk_placement.topology import Pair

LEAST_S = 1e-9
"""That bytes take, where a closed form says that only latency counts."""


def buckets_of(
    transport: Transport, group: Group, ready: Sequence[float], num_flows: int, ways: Ways, connection: object
) -> tuple[Bucket, ...]:
    """The buckets of one group, each `ready` when that part of the last backward pass is done.

    `num_flows` such groups run side by side, of as many tensor-parallel ranks; `connection` names the group's. Two
    levels begin when all gradients are there.
    """
    if isinstance(transport, Hierarchical):
        return (Bucket(1.0, _two_levels(group, num_flows, ways)),)
    num = group.num_buckets
    one = replace(group, num_bytes=math.ceil(group.num_bytes / num), num_buckets=1)
    phases: tuple[Phase, ...]
    match transport:
        case Nccl():
            phases = (_nccl(transport, one, num_flows, ways),)
        case ParameterServer():
            phases = tuple(_server(transport, one, num_flows, ways, back) for back in (False, True))
        case _ if group.is_exchange:
            phases = (_exchange(one, num, num_flows, ways, connection),)
        case _:
            edge = _ring_edge(one, num, num_flows, ways, connection)
            phases = ((edge,), (edge,))
    return tuple(Bucket(part, phases) for part in ready)


def own_buckets(
    collective: CollectivePlan, network: Network, num_bytes: int, num_buckets: int, ways: Ways
) -> tuple[Bucket, ...]:
    """Of Hulk's own: each keeps links, uplinks and regions' insides as busy as its simulation alone says, and takes as
    long.
    """
    found = simulated(collective, network, math.ceil(num_bytes / num_buckets))
    edges = []
    for (a, b), busy_s in found.busy_s.items():
        pair = network.regions[a], network.regions[b]
        rate = ways.topology.region_link(*pair).bandwidth_bytes_per_s
        shared = (ways.number(Place("link", pair), rate), *ways.uplinks(*pair))
        edges.append(Edge(Way(shared, rate, 0.0), busy_s * rate))
    for region, pass_s in zip(network.regions, found.inside_s, strict=True):
        number = ways.number(Place("inside region", (region,)), 1.0, "passes")  # that takes a second of passes a second
        edges.append(Edge(Way((number,), 1.0, 0.0), pass_s))
    late = tuple(
        replace(edge, way=replace(edge.way, latency_s=max(0.0, found.seconds - float(end_s))))
        for edge, end_s in zip(edges, _ends_E(edges, ways), strict=True)
    )
    return tuple(Bucket((number + 1) / num_buckets, (late,)) for number in range(num_buckets))


def _ends_E(edges: Sequence[Edge], ways: Ways) -> NDArray[np.float64]:
    """When each of these is through, in seconds, where nothing else is under way."""
    nothing = Replica.alike(schedule("1f1b", 1, 1), (0.0,), (0.0,))
    each = tuple(Bucket(1.0, ((edge,),)) for edge in edges)
    step = Step(ways.resources, (nothing,), (AllReduce(((0, 0),), each, num_in_flight=len(each)),))
    return simulate_step(step).sums.end_S


def sending(group: Group, num_flows: int, ways: Ways) -> Bucket:
    """What the first of two sends the second, as many flows as there are tensor-parallel ranks."""
    return Bucket(1.0, ((_sent(group, group.machines, num_flows, ways),),))


def _exchange(group: Group, num_buckets: int, num_flows: int, ways: Ways, connection: object) -> Phase:
    """What each of two sends the other of one bucket; `num_buckets` of them share a connection each way."""
    pairs = group.machines, group.machines[::-1]
    edges = [_sent(group, pair, num_flows, ways) for pair in pairs]
    if num_buckets > 1:
        edges = [
            _sharing(edge, edge.way.bytes_per_s * num_flows, ways, (connection, n)) for n, edge in enumerate(edges)
        ]
    return tuple(edges)


def _sharing(edge: Edge, bytes_per_s: float, ways: Ways, connection: object) -> Edge:
    """The edge on a connection that carries so much of all buckets together."""
    shared = ways.number(ways.place(edge.way.resources[0]), bytes_per_s, connection)
    return replace(edge, way=replace(edge.way, resources=(*edge.way.resources, shared)))


def _sent(group: Group, pair: Sequence[str], num_flows: int, ways: Ways) -> Edge:
    """All that one of two machines has of a group's gradients, to the other."""
    source, target = pair
    way = ways.between(source, target)
    way = replace(way, latency_s=way.latency_s + SOFTWARE_S / 2, num_flows=num_flows)
    return Edge(way, group.num_bytes * num_flows)


def _ring_edge(group: Group, num_buckets: int, num_flows: int, ways: Ways, connection: object) -> Edge:
    """One bucket's half of gloo's ring, of which `num_buckets` share connections.

    As many as are under way together take what the closed form says of them, as one alone does: that makes the rate of
    their connections.
    """
    num, edges, num_bytes = min(num_buckets, AT_A_TIME), group.edges(), _edge_bytes(group) / 2
    alone, together = (
        ring_times([replace(group, num_bytes=n * group.num_bytes, num_buckets=n)] * num_flows, ways.topology)[0]
        for n in (1, num)
    )
    assert together.worst is not None
    drawn = _drawn_by(edges, together.worst, ways)
    latency_s = min(
        _latency_s(together.worst, time.seconds / 2, n * num_bytes * num_flows, drawn, ways)
        for n, time in ((1, alone), (num, together))
    )
    edge = _in_pace(drawn, num_bytes, alone.seconds / 2, latency_s, num_flows)
    if num_buckets == 1:
        return edge
    rate = num * edge.num_bytes / max(LEAST_S, together.seconds / 2 - latency_s)
    return _sharing(edge, rate, ways, connection)


def _rings(group: Group, num_flows: int, ways: Ways) -> Edge:
    """As many rings as there are flows, each reducing and gathering in one."""
    time, num_bytes = ring_times([group] * num_flows, ways.topology)[0], _edge_bytes(group)
    assert time.worst is not None
    drawn = _drawn_by(group.edges(), time.worst, ways)
    latency_s = _latency_s(time.worst, time.seconds, num_bytes * num_flows, drawn, ways)
    return _in_pace(drawn, num_bytes, time.seconds, latency_s, num_flows)


def _edge_bytes(group: Group) -> float:
    """What crosses every edge of a group's ring, reducing and gathering."""
    return 2 * cut_ring(group.num_bytes, len(group.machines), group.num_buckets).edge_bytes


def _drawn_by(edges: Counter[Pair], first: Pair, ways: Ways) -> tuple[int, ...]:
    """All that edges draw on, each as often as they do, what the first one does before."""
    rest = edges - Counter([first])
    drawn = [ways.drawn_on(*first), *(ways.drawn_on(*pair) for pair in rest.elements() if pair[0] != pair[1])]
    return sum(drawn, ())


def _latency_s(pair: Pair, seconds: float, num_bytes: float, drawn: Sequence[int], ways: Ways) -> float:
    """Of a pair's way there and back, what links and uplinks that carry so much leave of a ring's time.

    A ring may be held back by what another edge crosses, or fill its own link while it waits.
    """
    rates = ways.rates
    busy_s = max((count * num_bytes / rates[number] for number, count in Counter(drawn).items()), default=0.0)
    return min(ways.topology.link(*pair).rtt_s + SOFTWARE_S, max(0.0, seconds - busy_s))


def _in_pace(drawn: tuple[int, ...], num_bytes: float, alone_s: float, latency_s: float, num_flows: int) -> Edge:
    """Edges that keep pace with each other as one: what any of them shares holds back all of them."""
    rate = num_bytes / max(LEAST_S, alone_s - latency_s)
    return Edge(Way(drawn, rate, latency_s, num_flows), num_bytes * num_flows)


def _two_levels(group: Group, num_flows: int, ways: Ways) -> tuple[Phase, ...]:
    """Inside each region, rings of their leaders, inside each region again."""
    regions = by_region(group, ways.topology)
    inside = [inside_seconds(names, group.num_bytes, ways.topology) for names in regions]
    before, after = (
        tuple(_lasting(names[0], lasting[side], ways) for names, lasting in zip(regions, inside, strict=True))
        for side in (0, 1)
    )
    if len(regions) == 1:
        return before, after
    return before, (_rings(leaders(group, regions), num_flows, ways),), after


def _lasting(machine: str, seconds: float, ways: Ways) -> Edge:
    """What keeps a region busy for so long, and shares nothing."""
    number = ways.number(Place("inside region", (ways.topology.machine(machine).region,)), math.inf)
    return Edge(Way((number,), 1.0, seconds), 0.0)


def _nccl(transport: Nccl, group: Group, num_flows: int, ways: Ways) -> Phase:
    """The ring or the trees that NCCL takes, with as many at a time as there are ranks, as edges that keep pace."""
    seconds = nccl_times([group] * num_flows, ways.topology, transport)[0].seconds
    chosen, edges, num_bytes = nccl_edges(group, ways.topology, transport)
    edges = edges or ring_edges(group)  # trees have none on one machine
    first = min(sorted(edges), key=lambda e: chosen.link(e[0], e[1], ways.topology).one_flow_bytes_per_s)
    return (_in_pace(_drawn_by(edges, first, ways), num_bytes, seconds, 0.0, num_flows),)


def _server(transport: ParameterServer, group: Group, num_flows: int, ways: Ways, back: bool) -> Phase:
    """All gradients to the server, or the sum to all."""
    edges = []
    for pair, count in client_edges(group, transport, back).items():
        way = ways.between(*pair)
        way = replace(way, latency_s=way.latency_s + SOFTWARE_S / 2, num_flows=num_flows)
        edges += [Edge(way, group.num_bytes * num_flows)] * count
    return tuple(edges)
