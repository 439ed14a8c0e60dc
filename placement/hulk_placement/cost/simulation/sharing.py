"""Flows that share what they go over, compiled: each gets its max-min fair rate until one begins or ends.

A flow takes its own most, or less where a resource it draws on is scarce, that is, where its flows together would take
more than there is. Progressive filling (Bertsekas and Gallager, Data Networks, 1992, 6.5.2): the flows of the resource
that has least for each share get that, and so on with what is left.

A flow that draws on a resource twice takes twice its rate of it.

Letters of shapes: F flows, W resources of a flow's way (-1 fills up), R resources.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk_placement.compiled import compiled
from hulk_placement.cost.simulation.step import Resource, Way

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NUM_ACTIVE, IS_UNSETTLED, NEXT = range(3)

ROUNDING = 1e-9
"""Sums of rates are exact to so much."""


class Flows(NamedTuple):
    """All flows there can be, and what is under way."""

    route_FW: Ints
    most_F: Floats
    """Bytes a second that the entry takes where nothing is scarce, all its flows together."""
    shares_F: Floats
    capacity_R: Floats
    active_F: Ints
    """The first `NUM_ACTIVE` are under way."""
    place_F: Ints
    """Where a flow is in `active_F`."""
    left_F: Floats
    """Bytes left at `since_F`."""
    since_F: Floats
    rate_F: Floats
    end_F: Floats
    limit_F: Ints
    """The resource that a flow is held back by; the first of its way where that is its own most."""
    demand_R: Floats
    """Bytes a second that the flows on a resource would take."""
    count_R: Ints
    is_scarce_R: Bools
    since_R: Floats
    """When a resource came to be in use."""
    busy_R: Floats
    scarce_R: Floats
    """Seconds in use, and scarce."""
    moved_R: Floats
    """Bytes carried."""
    room_R: Floats
    open_R: Floats
    """Scratch: what is left of a scarce resource, and the shares of its flows without a rate yet."""
    open_F: Ints
    now: Ints
    """How many flows are under way, whether rates must be settled (0, 1), the flow that ends next or -1."""
    settled_s: Floats
    """(1,): when rates were settled."""


def make_flows(ways: Sequence[Way], resources: Sequence[Resource]) -> Flows:
    """Flows over these ways, none under way."""
    width = max((len(way.resources) for way in ways), default=1)
    routes = [way.resources + (-1,) * (width - len(way.resources)) for way in ways]
    num, num_resources = len(ways), len(resources)
    ints_F, floats_F = np.zeros((3, num), np.int64), np.zeros((4, num))
    floats_R = np.zeros((7, num_resources))
    route_FW = np.array(routes, np.int64).reshape(num, width)
    return Flows(
        route_FW=route_FW,
        most_F=np.array([way.bytes_per_s * way.num_flows for way in ways], np.float64),
        shares_F=np.array([way.num_flows for way in ways], np.float64),
        capacity_R=np.array([resource.bytes_per_s for resource in resources], np.float64),
        active_F=ints_F[0],
        place_F=ints_F[1],
        left_F=floats_F[0],
        since_F=floats_F[1],
        rate_F=floats_F[2],
        end_F=floats_F[3],
        limit_F=route_FW[:, 0].copy(),
        demand_R=floats_R[0],
        count_R=np.zeros(num_resources, np.int64),
        is_scarce_R=np.zeros(num_resources, np.bool_),
        since_R=floats_R[1],
        busy_R=floats_R[2],
        scarce_R=floats_R[3],
        moved_R=floats_R[4],
        room_R=floats_R[5],
        open_R=floats_R[6],
        open_F=ints_F[2],
        now=np.array([0, 0, -1]),
        settled_s=np.zeros(1),
    )


@compiled
def start(flows: Flows, f: int, num_bytes: float, now_s: float) -> None:
    """Flow f begins; rates must be settled before time goes on."""
    flows.left_F[f], flows.since_F[f], flows.rate_F[f], flows.end_F[f] = num_bytes, now_s, 0.0, math.inf
    flows.active_F[flows.now[NUM_ACTIVE]], flows.place_F[f] = f, flows.now[NUM_ACTIVE]
    flows.now[NUM_ACTIVE] += 1
    flows.now[IS_UNSETTLED] = 1
    for r in flows.route_FW[f]:
        if r < 0:
            break
        if flows.count_R[r] == 0:
            flows.since_R[r] = now_s
        flows.count_R[r] += 1
        flows.demand_R[r] += flows.most_F[f]


@compiled
def finish(flows: Flows, f: int, now_s: float) -> None:
    """Flow f is done; rates must be settled before time goes on."""
    _move(flows, f, now_s)
    last = flows.now[NUM_ACTIVE] - 1
    flows.active_F[flows.place_F[f]] = flows.active_F[last]
    flows.place_F[flows.active_F[last]] = flows.place_F[f]
    flows.now[NUM_ACTIVE] = last
    flows.now[IS_UNSETTLED] = 1
    for r in flows.route_FW[f]:
        if r < 0:
            break
        flows.count_R[r] -= 1
        flows.demand_R[r] -= flows.most_F[f]
        if flows.count_R[r] == 0:
            flows.demand_R[r] = 0.0
            flows.busy_R[r] += now_s - flows.since_R[r]


@compiled
def _move(flows: Flows, f: int, now_s: float) -> None:
    """Carry what flow f moved at its rate until now."""
    num_bytes = flows.rate_F[f] * (now_s - flows.since_F[f])
    flows.left_F[f] = max(0.0, flows.left_F[f] - num_bytes)
    flows.since_F[f] = now_s
    for r in flows.route_FW[f]:
        if r < 0:
            break
        flows.moved_R[r] += num_bytes


@compiled
def _give(flows: Flows, f: int, rate: float, limit: int, now_s: float) -> None:
    flows.limit_F[f] = limit
    if rate != flows.rate_F[f]:
        _move(flows, f, now_s)
        flows.rate_F[f], flows.end_F[f] = rate, now_s + flows.left_F[f] / rate
    for r in flows.route_FW[f]:
        if r < 0:
            break
        if flows.is_scarce_R[r]:
            flows.room_R[r] = max(0.0, flows.room_R[r] - rate)
            flows.open_R[r] -= flows.shares_F[f]


@compiled
def _open(flows: Flows, now_s: float) -> int:
    """Find what is scarce, and the flows that draw on it, into `open_F`: how many; the others get their most."""
    for r in range(flows.capacity_R.shape[0]):
        if flows.is_scarce_R[r]:
            flows.scarce_R[r] += now_s - flows.settled_s[0]
        flows.is_scarce_R[r] = flows.demand_R[r] > flows.capacity_R[r] * (1.0 + ROUNDING)
        flows.room_R[r], flows.open_R[r] = flows.capacity_R[r], 0.0
    num = 0
    for k in range(flows.now[NUM_ACTIVE]):
        f = flows.active_F[k]
        is_open = False
        for r in flows.route_FW[f]:
            if r < 0:
                break
            if flows.is_scarce_R[r]:
                flows.open_R[r] += flows.shares_F[f]
                is_open = True
        if is_open:
            flows.open_F[num] = f
            num += 1
        else:
            _give(flows, f, flows.most_F[f], flows.route_FW[f, 0], now_s)
    return num


@compiled
def _tightest(flows: Flows) -> tuple[int, float]:
    """The scarce resource that has least for a share of its open flows, and how much that is."""
    tightest, least = -1, math.inf
    for r in range(flows.capacity_R.shape[0]):
        if flows.is_scarce_R[r] and flows.open_R[r] > 0.5 and flows.room_R[r] / flows.open_R[r] < least:
            tightest, least = r, flows.room_R[r] / flows.open_R[r]
    return tightest, least


@compiled
def _fill(flows: Flows, num_open: int, now_s: float) -> int:
    """Give open flows what they need where that is within every share, else those of the tightest resource theirs.

    How many are left open.
    """
    tightest, share = _tightest(flows)
    left = 0
    for k in range(num_open):
        f = flows.open_F[k]
        if flows.most_F[f] <= share * flows.shares_F[f]:
            _give(flows, f, flows.most_F[f], flows.route_FW[f, 0], now_s)
        else:
            flows.open_F[left] = f
            left += 1
    if left < num_open:
        return left
    left = 0
    for k in range(num_open):
        f = flows.open_F[k]
        if (flows.route_FW[f] == tightest).any():
            _give(flows, f, share * flows.shares_F[f], tightest, now_s)
        else:
            flows.open_F[left] = f
            left += 1
    return left


@compiled
def settle(flows: Flows, now_s: float) -> None:
    """Give all flows their fair rates from now on, and find the one that ends next."""
    num_open = _open(flows, now_s)
    while num_open > 0:
        num_open = _fill(flows, num_open, now_s)
    flows.settled_s[0] = now_s
    flows.now[IS_UNSETTLED], flows.now[NEXT] = 0, -1
    end_s = math.inf
    for k in range(flows.now[NUM_ACTIVE]):
        f = flows.active_F[k]
        if flows.end_F[f] < end_s:
            end_s, flows.now[NEXT] = flows.end_F[f], f
