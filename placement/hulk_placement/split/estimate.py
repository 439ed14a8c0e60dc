"""What a job's step takes on so many accelerators of each pool, compiled: constructed layouts, priced as any other.

Machines of the pools are laid along a short tour of their regions, cut into stages and replicas of a few shapes, and
each layout is evaluated by the closed form that all searches go by. Nothing is searched; that is what makes it quick.
"""

from __future__ import annotations

import math

import numpy as np

from hulk_placement.compiled import compiled
from hulk_placement.cost.closed_form.arrays import Floats, Ints, Layout, Setting
from hulk_placement.cost.closed_form.evaluate import evaluate, lacking_cells, make_cache, price_per_s
from hulk_placement.cost.closed_form.shares import num_batches_of_all
from hulk_placement.layouts.construct import construct

COLUMNS, ROWS, ALIGNED = 0, 1, 2
"""Ways of cutting cells into stages and replicas; with `ALIGNED` added no row or column is in two regions."""

WAYS = (ROWS, COLUMNS, ALIGNED + ROWS, ALIGNED + COLUMNS)

_room = compiled(make_cache)

IMPOSSIBLE, TOO_FEW = 100.0, 200.0
"""Added to the logarithm where memory, price or a pin forbids the layout; where there are too few cells for any."""


@compiled
def tour_of(both_RR: Floats, weight_R: Floats) -> Ints:
    """Regions with a weight as a closed walk: from the heaviest on the nearest, put where its worse edge is best."""
    num, size = int((weight_R > 0.0).sum()), 0
    tour_W, is_in_R = np.zeros(num, np.int64), np.zeros(weight_R.shape[0], np.bool_)
    while size < num:
        new, near_s = -1, math.inf
        for r in range(weight_R.shape[0]):
            if weight_R[r] > 0.0 and not is_in_R[r]:
                seconds = -weight_R[r] if size == 0 else math.inf
                for k in range(size):
                    seconds = min(seconds, both_RR[r, tour_W[k]])
                if new < 0 or seconds < near_s:
                    new, near_s = r, seconds
        place, worst_s = size, math.inf
        for k in range(size):
            seconds = max(both_RR[tour_W[k], new], both_RR[new, tour_W[(k + 1) % size]])
            if seconds < worst_s:
                place, worst_s = k + 1, seconds
        for k in range(size, place, -1):
            tour_W[k] = tour_W[k - 1]
        tour_W[place], is_in_R[new] = new, True
        size += 1
    return tour_W


@compiled
def cells_of(setting: Setting, counts_P: Ints, usable_P: Ints, first_P: Ints, tour_W: Ints) -> Ints:
    """The machine of every cell, along the tour. Pools of a region lie one after the other, the fastest first."""
    tensor, num = setting.tensor, 0
    order_N = np.zeros(counts_P.sum() // tensor + 1, np.int64)
    for region in tour_W:
        for pool in range(counts_P.shape[0]):
            if setting.region_M[first_P[pool]] != region:
                continue
            left, machine = counts_P[pool], first_P[pool]
            while left > 0:
                for _ in range(min(left, usable_P[pool]) // tensor // setting.worker_cells * setting.worker_cells):
                    order_N[num] = machine
                    num += 1
                left -= usable_P[pool]
                machine += 1
    return order_N[:num]


@compiled
def cells_for(setting: Setting, order_N: Ints, num_stages: int, way: int) -> Ints:
    """The cells that a way of cutting uses: all, or as many of each region as fill its rows or columns."""
    if way < ALIGNED:
        return order_N
    count_R = np.zeros(setting.uplink_R.shape[0], np.int64)
    for machine in order_N:
        count_R[setting.region_M[machine]] += 1
    unit = num_stages
    if way == ALIGNED + COLUMNS:
        unit = max(1, order_N.shape[0] // num_stages)
        while unit > 1 and (count_R // unit).sum() < num_stages:
            unit -= 1
    unit = unit // math.gcd(unit, setting.worker_cells) * setting.worker_cells
    used_R, num, found_N = np.zeros_like(count_R), 0, np.zeros_like(order_N)
    for machine in order_N:
        region = setting.region_M[machine]
        if used_R[region] < count_R[region] // unit * unit:
            used_R[region] += 1
            found_N[num] = machine
            num += 1
    return found_N[:num]


@compiled
def _value(setting: Setting, layout: Layout, order_N: Ints, by_rows: bool) -> float:
    """The logarithm of a constructed layout's cost."""
    construct(setting, layout, order_N, by_rows)
    num_replicas, num_stages = layout.machine_DP.shape
    cache = _room(num_replicas, num_stages, setting.uplink_R.shape[0], setting.kind_M.shape[0])
    cost = evaluate(setting, layout, cache)
    if not cost < math.inf:
        return IMPOSSIBLE + 50.0
    is_possible = cache.excess_DP.sum() <= 0.0 and price_per_s(setting, layout) <= setting.price_limit
    is_possible = is_possible and lacking_cells(setting, layout, cache) == 0
    return math.log(cost) if is_possible else IMPOSSIBLE + math.log(cost)


@compiled
def estimate(
    setting: Setting,
    both_RR: Floats,
    counts_P: Ints,
    usable_P: Ints,
    first_P: Ints,
    shapes_S3: Ints,
    limits: tuple[int, int, int],
    values_S: Floats,
) -> None:
    """The logarithm of the cost of each shape (stages, eighths of the replicas there is room for, way of cutting).

    `limits`: accelerators at least and at most, replicas where they are asked for (else 0).
    """
    least, most, data = limits
    num_batches = num_batches_of_all(setting)
    weight_R = np.zeros(both_RR.shape[0])
    for pool in range(counts_P.shape[0]):
        if usable_P[pool] >= setting.tensor:
            weight_R[setting.region_M[first_P[pool]]] += counts_P[pool]
    tour_W = tour_of(both_RR, weight_R)
    order_N = cells_of(setting, counts_P, usable_P, first_P, tour_W)
    for s in range(shapes_S3.shape[0]):
        stages, eighths, way = shapes_S3[s]
        cells_N = cells_for(setting, order_N, stages, way)
        room = min(cells_N.shape[0] // stages, num_batches, most // (stages * setting.tensor))
        together = setting.worker_cells // math.gcd(setting.worker_cells, stages)
        replicas = data if data > 0 else max(1, room * eighths // 8 // together * together)
        lacking = max(stages * replicas * setting.tensor, least) - cells_N.shape[0] * setting.tensor
        if replicas > room or replicas * stages * setting.tensor < least:
            values_S[s] = TOO_FEW + max(0, lacking) / max(1, least)
            continue
        layout = Layout(
            np.zeros((replicas, stages), np.int64), np.zeros(stages + 1, np.int64), np.ones(replicas, np.int64), tour_W
        )
        values_S[s] = _value(setting, layout, cells_N, way % ALIGNED == ROWS)
