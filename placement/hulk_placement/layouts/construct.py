"""Layouts made outright, compiled: machines in an order become stages with layers and micro-batches.

The order says what is near: machine after machine, region after region. `rows` cuts it into replicas, so that pipelines
stay within regions and gradients cross between them; `columns` cuts it into stages, so that activations cross and
gradients stay.
"""

from __future__ import annotations

import numpy as np

from hulk_placement.compiled import compiled, inlined
from hulk_placement.cost.closed_form.arrays import Floats, Ints, Layout, Setting
from hulk_placement.cost.closed_form.shares import num_batches_of_all
from hulk_placement.layouts.layer_split import micro_batch_seconds, round_trips, split_layers

HALVINGS = 14
"""Of the seconds in which all micro-batches are computed."""


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
def share_sequences(setting: Setting, layout: Layout) -> None:
    """Share the sequences so that the slowest replica is quickest: each takes fill + micro-batches x period.

    All have whole micro-batches, but for what the last one lacks, which is taken, sequence by sequence, from whoever is
    slowest then. Where shares are to be equal, what does not divide goes to the quickest.
    """
    num_replicas = layout.machine_DP.shape[0]
    fill_D, period_D = np.zeros(num_replicas), np.zeros(num_replicas)
    for r in range(num_replicas):
        ways_s = round_trips(setting, layout.machine_DP[r : r + 1])
        fill_D[r], period_D[r] = _fill_and_period(setting, layout, r, ways_s)
    if setting.is_equal:
        base = setting.global_batch // num_replicas
        layout.shares_D[:] = base
        layout.shares_D[np.argsort(period_D, kind="mergesort")[: setting.global_batch - base * num_replicas]] += 1
        return
    num, size = num_batches_of_all(setting), setting.micro_batch
    num_D = np.ones(num_replicas, np.int64)
    low_s, high_s = 0.0, fill_D.max() + (num + 1) * period_D.max()
    for _ in range(HALVINGS):
        middle_s = (low_s + high_s) / 2.0
        if _take(num_D, fill_D, period_D, middle_s) >= num:
            high_s = middle_s
        else:
            low_s = middle_s
    for _ in range(_take(num_D, fill_D, period_D, high_s) - num):
        num_D[_slowest(num_D, fill_D, period_D)] -= 1
    layout.shares_D[:] = num_D * size
    for _ in range(num * size - setting.global_batch):
        layout.shares_D[_slowest(layout.shares_D, fill_D, period_D / size)] -= 1


@inlined
def _slowest(num_D: Ints, fill_D: Floats, period_D: Floats) -> int:
    """The replica that takes longest, of those with more than one: fill + number x period."""
    slowest, worst_s = -1, -1.0
    for r in range(num_D.shape[0]):
        if num_D[r] > 1 and fill_D[r] + num_D[r] * period_D[r] > worst_s:
            slowest, worst_s = r, fill_D[r] + num_D[r] * period_D[r]
    return slowest


@compiled
def _fill_and_period(setting: Setting, layout: Layout, replica: int, ways: Floats) -> tuple[float, float]:
    """Seconds from micro-batch to micro-batch of one replica, and what the first takes beyond that.

    The period is the longest mean of the windows that `layer_split` knows; 0 of a fill waits for nothing under GPipe.
    """
    machine, num_stages = layout.machine_DP[replica], layout.machine_DP.shape[1]
    met, period_s = np.zeros((2, num_stages)), 0.0
    for s in range(num_stages):
        kind, low, high = setting.kind_M[machine[s]], layout.first_P[s], layout.first_P[s + 1]
        met[0, s] = micro_batch_seconds(setting, kind, low, high)
        met[1, s] = ways[0, s] + ways[1, s] * setting.output_L[high - 1]
    for first in range(num_stages):
        window_s = 0.0
        for last in range(first, num_stages):
            window_s += met[0, last]
            period_s = max(period_s, window_s / (last - first + 1))
            window_s += met[1, last]
    return float(met.sum() - period_s), period_s


@inlined
def _take(num_D: Ints, fill_D: Floats, period_D: Floats, limit_s: float) -> int:
    """Give each replica the micro-batches that it computes within the limit, one at least; how many that is."""
    total = 0
    for r in range(fill_D.shape[0]):
        num_D[r] = max(1, int((limit_s - fill_D[r]) / period_D[r]))
        total += num_D[r]
    return total


@compiled
def construct(setting: Setting, layout: Layout, order_N: Ints, by_rows: bool) -> None:
    """Fill a layout (its shape says replicas and stages) with the machines of an order, best layers and shares."""
    if by_rows:
        place_rows(order_N, layout.machine_DP)
    else:
        place_columns(order_N, layout.machine_DP)
    layout.shares_D[:] = max(1, num_batches_of_all(setting) // layout.machine_DP.shape[0]) * setting.micro_batch
    split_layers(setting, layout)
    share_sequences(setting, layout)
