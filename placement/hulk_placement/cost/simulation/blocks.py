"""The blocks of every cell in their order, as arrays: what `hulk_native.run_step` computes and sends.

Letters of shapes: C cells (replica x P + stage), I blocks of a cell (2 M), H channels (2 x cell + kind), M
micro-batches (the most of any replica).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk_placement.cost.simulation.schedule import BACKWARD, FORWARD, Schedule
from hulk_placement.cost.simulation.sharing import Bools
from hulk_placement.cost.simulation.step import Step, Way

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Blocks(NamedTuple):
    """What cells compute, and what they have computed: times are infinite until then."""

    num_stages: int
    overlap: bool
    order_CI: Ints
    """2 x micro-batch + kind; -1 behind the last block."""
    seconds_CI: Floats
    bytes_HM: Floats
    is_cold_H: Bools
    """Whether its connections are silent before the step."""
    latency_H: Floats
    rate_H: Floats
    """Bytes a second of a transfer alone."""
    next_C: Ints
    """How many blocks have ended."""
    start_CI: Floats
    end_CI: Floats
    queue_HM: Ints
    """Micro-batches in the order in which they are sent."""
    num_sent_H: Ints
    sending_HM: Floats
    sent_HM: Floats
    arrived_HM: Floats
    """When the first byte leaves, when the last one has, and when that is there."""
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
    never_CI, never_HM = np.full((num_cells, 2 * most), np.inf), np.full((2 * num_cells, most), np.inf)
    return Blocks(
        num_stages=num_stages,
        overlap=step.overlap,
        order_CI=order_CI,
        seconds_CI=seconds_CI,
        bytes_HM=bytes_HM,
        is_cold_H=np.array([way.is_cold for way in channels]),
        latency_H=np.array([way.latency_s for way in channels], np.float64),
        rate_H=np.array([way.bytes_per_s for way in channels], np.float64),
        next_C=np.zeros(num_cells, np.int64),
        start_CI=never_CI.copy(),
        end_CI=never_CI.copy(),
        queue_HM=np.zeros((2 * num_cells, most), np.int64),
        num_sent_H=np.zeros(2 * num_cells, np.int64),
        sending_HM=never_HM.copy(),
        sent_HM=never_HM.copy(),
        arrived_HM=never_HM.copy(),
        held_by_HM=np.full((2 * num_cells, most), -1),
    )
