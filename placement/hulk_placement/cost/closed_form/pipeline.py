"""How long a pipeline takes: the exact times of one replica's blocks under a schedule's order, alone on its links.

Stage s of P computes a forward pass of each of M micro-batches after stage s - 1's has arrived, and a backward pass
after stage s + 1's has. The order on every stage is the schedule's:

    gpipe   all forward passes, then all backward passes (Huang et al. 2019, arXiv 1811.06965)
    1f1b    P - 1 - s forward passes, then forward and backward in turn, then the backward passes that are left
            (Narayanan et al. 2021, arXiv 2104.04473, figure 4)

A transfer keeps its way over one boundary for `send_s` and arrives `latency_s` after that; over a way whose connections
were silent it does not leave before their windows have grown (`cost.windows`). With overlap the stage goes on
computing meanwhile; without, it waits until what it sent has arrived. Every block begins as early as that allows, so
the times are those of the longest path in the graph of blocks: of 1F1B's a recurrence over micro-batches, of GPipe's a
formula, or a recurrence where windows must grow; no simulation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk_placement.compiled import compiled, inlined
from hulk_placement.cost.idle import INITIAL_PACKETS
from hulk_placement.cost.windows import opened_s

GPIPE, ONE_F_ONE_B = 0, 1
SCHEDULES = {"gpipe": GPIPE, "1f1b": ONE_F_ONE_B}

Floats = NDArray[np.float64]

ALIKE = 1e-13
"""Of the time passed: how far two steps may be from alike, for rounding."""

NUM_ROWS = 5
"""What is known of each stage while it is timed: when it is free, when its next activation has arrived, when the way to
the next stage is free, when its next gradient has arrived, when the way to the stage before is free."""

THERE, BACK = 2 * NUM_ROWS, 2 * NUM_ROWS + 3
"""The rows, behind those and a copy of them, of the windows of a stage's way to the next stage and to the one before:
packets that have been sent, packets that may have left by now, and when more may."""

NUM_SCRATCH = BACK + 3


class Chain(NamedTuple):
    """The stages of one replica and the ways between them, for one micro-batch.

    Seconds of the passes (P); of the transfer from stage s to s + 1 how long it keeps its way, its latency, and its
    packets on each connection, 0 where windows are open (P - 1 at least); the same from s + 1 to s.
    """

    forward_s: Floats
    backward_s: Floats
    send_s: Floats
    latency_s: Floats
    packets: Floats
    back_send_s: Floats
    back_latency_s: Floats
    back_packets: Floats


@inlined
def _left(now: Floats, row: int, s: int, packets: float, trip_s: float, begin_s: float, end_s: float) -> float:
    """When a transfer has left that begins at `begin_s` and would have at `end_s` if all windows were open."""
    return max(end_s, opened_s(now[row], now[row + 1], now[row + 2], s, packets, trip_s, begin_s))


@compiled
def _forward(low: int, high: int, chain: Chain, overlap: bool, now: Floats) -> None:
    """The next forward pass of stages high .. low, and its transfer; each waits for the one before, a call ago."""
    free, arrived, link = now[0], now[1], now[2]
    for s in range(high, low - 1, -1):
        end = max(free[s], arrived[s]) + chain.forward_s[s]
        if s + 1 < chain.forward_s.shape[0]:
            begin_s, trip_s = max(end, link[s]), chain.latency_s[s] + chain.back_latency_s[s]
            link[s] = _left(now, THERE, s, chain.packets[s], trip_s, begin_s, begin_s + chain.send_s[s])
            arrived[s + 1] = link[s] + chain.latency_s[s]
            if not overlap:
                end = arrived[s + 1]
        free[s] = end


@compiled
def _backward(chain: Chain, overlap: bool, ends_s: Floats, now: Floats) -> None:
    """The next backward pass of all stages, from the last to the first, and its transfer."""
    free, arrived, link = now[0], now[3], now[4]
    for s in range(chain.backward_s.shape[0] - 1, -1, -1):
        end = max(free[s], arrived[s]) + chain.backward_s[s]
        ends_s[s] = end
        if s > 0:
            begin_s, trip_s = max(end, link[s]), chain.latency_s[s - 1] + chain.back_latency_s[s - 1]
            left_s = begin_s + chain.back_send_s[s - 1]
            link[s] = _left(now, BACK, s, chain.back_packets[s - 1], trip_s, begin_s, left_s)
            arrived[s - 1] = link[s] + chain.back_latency_s[s - 1]
            if not overlap:
                end = arrived[s - 1]
        free[s] = end


@compiled
def _chain_ends(
    begin_s: float,
    num: int,
    is_back: bool,
    block_s: Floats,
    send_s: Floats,
    latency_s: Floats,
    overlap: bool,
    ends_s: Floats,
) -> None:
    """Write when each stage's last of `num` equal passes ends that wait only for the stage before, or, back, behind it.

    The first stage begins at `begin_s`. A flow shop of equal jobs: the last one meets every stage and way once, and has
    waited for all others at the slowest so far (Johnson 1954).
    """
    last = block_s.shape[0] - 1
    passed_s, slowest_s = begin_s, 0.0
    for k in range(last + 1):
        s, way = (last - k, last - k - 1) if is_back else (k, k)
        sent_s, alone_s = (send_s[way], latency_s[way]) if k < last else (0.0, 0.0)
        slowest_s = max(slowest_s, block_s[s] if overlap else block_s[s] + sent_s + alone_s)
        ends_s[s] = passed_s + block_s[s] + ((num - 1) * slowest_s if num > 1 else 0.0)
        passed_s += block_s[s] + sent_s + alone_s
        slowest_s = max(slowest_s, sent_s)


@compiled
def pipeline_ends(
    schedule: int, num_micro_batches: int, chain: Chain, overlap: bool, ends_s: Floats, now: Floats
) -> float:
    """Write when each stage's last backward pass ends to `ends_s` (P), and return the latest of them, in seconds.

    `now` (NUM_SCRATCH, P at least) is scratch.

    >>> two, none = np.array([1.0, 1.0]), np.zeros(2)
    >>> chain = Chain(two, 2 * two, none, none, none, none, none, none)
    >>> pipeline_ends(ONE_F_ONE_B, 2, chain, True, np.zeros(2), np.zeros((NUM_SCRATCH, 2)))
    9.0
    """
    last, num = chain.forward_s.shape[0] - 1, num_micro_batches
    if schedule == ONE_F_ONE_B:
        _one_f_one_b_ends(num, chain, overlap, ends_s, now)
    elif _must_grow(num, chain):
        _gpipe_ends(num, chain, overlap, ends_s, now)
    else:
        _chain_ends(0.0, num, False, chain.forward_s, chain.send_s, chain.latency_s, overlap, ends_s)
        back_s = (chain.backward_s, chain.back_send_s, chain.back_latency_s)
        _chain_ends(ends_s[last], num, True, back_s[0], back_s[1], back_s[2], overlap, ends_s)
    return float(ends_s[: last + 1].max())


@compiled
def least_s(schedule: int, num_micro_batches: int, chain: Chain) -> float:
    """Seconds that no pipeline of these stages ends before, however cold its windows; said sooner than its end.

    The first micro-batch meets every stage and way, there and back. Then, under GPipe, the others follow it at the
    slowest stage or way, there and back. Under 1F1B a turn goes from a backward pass of stage a through stages a .. b
    and back, while each computes b - a + 1 micro-batches, until all have gone forward; what is left at stage a are
    backward passes.
    """
    last, whole_s = chain.forward_s.shape[0] - 1, 0.0
    for s in range(last + 1):
        whole_s += chain.forward_s[s] + chain.backward_s[s] + _way_s(chain, s, last)
    if schedule == GPIPE:
        return float(whole_s + (num_micro_batches - 1) * _slowest_s(chain, last))
    most_s = 0.0
    for a in range(last + 1):
        turn_s = 0.0
        for b in range(a, last + 1):
            turn_s += chain.forward_s[b] + chain.backward_s[b]
            num_turns = max(0, num_micro_batches - 1 - last + b) // (b - a + 1)
            left = num_micro_batches - 1 - num_turns * (b - a + 1)
            most_s = max(most_s, num_turns * turn_s + left * chain.backward_s[a])
            turn_s += _way_s(chain, b, last)
    return float(whole_s + most_s)


@inlined
def _way_s(chain: Chain, s: int, last: int) -> float:
    """Seconds that one micro-batch is on the way behind a stage, there and back."""
    if s == last:
        return 0.0
    return float(chain.send_s[s] + chain.latency_s[s] + chain.back_send_s[s] + chain.back_latency_s[s])


@inlined
def _slowest_s(chain: Chain, last: int) -> float:
    """Seconds from micro-batch to micro-batch at the slowest stage or way forward, and at the slowest one back."""
    there_s, back_s = chain.forward_s.max(), chain.backward_s.max()
    for s in range(last):
        there_s, back_s = max(there_s, chain.send_s[s]), max(back_s, chain.back_send_s[s])
    return float(there_s + back_s)


@inlined
def _must_grow(num: int, chain: Chain) -> bool:
    """Whether so many micro-batches are more than the windows of silent connections let through at once."""
    for s in range(chain.forward_s.shape[0] - 1):
        if num * max(chain.packets[s], chain.back_packets[s]) > INITIAL_PACKETS:
            return True
    return False


@inlined
def _gpipe_ends(num: int, chain: Chain, overlap: bool, ends_s: Floats, now: Floats) -> None:
    """In step j each stage s computes forward pass j - s; then all backward passes follow, one after the other."""
    last = chain.forward_s.shape[0] - 1
    now[:, : last + 1] = 0.0
    for j in range(num + last):
        _forward(max(0, j + 1 - num), min(last, j), chain, overlap, now)
    for _ in range(num):
        _backward(chain, overlap, ends_s, now)


@inlined
def _one_f_one_b_ends(num: int, chain: Chain, overlap: bool, ends_s: Floats, now: Floats) -> None:
    """Steps in which all that a block waits for is known: step j computes forward pass j + P - 1 - s on each stage s,
    which waits for step j - 1 of the stage before it, then backward pass j from the last stage to the first.

    Once all stages are as they were some steps ago, only later, what lies between is repeated without being computed;
    the earlier step they are compared with is the 1st, the 2nd, the 4th, ... (Brent 1980).
    """
    last = chain.forward_s.shape[0] - 1
    now[:, : last + 1] = 0.0
    j, since, until, num_alike = -last, 0, 1, num - max(1, last)  # the last steps write the ends
    while j < num:
        low, high = max(0, j + 1 + last - num), min(last, j + last)
        _forward(low, high, chain, overlap, now)
        if j >= 0:
            _backward(chain, overlap, ends_s, now)
        j += 1
        if 0 < j < num_alike:
            passed_s = _later(now, last) if j > 1 else 0.0
            if passed_s > 0.0 and _are_open(now, chain, passed_s / (j - since)):
                repeats = (num_alike - j) // (j - since)
                now[:NUM_ROWS, : last + 1] += repeats * passed_s
                j, num_alike = j + repeats * (j - since), 0
            elif j == until:
                now[NUM_ROWS:THERE, : last + 1] = now[:NUM_ROWS, : last + 1]
                since, until = j, 2 * j


@inlined
def _are_open(now: Floats, chain: Chain, pace_s: float) -> bool:
    """Whether no window holds back what follows, at one micro-batch in `pace_s`.

    From then on as much again as has been sent takes a round trip at least, after which it may be twice as much.
    """
    for s in range(chain.forward_s.shape[0] - 1):
        trip_s = chain.latency_s[s] + chain.back_latency_s[s]
        for row, link, at, packets in ((THERE, 2, s, chain.packets[s]), (BACK, 4, s + 1, chain.back_packets[s])):
            if packets > 0.0:
                is_slow = now[row, at] * pace_s < packets * trip_s
                if is_slow or now[row + 2, at] + trip_s > now[link, at]:
                    return False
    return True


@inlined
def _later(now: Floats, last: int) -> float:
    """Seconds by which all that is known of the stages is later than what was kept of an earlier step; 0 if not alike.

    Then the steps go round: what follows is the same again, so much later. What no stage waits for does not matter.
    """
    passed_s = now[0, 0] - now[NUM_ROWS, 0]
    slack_s = ALIKE * now[0, 0]
    for s in range(last + 1):
        for row in range(NUM_ROWS):
            if (row in (1, 4) and s == 0) or (row in (2, 3) and s == last):
                continue
            if abs(now[row, s] - now[NUM_ROWS + row, s] - passed_s) > slack_s:
                return 0.0
    return float(passed_s)
