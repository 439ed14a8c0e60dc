"""How long a pipeline takes: the exact times of one replica's blocks under a schedule's order, alone on its links.

Stage s of P computes a forward pass of each of M micro-batches after stage s - 1's has arrived, and a backward pass
after stage s + 1's has. The order on every stage is the schedule's:

    gpipe   all forward passes, then all backward passes (Huang et al. 2019, arXiv 1811.06965)
    1f1b    P - 1 - s forward passes, then forward and backward in turn, then the backward passes that are left
            (Narayanan et al. 2021, arXiv 2104.04473, figure 4)

A transfer keeps its way over one boundary for `send_s` and arrives `latency_s` after that. With overlap the stage
goes on computing meanwhile; without, it waits until what it sent has arrived. Every block begins as early as that
allows, so the times are those of the longest path in the graph of blocks: a recurrence over micro-batches, no
simulation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hulk_placement.compiled import compiled

GPIPE, ONE_F_ONE_B = 0, 1
SCHEDULES = {"gpipe": GPIPE, "1f1b": ONE_F_ONE_B}

Floats = NDArray[np.float64]

FREE, ARRIVED, LINK, BACK_ARRIVED, BACK_LINK = range(5)
"""Rows of what is known of each stage: when it is free, when the next activation has arrived, when the way to the next
stage is free; when the next gradient has arrived, when the way to the stage before is free."""
NUM_ROWS = 5


@compiled
def _forward(
    s: int, num_stages: int, forward_s: Floats, send_s: Floats, latency_s: Floats, overlap: bool, now: Floats
) -> None:
    """The next forward pass of stage s, and its transfer."""
    start = max(now[FREE, s], now[ARRIVED, s])
    now[FREE, s] = start + forward_s[s]
    if s + 1 < num_stages:
        now[LINK, s] = max(now[FREE, s], now[LINK, s]) + send_s[s]
        now[ARRIVED, s + 1] = now[LINK, s] + latency_s[s]
        if not overlap:
            now[FREE, s] = now[ARRIVED, s + 1]


@compiled
def _backward(s: int, backward_s: Floats, send_s: Floats, latency_s: Floats, overlap: bool, now: Floats) -> float:
    """The next backward pass of stage s, and its transfer; when the pass ends."""
    end = max(now[FREE, s], now[BACK_ARRIVED, s]) + backward_s[s]
    now[FREE, s] = end
    if s > 0:
        now[BACK_LINK, s] = max(end, now[BACK_LINK, s]) + send_s[s - 1]
        now[BACK_ARRIVED, s - 1] = now[BACK_LINK, s] + latency_s[s - 1]
        if not overlap:
            now[FREE, s] = now[BACK_ARRIVED, s - 1]
    return float(end)


@compiled
def pipeline_ends(
    schedule: int,
    num_micro_batches: int,
    forward_s: Floats,
    backward_s: Floats,
    send_s: Floats,
    latency_s: Floats,
    back_send_s: Floats,
    back_latency_s: Floats,
    overlap: bool,
    ends_s: Floats,
    now: Floats,
) -> float:
    """Write when each stage's last backward pass ends to `ends_s` (P), and return the latest of them, in seconds.

    `forward_s`, `backward_s` (P): seconds of one micro-batch's passes. `send_s`, `latency_s` (P - 1 at least): of the
    transfer from stage s to s + 1; `back_send_s`, `back_latency_s`: from s + 1 to s. `now` (5, P at least) is scratch.

    1F1B goes in steps in which all that a block waits for is known: step j computes forward pass j + P - 1 - s on each
    stage s, which waits for step j - 1 of the stage before it, and then backward pass j from the last stage to the
    first.

    >>> two, none = np.array([1.0, 1.0]), np.zeros(2)
    >>> pipeline_ends(ONE_F_ONE_B, 2, two, 2 * two, none, none, none, none, True, np.zeros(2), np.zeros((5, 2)))
    9.0
    """
    num_stages = forward_s.shape[0]
    now[:, :num_stages] = 0.0
    if schedule == GPIPE:
        for _ in range(num_micro_batches):
            for s in range(num_stages):
                _forward(s, num_stages, forward_s, send_s, latency_s, overlap, now)
        for _ in range(num_micro_batches):
            for s in range(num_stages - 1, -1, -1):
                ends_s[s] = _backward(s, backward_s, back_send_s, back_latency_s, overlap, now)
        return float(ends_s[:num_stages].max())
    for j in range(1 - num_stages, num_micro_batches):
        for s in range(num_stages - 1, -1, -1):
            if 0 <= j + num_stages - 1 - s < num_micro_batches:
                _forward(s, num_stages, forward_s, send_s, latency_s, overlap, now)
        if j >= 0:
            for s in range(num_stages - 1, -1, -1):
                ends_s[s] = _backward(s, backward_s, back_send_s, back_latency_s, overlap, now)
    return float(ends_s[:num_stages].max())
