"""Which layers each stage of a pipeline gets, compiled: the split whose period is shortest.

Under 1F1B a micro-batch goes forward and back over stages a .. b while each computes b - a + 1 micro-batches. So the
period, seconds from micro-batch to micro-batch, is the longest mean of such windows: what a micro-batch meets in
one, computing and transfers forward and back, by the window's number of stages. Beside a slow link stages must compute
less than the period, to leave time for the way. Under GPipe, whose forward passes do not wait for backward ones, only
computing counts.
"""

from __future__ import annotations

import math

import numpy as np

from hulk_placement.compiled import compiled, inlined
from hulk_placement.cost.closed_form.arrays import Floats, Ints, Layout, Setting
from hulk_placement.cost.closed_form.evaluate import memory_bytes
from hulk_placement.cost.closed_form.pipeline import GPIPE
from hulk_placement.cost.closed_form.shares import num_batches
from hulk_placement.cost.closed_form.sync import pair

GROWTH = 1.5
"""From one period that is too short to the next that is tried."""

HALVINGS = 10
"""Of what lies between the last two: half a thousandth of the period is left."""

NEVER = -1.0
"""In place of seconds that are left: there is no such split."""


@compiled
def split_layers(setting: Setting, layout: Layout) -> None:
    """Split the layers so that the period is shortest, by the mean speed and links of each stage's machines.

    Where memory lacks whatever the split, it is split as if there were enough.
    """
    num_layers = setting.output_L.shape[0]
    seconds_PJ, memory_P = _stages(setting, layout.machine_DP)
    ways = round_trips(setting, layout.machine_DP)
    num = num_batches(setting, layout, 0)
    last_PJ = _last_held(setting, memory_P, num)
    if not _is_held(last_PJ):
        last_PJ[:] = num_layers
    low_s, high_s = 0.0, 1.0 / (1.0 / seconds_PJ[:, num_layers]).sum()
    while not _fits(setting, layout, seconds_PJ, last_PJ, ways, high_s) and high_s < math.inf:
        low_s, high_s = high_s, GROWTH * high_s if high_s > 0.0 else seconds_PJ[:, num_layers].max()
    for _ in range(HALVINGS if low_s > 0.0 else 0):
        middle_s = (low_s + high_s) / 2.0
        if _fits(setting, layout, seconds_PJ, last_PJ, ways, middle_s):
            high_s = middle_s
        else:
            low_s = middle_s


@compiled
def _last_held(setting: Setting, memory_P: Floats, num: int) -> Ints:
    """The layer up to which each stage's memory holds those from each first one on, not included; (P, J).

    With one layer less in front it holds as many at least.
    """
    num_stages, num_layers = memory_P.shape[0], setting.output_L.shape[0]
    last_PJ = np.full((num_stages, num_layers + 1), num_layers)
    for s in range(num_stages):
        last = 0
        for first in range(num_layers):
            last = max(last, first)
            while last < num_layers and memory_bytes(setting, first, last + 1, s, num_stages, num) <= memory_P[s]:
                last += 1
            last_PJ[s, first] = last
    return last_PJ


@compiled
def _is_held(last_PJ: Ints) -> bool:
    """Whether the stages hold all layers: each, one after another, as many as it can, one at least."""
    num_stages, num_layers = last_PJ.shape[0], last_PJ.shape[1] - 1
    first = 0
    for s in range(num_stages):
        last = min(last_PJ[s, first], num_layers - (num_stages - 1 - s))
        if last <= first:
            return False
        first = last
    return bool(first == num_layers)


@inlined
def micro_batch_seconds(setting: Setting, kind: int, first: int, last: int) -> float:
    """Seconds that a machine of a kind computes layers first .. last - 1 of one micro-batch, forward and back."""
    forward_s = setting.forward_KJ[kind, last] - setting.forward_KJ[kind, first]
    backward_s = setting.backward_KJ[kind, last] - setting.backward_KJ[kind, first]
    return float(backward_s + (2.0 * forward_s if setting.recompute else forward_s))


@compiled
def _stages(setting: Setting, machine_DP: Ints) -> tuple[Floats, Floats]:
    """Of each stage's machines the mean seconds of the first j layers, (P, J), and the least memory in bytes, (P)."""
    num_replicas, num_stages = machine_DP.shape
    seconds_PJ = np.zeros((num_stages, setting.forward_KJ.shape[1]))
    memory_P, count_K = np.full(num_stages, math.inf), np.zeros(setting.memory_K.shape[0])
    num_forward = 2.0 if setting.recompute else 1.0
    for s in range(num_stages):
        count_K[:] = 0.0
        for r in range(num_replicas):
            count_K[setting.kind_M[machine_DP[r, s]]] += 1.0 / num_replicas
        for kind in range(count_K.shape[0]):
            if count_K[kind] > 0.0:
                memory_P[s] = min(memory_P[s], setting.memory_K[kind])
                seconds_PJ[s] += count_K[kind] * (num_forward * setting.forward_KJ[kind] + setting.backward_KJ[kind])
    return seconds_PJ, memory_P


@compiled
def round_trips(setting: Setting, machine_DP: Ints) -> Floats:
    """Of the way behind each stage, forward and back, the seconds and the seconds a byte, means of replicas; (2, P).

    0 where a stage does not wait for it: under GPipe, and behind the last stage.
    """
    num_replicas, num_stages = machine_DP.shape
    ways = np.zeros((2, num_stages))
    if setting.schedule == GPIPE:
        return ways
    for s in range(num_stages - 1):
        for r in range(num_replicas):
            here, there = machine_DP[r, s], machine_DP[r, s + 1]
            for source, target in ((here, there), (there, here)):
                latency_s, flow = pair(setting, source, target)
                if flow > 0.0:
                    ways[0, s] += latency_s / num_replicas
                    ways[1, s] += 1.0 / flow / num_replicas
    return ways


@compiled
def _fits(
    setting: Setting,
    layout: Layout,
    seconds_PJ: Floats,
    last_PJ: Ints,
    ways: Floats,
    period_s: float,
) -> bool:
    """Whether a split has at most this period and fits the memory (`last_PJ`); then it is the layout's.

    `left_J` is what the worst window that ends before a stage, the way to it included, leaves of the stage's period,
    by the stage's first layer: the most of all splits before. Each stage gets one layer at least.
    """
    num_stages, num_layers = last_PJ.shape[0], last_PJ.shape[1] - 1
    before_PJ = np.zeros((num_stages, num_layers + 1), np.int64)
    left_J, next_J = np.full(num_layers + 1, NEVER), np.full(num_layers + 1, NEVER)
    left_J[0] = period_s
    low, high = 0, 0
    for s in range(num_stages):
        most, way_s, way_s_per_byte = num_layers - (num_stages - 1 - s), ways[0, s], ways[1, s]
        next_J[:] = NEVER
        reached = NEVER
        for first in range(low, high + 1):
            if left_J[first] < 0.0:
                continue
            for last in range(first + 1, min(most, last_PJ[s, first]) + 1):
                over_s = left_J[first] - (seconds_PJ[s, last] - seconds_PJ[s, first])
                if over_s < 0.0:
                    break
                left_s = min(period_s, period_s + over_s - way_s - way_s_per_byte * setting.output_L[last - 1])
                if left_s > next_J[last]:
                    next_J[last], before_PJ[s, last] = left_s, first
                reached = max(reached, last)
        if reached < 0:
            return False
        low, high = _undominated(next_J, s + 1, int(reached))
        left_J, next_J = next_J, left_J
    if left_J[num_layers] < 0.0:
        return False
    layout.first_P[num_stages] = num_layers
    for s in range(num_stages - 1, -1, -1):
        layout.first_P[s] = before_PJ[s, layout.first_P[s + 1]]
    return True


@inlined
def _undominated(left_J: Floats, low: int, high: int) -> tuple[int, int]:
    """Strike out whoever has fewer layers behind it, and no more time left, than another; the ends of the others."""
    most, lowest = NEVER, high
    for j in range(high, low - 1, -1):
        if left_J[j] > most and left_J[j] >= 0.0:
            most, lowest = left_J[j], j
        else:
            left_J[j] = NEVER
    return lowest, high
