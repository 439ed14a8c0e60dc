"""Simulated annealing over layouts, compiled: moves that matter, each undone unless it is taken.

    swap      two cells change machines                      replace   a cell moves to a machine with room
    shift     a layer moves to the next stage                share     a micro-batch moves to another replica
    tour      a visit of the tour moves elsewhere

Half of the moves begin at the replica that ends last. A move that costs more is taken with probability
exp(-(increase / cost) / temperature), the temperature falling geometrically.
"""

from __future__ import annotations

import math

import numpy as np

from hulk_placement.compiled import compiled
from hulk_placement.cost.closed_form.arrays import Cache, Ints, Layout, Setting
from hulk_placement.cost.closed_form.evaluate import combine, time_replica

NUM_MOVES = 5
SWAP, REPLACE, SHIFT, SHARE, TOUR = range(NUM_MOVES)


@compiled
def _slowest(cache: Cache, num_replicas: int) -> int:
    worst, worst_s = 0, -1.0
    for r in range(num_replicas):
        if cache.ends_DP[r, 0] > worst_s:
            worst, worst_s = r, cache.ends_DP[r, 0]
    return worst


@compiled
def _retime(setting: Setting, layout: Layout, cache: Cache, a: int, b: int) -> None:
    """Time the replicas a move touched; all of them for -1."""
    if a < 0:
        for r in range(layout.machine_DP.shape[0]):
            time_replica(setting, layout, cache, r)
        return
    time_replica(setting, layout, cache, a)
    if b != a:
        time_replica(setting, layout, cache, b)


@compiled
def _swap(layout: Layout, a: int, s: int, b: int, t: int) -> None:
    layout.machine_DP[a, s], layout.machine_DP[b, t] = layout.machine_DP[b, t], layout.machine_DP[a, s]


@compiled
def _move_visit(layout: Layout, source: int, target: int) -> None:
    visit = layout.tour_W[source]
    step = 1 if target > source else -1
    for k in range(source, target, step):
        layout.tour_W[k] = layout.tour_W[k + step]
    layout.tour_W[target] = visit


@compiled
def anneal(
    setting: Setting,
    layout: Layout,
    cache: Cache,
    free_M: Ints,
    best: Layout,
    cost: float,
    best_cost: float,
    num_moves: int,
    hot: float,
    cold: float,
    seed: int,
    allowed: Ints,
) -> tuple[float, float]:
    """Make `num_moves` moves from a layout whose replicas are timed; its cost now, and that of `best`, which is
    updated.

    `free_M`: cells for which each machine has room left. `hot`, `cold`: temperatures at the first and the last move.
    `allowed` (moves): 0 where a move is not made.
    """
    np.random.seed(seed)
    num_replicas, num_stages = layout.machine_DP.shape
    num_machines, num_visits = free_M.shape[0], layout.tour_W.shape[0]
    is_stale = True
    shift_chance = 1.0 / (1.0 + num_replicas / 2.0)
    for number in range(num_moves):
        temperature = hot * (cold / hot) ** (number / num_moves)
        a = _slowest(cache, num_replicas) if np.random.random() < 0.5 else np.random.randint(num_replicas)
        b, s, t = np.random.randint(num_replicas), np.random.randint(num_stages), np.random.randint(num_stages)
        move, old, machine = np.random.randint(NUM_MOVES), 0, 0
        touched_a, touched_b = a, b
        if not allowed[move]:
            continue
        if move == SWAP:
            if layout.machine_DP[a, s] == layout.machine_DP[b, t]:
                continue
            _swap(layout, a, s, b, t)
        elif move == REPLACE:
            machine, old, touched_b = np.random.randint(num_machines), layout.machine_DP[a, s], a
            if free_M[machine] == 0 or machine == old:
                continue
            layout.machine_DP[a, s] = machine
        elif move == SHIFT:
            if num_stages == 1 or np.random.random() > shift_chance:
                continue
            s, t = 1 + np.random.randint(num_stages - 1), 2 * np.random.randint(2) - 1
            if not layout.first_P[s - 1] < layout.first_P[s] + t < layout.first_P[s + 1]:
                continue
            layout.first_P[s] += t
            touched_a = -1
        elif move == SHARE:
            if setting.is_equal or a == b or layout.batches_D[a] == 1:
                continue
            layout.batches_D[a] -= 1
            layout.batches_D[b] += 1
        else:
            if num_visits < 3:
                continue
            s, t = np.random.randint(num_visits), np.random.randint(num_visits)
            if s == t:
                continue
            _move_visit(layout, s, t)
            touched_a = -2
        if touched_a != -2:
            _retime(setting, layout, cache, touched_a, touched_b)
        new = combine(setting, layout, cache, is_stale or move != SHARE)
        is_stale = False
        if new <= cost or np.random.random() < math.exp((cost - new) / (cost * temperature)):
            cost = new
            if move == REPLACE:
                free_M[old] += 1
                free_M[machine] -= 1
            if cost < best_cost:
                best_cost = cost
                best.machine_DP[:] = layout.machine_DP
                best.first_P[:] = layout.first_P
                best.batches_D[:] = layout.batches_D
                best.tour_W[:] = layout.tour_W
            continue
        is_stale = move != SHARE
        if move == SWAP:
            _swap(layout, a, s, b, t)
        elif move == REPLACE:
            layout.machine_DP[a, s] = old
        elif move == SHIFT:
            layout.first_P[s] -= t
        elif move == SHARE:
            layout.batches_D[a] += 1
            layout.batches_D[b] -= 1
        else:
            _move_visit(layout, t, s)
        if touched_a != -2:
            _retime(setting, layout, cache, touched_a, touched_b)
    return cost, best_cost
