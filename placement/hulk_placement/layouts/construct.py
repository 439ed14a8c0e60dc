"""Layouts made outright, compiled: machines in an order become stages with layers and micro-batches.

The order says what is near: machine after machine, region after region. `rows` cuts it into replicas, so that pipelines
stay within regions and gradients cross between them; `columns` cuts it into stages, so that activations cross and
gradients stay.
"""

from __future__ import annotations

import math

import numpy as np

from hulk_placement.compiled import compiled, inlined
from hulk_placement.cost.closed_form.arrays import Floats, Ints, Layout, Setting
from hulk_placement.cost.closed_form.evaluate import memory_bytes

HALVINGS = 14


@compiled
def place_rows(order_N: Ints, machine_DP: Ints) -> None:
    """Replica after replica along the order."""
    num_replicas, num_stages = machine_DP.shape
    for r in range(num_replicas):
        for s in range(num_stages):
            machine_DP[r, s] = order_N[r * num_stages + s]


@compiled
def place_columns(order_N: Ints, machine_DP: Ints) -> None:
    """Stage after stage along the order."""
    num_replicas, num_stages = machine_DP.shape
    for s in range(num_stages):
        for r in range(num_replicas):
            machine_DP[r, s] = order_N[s * num_replicas + r]


@compiled
def _fit(
    setting: Setting, layout: Layout, seconds_PJ: Floats, memory_P: Floats, limit_s: float, num_batches: int
) -> bool:
    """Give each stage the layers that it computes within the limit and has memory for; whether those are all.

    Each stage gets one layer at least and leaves one for each stage behind it. Both figures grow with the layers.
    """
    num_stages, num_layers = memory_P.shape[0], seconds_PJ.shape[1] - 1
    first, fits = 0, True
    for s in range(num_stages):
        layout.first_P[s] = first
        low, high = first + 1, num_layers - (num_stages - 1 - s)
        if s == num_stages - 1:
            low = num_layers
        while low < high:
            middle = (low + high + 1) // 2
            if _holds(setting, seconds_PJ, memory_P, first, middle, s, limit_s, num_batches):
                low = middle
            else:
                high = middle - 1
        fits = fits and _holds(setting, seconds_PJ, memory_P, first, low, s, limit_s, num_batches)
        first = low
    layout.first_P[num_stages] = num_layers
    return fits


@inlined
def _holds(
    setting: Setting,
    seconds_PJ: Floats,
    memory_P: Floats,
    first: int,
    last: int,
    stage: int,
    limit_s: float,
    num_batches: int,
) -> bool:
    """Whether a stage can have layers first .. last - 1."""
    if seconds_PJ[stage, last] - seconds_PJ[stage, first] > limit_s:
        return False
    return bool(memory_bytes(setting, first, last, stage, memory_P.shape[0], num_batches) <= memory_P[stage])


@compiled
def split_layers(setting: Setting, layout: Layout) -> None:
    """Split the layers so that the slowest stage is quickest, by the mean speed of each stage's machines.

    Where memory lacks whatever the split, the stages get equal shares of the time.
    """
    num_replicas, num_stages = layout.machine_DP.shape
    num_layers = setting.output_L.shape[0]
    seconds_PJ, memory_P = np.zeros((num_stages, num_layers + 1)), np.full(num_stages, math.inf)
    count_K = np.zeros(setting.memory_K.shape[0])
    for s in range(num_stages):
        count_K[:] = 0.0
        for r in range(num_replicas):
            count_K[setting.kind_M[layout.machine_DP[r, s]]] += 1.0 / num_replicas
        for kind in range(count_K.shape[0]):
            if count_K[kind] > 0.0:
                memory_P[s] = min(memory_P[s], setting.memory_K[kind])
                seconds_PJ[s] += count_K[kind] * (setting.forward_KJ[kind] + setting.backward_KJ[kind])
    num_batches = max(1, layout.batches_D[0])
    low, high = seconds_PJ[:, num_layers].min() / num_stages, seconds_PJ[:, num_layers].max()
    if not _fit(setting, layout, seconds_PJ, memory_P, high, num_batches):
        memory_P[:] = math.inf
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        if _fit(setting, layout, seconds_PJ, memory_P, middle, num_batches):
            high = middle
        else:
            low = middle
    _fit(setting, layout, seconds_PJ, memory_P, high, num_batches)


@compiled
def share_batches(setting: Setting, layout: Layout, num_batches: int) -> None:
    """Share the micro-batches so that the slowest replica is quickest: each takes fill + number x slowest stage."""
    num_replicas, num_stages = layout.machine_DP.shape
    fill_D, period_D = np.zeros(num_replicas), np.zeros(num_replicas)
    for r in range(num_replicas):
        for s in range(num_stages):
            kind, low, high = setting.kind_M[layout.machine_DP[r, s]], layout.first_P[s], layout.first_P[s + 1]
            seconds = setting.forward_KJ[kind, high] - setting.forward_KJ[kind, low]
            seconds += setting.backward_KJ[kind, high] - setting.backward_KJ[kind, low]
            fill_D[r] += seconds
            period_D[r] = max(period_D[r], seconds)
        fill_D[r] -= period_D[r]
    low_s, high_s = 0.0, fill_D.max() + (num_batches + 1) * period_D.max()
    for _ in range(HALVINGS):
        middle_s = (low_s + high_s) / 2.0
        if _take(layout, fill_D, period_D, middle_s) >= num_batches:
            high_s = middle_s
        else:
            low_s = middle_s
    over = _take(layout, fill_D, period_D, high_s) - num_batches
    while over > 0:
        slowest, worst_s = -1, -1.0
        for r in range(num_replicas):
            if layout.batches_D[r] > 1 and fill_D[r] + layout.batches_D[r] * period_D[r] > worst_s:
                slowest, worst_s = r, fill_D[r] + layout.batches_D[r] * period_D[r]
        layout.batches_D[slowest] -= 1
        over -= 1


@inlined
def _take(layout: Layout, fill_D: Floats, period_D: Floats, limit_s: float) -> int:
    """Give each replica the micro-batches that it computes within the limit, one at least; how many that is."""
    total = 0
    for r in range(fill_D.shape[0]):
        layout.batches_D[r] = max(1, int((limit_s - fill_D[r]) / period_D[r]))
        total += layout.batches_D[r]
    return total


@compiled
def construct(setting: Setting, layout: Layout, order_N: Ints, by_rows: bool, num_batches: int) -> None:
    """Fill a layout (its shape says replicas and stages) with the machines of an order, best layers and shares."""
    if by_rows:
        place_rows(order_N, layout.machine_DP)
    else:
        place_columns(order_N, layout.machine_DP)
    layout.batches_D[:] = max(1, num_batches // layout.machine_DP.shape[0])
    split_layers(setting, layout)
    share_batches(setting, layout, num_batches)
