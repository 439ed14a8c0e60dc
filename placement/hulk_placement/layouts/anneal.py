"""Simulated annealing over layouts, compiled: moves that matter, each undone unless it is taken.

    swap      two cells change machines                      replace   a worker's cells move to a machine with room
    shift     a layer moves to the next stage                share     a micro-batch, or one sequence, moves
    tour      a visit of the tour moves elsewhere

What is shared moves from replica to replica; of equal shares, what makes them differ.

Half of the moves begin at the replica that ends last. A move that costs more is taken with probability
exp(-(increase / cost) / temperature), the temperature falling geometrically. The number that decides it is drawn first:
a move that is bound to cost more than it lets pass is undone before its pipelines are timed.
"""

from __future__ import annotations

import math

import numpy as np

from hulk_placement.compiled import compiled, inlined
from hulk_placement.cost.closed_form.arrays import Cache, Floats, Ints, Layout, Setting
from hulk_placement.cost.closed_form.evaluate import combine, end_replica, least_cost, weigh_replica

NUM_MOVES = 5
SWAP, REPLACE, SHIFT, SHARE, TOUR = range(NUM_MOVES)

ALL = -1
"""In place of a replica's number."""

UNDONE = -1
"""In place of a stage's number: no move was made."""

NOBODY = -1
"""In place of a machine's number."""


@compiled
def _slowest(cache: Cache, num_replicas: int) -> int:
    worst, worst_s = 0, -1.0
    for r in range(num_replicas):
        if cache.ends_DP[r, 0] > worst_s:
            worst, worst_s = r, cache.ends_DP[r, 0]
    return worst


@compiled
def _is_retimed(setting: Setting, layout: Layout, cache: Cache, a: int, b: int, most: float) -> bool:
    """Time the replicas a move touched, all of them for `ALL`; False, and some are not timed, once it must cost more
    than `most`."""
    if a != ALL:
        return _is_timed(setting, layout, cache, a, most) and (a == b or _is_timed(setting, layout, cache, b, most))
    are_timed = True
    for replica in range(layout.machine_DP.shape[0]):
        are_timed = are_timed and _is_timed(setting, layout, cache, replica, most)
    return are_timed


@compiled
def _is_timed(setting: Setting, layout: Layout, cache: Cache, replica: int, most: float) -> bool:
    """Time one replica; False, and it is not, where the layout is bound to cost more than `most`."""
    chain = weigh_replica(setting, layout, cache, replica)
    if least_cost(setting, layout, cache, replica, chain) > most:
        return False
    end_replica(setting, layout, cache, replica, chain)
    return True


@inlined
def _copy_times(source: tuple[Floats, Floats], target: tuple[Floats, Floats], a: int, b: int) -> None:
    """What is known of the replicas a move touches."""
    for k in range(2):
        if a == ALL:
            target[k][:] = source[k]
        else:
            target[k][a], target[k][b] = source[k][a], source[k][b]


@compiled
def _swap(layout: Layout, a: int, s: int, b: int, t: int) -> None:
    layout.machine_DP[a, s], layout.machine_DP[b, t] = layout.machine_DP[b, t], layout.machine_DP[a, s]


@compiled
def _follow(layout: Layout, a: int, s: int, old: int, num: int) -> None:
    """So many other cells of a worker go from its machine to where this one is now: those that come next."""
    cells = layout.machine_DP.ravel()
    first = a * layout.machine_DP.shape[1] + s
    for k in range(first + 1, first + cells.shape[0]):
        if num > 0 and cells[k % cells.shape[0]] == old:
            cells[k % cells.shape[0]] = cells[first]
            num -= 1


@compiled
def _move_visit(layout: Layout, source: int, target: int) -> None:
    visit = layout.tour_W[source]
    step = 1 if target > source else -1
    for k in range(source, target, step):
        layout.tour_W[k] = layout.tour_W[k + step]
    layout.tour_W[target] = visit


@inlined
def _change(setting: Setting, layout: Layout, free_M: Ints, move: int, a: int, b: int) -> tuple[int, int, int]:
    """Make a move of some kind that begins at replica `a`, and at `b` if it is of two.

    Which two stages, visits, or layers and direction it is of, or how many sequences, and the machine that was there;
    `UNDONE` where there is no such move.
    """
    num_stages, num_visits = layout.machine_DP.shape[1], layout.tour_W.shape[0]
    s, t, old = np.random.randint(num_stages), np.random.randint(num_stages), NOBODY
    if move == SWAP:
        if layout.machine_DP[a, s] == layout.machine_DP[b, t]:
            return UNDONE, 0, 0
        _swap(layout, a, s, b, t)
    elif move == REPLACE:
        machine, old = np.random.randint(free_M.shape[0]), layout.machine_DP[a, s]
        if free_M[machine] < setting.worker_cells or machine == old:
            return UNDONE, 0, 0
        layout.machine_DP[a, s] = machine
        if setting.worker_cells > 1:
            _follow(layout, a, s, old, setting.worker_cells - 1)
    elif move == SHIFT:
        num_replicas = layout.machine_DP.shape[0]
        if num_stages == 1 or np.random.random() > 1.0 / (1.0 + num_replicas / 2.0):
            return UNDONE, 0, 0
        s, t = 1 + np.random.randint(num_stages - 1), 2 * np.random.randint(2) - 1
        if not layout.first_P[s - 1] < layout.first_P[s] + t < layout.first_P[s + 1]:
            return UNDONE, 0, 0
        layout.first_P[s] += t
    elif move == SHARE:
        t = setting.micro_batch
        if setting.is_equal:
            t = layout.shares_D[a] - layout.shares_D[b]
        elif t > 1 and np.random.random() < 0.5:
            t = 1
        if a == b or not 0 < t < layout.shares_D[a]:
            return UNDONE, 0, 0
        layout.shares_D[a] -= t
        layout.shares_D[b] += t
    else:
        s, t = np.random.randint(num_visits), np.random.randint(num_visits)
        if s == t or num_visits < 3:
            return UNDONE, 0, 0
        _move_visit(layout, s, t)
    return s, t, old


@inlined
def _undo(layout: Layout, move: int, a: int, b: int, s: int, t: int, old: int) -> None:
    """Take a move back."""
    if move == SWAP:
        _swap(layout, a, s, b, t)
    elif move == REPLACE:
        layout.machine_DP[a, s] = old
    elif move == SHIFT:
        layout.first_P[s] -= t
    elif move == SHARE:
        layout.shares_D[a] += t
        layout.shares_D[b] -= t
    else:
        _move_visit(layout, t, s)


@inlined
def _copy(layout: Layout, target: Layout) -> None:
    target.machine_DP[:] = layout.machine_DP
    target.first_P[:] = layout.first_P
    target.shares_D[:] = layout.shares_D
    target.tour_W[:] = layout.tour_W


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
    num_replicas, is_stale = layout.machine_DP.shape[0], True
    times = (cache.ends_DP, cache.excess_DP)
    kept = (cache.ends_DP.copy(), cache.excess_DP.copy())
    is_of_several, before_DP = setting.worker_cells > 1, layout.machine_DP.copy()
    for number in range(num_moves):
        temperature = hot * (cold / hot) ** (number / num_moves)
        a = _slowest(cache, num_replicas) if np.random.random() < 0.5 else np.random.randint(num_replicas)
        b, move = np.random.randint(num_replicas), np.random.randint(NUM_MOVES)
        if not allowed[move]:
            continue
        if is_of_several and move == REPLACE:
            before_DP[:] = layout.machine_DP
        s, t, old = _change(setting, layout, free_M, move, a, b)
        if s == UNDONE:
            continue
        is_all = move == SHIFT or (is_of_several and move == REPLACE)
        touched_a, touched_b = (ALL if is_all else a), (a if move == REPLACE else b)
        most, new = cost - cost * temperature * math.log(np.random.random()), math.inf
        if move != TOUR:
            _copy_times(times, kept, touched_a, touched_b)
        is_timed = move == TOUR or _is_retimed(setting, layout, cache, touched_a, touched_b, most)
        if is_timed:
            new = combine(setting, layout, cache, is_stale or move != SHARE)
            is_stale = False
        if new <= cost or new <= most:
            cost = new
            if move == REPLACE:
                free_M[old] += setting.worker_cells
                free_M[layout.machine_DP[a, s]] -= setting.worker_cells
            if cost < best_cost:
                best_cost = cost
                _copy(layout, best)
            continue
        is_stale = is_stale or (is_timed and move != SHARE)
        if is_of_several and move == REPLACE:
            layout.machine_DP[:] = before_DP
        else:
            _undo(layout, move, a, b, s, t, old)
        if move != TOUR:
            _copy_times(kept, times, touched_a, touched_b)
    return cost, best_cost
