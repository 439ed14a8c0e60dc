"""The events of a step in the order of time, compiled: blocks end, transfers leave and arrive, gradients are there."""

from __future__ import annotations

import math
from heapq import heappop

import numpy as np

from hulk_placement.compiled import compiled
from hulk_placement.cost.simulation.blocks import (
    COMPUTED,
    OPENED,
    READY,
    Blocks,
    Events,
    end_block,
    end_transfer,
    is_last,
    open_way,
    receiver_of,
    start_block,
)
from hulk_placement.cost.simulation.sharing import IS_UNSETTLED, NEXT, Flows, finish, settle
from hulk_placement.cost.simulation.sums import Ints, Sums, add, arrive, end_edge, expect, release

CELLS, SUMS = 0, 1
"""What is left to do: of all cells, and of the sums that do not wait for all else."""


@compiled
def run(blocks: Blocks, flows: Flows, sums: Sums) -> None:
    """Go through the step until nothing is left that can happen.

    Rates are settled when all that happens at the same time is dealt with, before time goes on.
    """
    events: Events = [(math.inf, READY, 0, 0)]
    left = np.array([blocks.next_C.shape[0], 0])
    left[SUMS] = (~sums.is_last_G[sums.group_S]).sum()
    for cell in range(left[CELLS]):
        _start(blocks, sums, events, cell, 0.0)
    now_s = 0.0
    while True:
        if flows.now[IS_UNSETTLED] and events[0][0] > now_s:
            settle(flows, now_s)
        flow = flows.now[NEXT]
        if flow >= 0 and flows.end_F[flow] < events[0][0]:
            now_s = flows.end_F[flow]
            _end_flow(blocks, flows, sums, events, flow, now_s)
        elif events[0][0] < math.inf:
            now_s, kind, who, more = heappop(events)
            if kind == COMPUTED:
                _computed(blocks, flows, sums, events, who, left, now_s)
            elif kind == READY:
                add(sums, flows, who, more, now_s)
            elif kind == OPENED:
                open_way(blocks, flows, who, more, now_s)
            elif who < sums.first_edge:
                _arrived(blocks, sums, events, who, more, now_s)
            else:
                _reduced(sums, flows, who, left, now_s)
        else:
            return


@compiled
def _start(blocks: Blocks, sums: Sums, events: Events, cell: int, now_s: float) -> None:
    """Start the cell's next block if it can."""
    if start_block(blocks, events, cell, now_s) and sums.is_early and is_last(blocks, cell):
        expect(sums, events, cell, now_s, blocks.seconds_CI[cell, blocks.next_C[cell]])


@compiled
def _end_flow(blocks: Blocks, flows: Flows, sums: Sums, events: Events, flow: int, now_s: float) -> None:
    finish(flows, flow, now_s)
    if flow < sums.first_edge:
        end_transfer(blocks, flows, events, flow, now_s)
    else:
        end_edge(sums, flows, events, flow - sums.first_edge, now_s)


@compiled
def _computed(blocks: Blocks, flows: Flows, sums: Sums, events: Events, cell: int, left: Ints, now_s: float) -> None:
    """A block has ended."""
    left[CELLS] -= is_last(blocks, cell)
    end_block(blocks, flows, events, cell, now_s)
    _start(blocks, sums, events, cell, now_s)
    if left[CELLS] == 0 and not sums.is_early:
        release(sums, flows, False, cell, now_s)
    if left[CELLS] == 0 and left[SUMS] == 0:
        release(sums, flows, True, cell, now_s)


@compiled
def _arrived(blocks: Blocks, sums: Sums, events: Events, channel: int, batch: int, now_s: float) -> None:
    """A block's input is there."""
    blocks.arrived_HM[channel, batch] = now_s
    _start(blocks, sums, events, receiver_of(channel), now_s)
    if not blocks.overlap:
        blocks.is_busy_C[channel // 2] = False
        _start(blocks, sums, events, channel // 2, now_s)


@compiled
def _reduced(sums: Sums, flows: Flows, flow: int, left: Ints, now_s: float) -> None:
    """An edge of an all-reduce is there."""
    ended = arrive(sums, flows, flow - sums.first_edge, now_s)
    if ended >= 0 and not sums.is_last_G[sums.group_S[ended]]:
        left[SUMS] -= 1
        if left[CELLS] == 0 and left[SUMS] == 0:
            release(sums, flows, True, -1 - ended, now_s)
