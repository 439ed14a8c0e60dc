"""The blocks of every cell in their order, compiled: what may start, and what is sent when it has ended.

A cell starts its next block as soon as it is free and the block's input has arrived. Outputs of one kind (activations,
gradients) leave a cell over one channel, one after the other, and no sooner than the windows of silent connections have
grown (`cost.windows`).

Letters of shapes: C cells (replica x P + stage), I blocks of a cell (2 M), H channels (2 x cell + kind), M
micro-batches (the most of any replica).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from heapq import heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk_placement.compiled import compiled
from hulk_placement.cost.simulation.schedule import BACKWARD, FORWARD, Schedule
from hulk_placement.cost.simulation.sharing import Bools, Flows, start
from hulk_placement.cost.simulation.step import Step, Way
from hulk_placement.cost.windows import opened_s, packets_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Events = list[tuple[float, int, int, int]]
"""A heap: when, what, whose (a cell, a flow, a bucket), and the micro-batch or the cell."""

COMPUTED, ARRIVED, READY, OPENED = range(4)


class Blocks(NamedTuple):
    """What cells compute, and what they have computed: times are infinite until then."""

    num_stages: int
    overlap: bool
    order_CI: Ints
    """2 x micro-batch + kind; -1 behind the last block."""
    seconds_CI: Floats
    bytes_HM: Floats
    packets_HM: Floats
    """On each connection; 0 where windows are open."""
    latency_H: Floats
    trip_H: Floats
    rate_H: Floats
    """Seconds there and back, and bytes a second of a transfer alone."""
    packets_H: Floats
    room_H: Floats
    open_H: Floats
    """Packets that have been sent, packets that may have left by now, and when more may."""
    next_C: Ints
    is_busy_C: Bools
    """Computing, or waiting until what it sent has arrived."""
    start_CI: Floats
    end_CI: Floats
    queue_HM: Ints
    """Micro-batches in the order in which they are sent."""
    num_queued_H: Ints
    num_sent_H: Ints
    sending_HM: Floats
    """When the first byte leaves."""
    sent_HM: Floats
    arrived_HM: Floats
    held_by_HM: Ints
    """The resource that held the transfer back in the end."""


@lru_cache(maxsize=256)
def _codes(order: Schedule) -> Ints:
    """2 x micro-batch + kind of each block; (P, 2 M)."""
    return np.array([[2 * batch + kind for kind, batch in blocks] for blocks in order.orders], np.int64)


def make_blocks(step: Step, channels: Sequence[Way]) -> Blocks:
    """All blocks of a step, none started; H channels."""
    num_stages, most = step.num_stages, max(replica.schedule.num_micro_batches for replica in step.replicas)
    num_cells = len(step.replicas) * num_stages
    order_CI, seconds_CI = np.full((num_cells, 2 * most), -1), np.zeros((num_cells, 2 * most))
    bytes_CKM = np.zeros((num_cells, 2, most))
    for number, replica in enumerate(step.replicas):
        codes_PI, num = _codes(replica.schedule), replica.schedule.num_micro_batches
        cells = slice(number * num_stages, (number + 1) * num_stages)
        seconds_PI = np.stack((replica.forward_s, replica.backward_s), axis=2).reshape(num_stages, 2 * num)
        order_CI[cells, : 2 * num] = codes_PI
        seconds_CI[cells, : 2 * num] = np.take_along_axis(seconds_PI, codes_PI, axis=1)
        bytes_CKM[cells][:-1, FORWARD, :num] = replica.boundary_bytes
        bytes_CKM[cells][1:, BACKWARD, :num] = replica.boundary_bytes
    bytes_HM = bytes_CKM.reshape(2 * num_cells, most)
    latency_H = np.array([way.latency_s for way in channels])
    never_CI, never_HM = np.full((2, num_cells, 2 * most), np.inf), np.full((3, 2 * num_cells, most), np.inf)
    return Blocks(
        num_stages=num_stages,
        overlap=step.overlap,
        order_CI=order_CI,
        seconds_CI=seconds_CI,
        bytes_HM=bytes_HM,
        packets_HM=_packets(bytes_HM, np.array([way.is_cold for way in channels])),
        latency_H=latency_H,
        trip_H=latency_H + _back(latency_H),
        rate_H=np.array([way.bytes_per_s for way in channels]),
        packets_H=np.zeros(2 * num_cells),
        room_H=np.zeros(2 * num_cells),
        open_H=np.zeros(2 * num_cells),
        next_C=np.zeros(num_cells, np.int64),
        is_busy_C=np.zeros(num_cells, np.bool_),
        start_CI=never_CI[0],
        end_CI=never_CI[1],
        queue_HM=np.zeros((2 * num_cells, most), np.int64),
        num_queued_H=np.zeros(2 * num_cells, np.int64),
        num_sent_H=np.zeros(2 * num_cells, np.int64),
        sending_HM=never_HM[0],
        sent_HM=never_HM[1],
        arrived_HM=never_HM[2],
        held_by_HM=np.full((2 * num_cells, most), -1),
    )


@compiled
def _packets(bytes_HM: Floats, is_cold_H: Bools) -> Floats:
    """On each connection, of channels whose connections are silent before the step."""
    found_HM = np.zeros_like(bytes_HM)
    for channel in range(bytes_HM.shape[0]):
        if is_cold_H[channel]:
            for batch in range(bytes_HM.shape[1]):
                found_HM[channel, batch] = packets_of(bytes_HM[channel, batch])
    return found_HM


def _back(of_H: Floats) -> Floats:
    """Of each channel that of the channel back; the last cell's to the next one and the first's back have none."""
    found = np.zeros_like(of_H)
    found[FORWARD:-2:2], found[2 + BACKWARD :: 2] = of_H[2 + BACKWARD :: 2], of_H[FORWARD:-2:2]
    return found


@compiled
def input_of(num_stages: int, cell: int, kind: int) -> int:
    """The channel that a block's input comes over; -1 where it needs none."""
    stage = cell % num_stages
    if kind == FORWARD:
        return 2 * (cell - 1) + FORWARD if stage > 0 else -1
    return 2 * (cell + 1) + BACKWARD if stage + 1 < num_stages else -1


@compiled
def output_of(num_stages: int, cell: int, kind: int) -> int:
    """The channel that a block's output leaves over; -1 where nobody needs it."""
    stage = cell % num_stages
    if (kind == FORWARD and stage + 1 < num_stages) or (kind == BACKWARD and stage > 0):
        return 2 * cell + kind
    return -1


@compiled
def receiver_of(channel: int) -> int:
    """The cell at the end of a channel."""
    return channel // 2 + 1 if channel % 2 == FORWARD else channel // 2 - 1


@compiled
def is_last(blocks: Blocks, cell: int) -> bool:
    """Whether the cell's next block is its last one, a backward pass."""
    following = blocks.next_C[cell] + 1
    return bool(following == blocks.order_CI.shape[1] or blocks.order_CI[cell, following] < 0)


@compiled
def start_block(blocks: Blocks, events: Events, cell: int, now_s: float) -> bool:
    """Start the cell's next block if it can: whether it did."""
    number = blocks.next_C[cell]
    if blocks.is_busy_C[cell] or number == blocks.order_CI.shape[1] or blocks.order_CI[cell, number] < 0:
        return False
    code = blocks.order_CI[cell, number]
    channel = input_of(blocks.num_stages, cell, code % 2)
    if channel >= 0 and blocks.arrived_HM[channel, code // 2] > now_s:
        return False
    blocks.is_busy_C[cell] = True
    blocks.start_CI[cell, number] = now_s
    heappush(events, (now_s + blocks.seconds_CI[cell, number], COMPUTED, cell, 0))
    return True


@compiled
def end_block(blocks: Blocks, flows: Flows, events: Events, cell: int, now_s: float) -> None:
    """The cell's block has ended: its output waits for the channel, and the cell is free unless it waits for that."""
    number = blocks.next_C[cell]
    code = blocks.order_CI[cell, number]
    blocks.end_CI[cell, number] = now_s
    blocks.next_C[cell] += 1
    channel = output_of(blocks.num_stages, cell, code % 2)
    blocks.is_busy_C[cell] = channel >= 0 and not blocks.overlap
    if channel >= 0:
        blocks.queue_HM[channel, blocks.num_queued_H[channel]] = code // 2
        blocks.num_queued_H[channel] += 1
        if blocks.num_queued_H[channel] == blocks.num_sent_H[channel] + 1:
            send_next(blocks, flows, events, channel, now_s)


@compiled
def send_next(blocks: Blocks, flows: Flows, events: Events, channel: int, now_s: float) -> None:
    """Begin to send what has waited longest for the channel, if anything has."""
    number = blocks.num_sent_H[channel]
    if number < blocks.num_queued_H[channel]:
        batch = blocks.queue_HM[channel, number]
        blocks.sending_HM[channel, batch] = now_s
        alone_s = blocks.bytes_HM[channel, batch] / blocks.rate_H[channel]
        packets, trip_s = blocks.packets_HM[channel, batch], blocks.trip_H[channel]
        may_s = opened_s(blocks.packets_H, blocks.room_H, blocks.open_H, channel, packets, trip_s, now_s)
        late_s = may_s - alone_s
        if late_s > now_s:
            heappush(events, (late_s, OPENED, channel, batch))
        else:
            open_way(blocks, flows, channel, batch, now_s)


@compiled
def open_way(blocks: Blocks, flows: Flows, channel: int, batch: int, now_s: float) -> None:
    """Windows have grown: what is left of a micro-batch's output leaves at the way's rate."""
    start(flows, channel, blocks.bytes_HM[channel, batch], now_s)


@compiled
def end_transfer(blocks: Blocks, flows: Flows, events: Events, channel: int, now_s: float) -> None:
    """The last byte has left a channel: it arrives later, and the next micro-batch's first byte leaves."""
    batch = blocks.queue_HM[channel, blocks.num_sent_H[channel]]
    blocks.num_sent_H[channel] += 1
    blocks.sent_HM[channel, batch] = now_s
    blocks.held_by_HM[channel, batch] = flows.limit_F[channel]
    heappush(events, (now_s + blocks.latency_H[channel], ARRIVED, channel, batch))
    send_next(blocks, flows, events, channel, now_s)
