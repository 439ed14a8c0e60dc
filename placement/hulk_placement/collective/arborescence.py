"""The cheapest tree out of a root along directed links (Chu and Liu 1965; Edmonds 1967)."""

from __future__ import annotations

import numpy as np

from hulk_placement.collective.network import Floats, Ints


def cheapest_arborescence(weight: Floats, root: int) -> Ints | None:
    """The parent of every node (the root is its own) in the cheapest tree that `weight[parent, child]` allows.

    None where the root does not reach all. Each node takes its cheapest parent; a cycle among those becomes one node,
    into which an arc costs what it saves of the arc it replaces; repeated until there is no cycle.

    >>> inf = np.inf
    >>> cheapest_arborescence(np.array([[inf, 5, 9], [inf, inf, 1], [inf, 1, inf]]), 0)
    array([0, 0, 1])
    """
    num = len(weight)
    cost = weight.copy()
    np.fill_diagonal(cost, np.inf)
    cost[:, root] = np.inf
    parent: Ints = cost.argmin(axis=0)
    parent[root] = root
    if num > 1 and not np.isfinite(np.delete(cost[parent, np.arange(num)], root)).all():
        return None
    cycle = _cycle(parent, root)
    if not cycle:
        return parent
    return _through(cost, parent, cycle, root)


def _cycle(parent: Ints, root: int) -> list[int]:
    """Nodes of a cycle of parents; none: it is a tree."""
    seen = np.full(len(parent), -1)
    for start in range(len(parent)):
        here = start
        while seen[here] < 0 and here != root:
            seen[here] = start
            here = int(parent[here])
        if here != root and seen[here] == start:
            cycle = [here]
            while parent[cycle[-1]] != here:
                cycle.append(int(parent[cycle[-1]]))
            return cycle
    return []


def _through(cost: Floats, parent: Ints, cycle: list[int], root: int) -> Ints | None:
    """The cheapest tree, by that of the graph in which the cycle is one node (the last)."""
    rest = np.setdiff1d(np.arange(len(cost)), cycle)
    inside = np.array(cycle)
    saved = cost[np.ix_(rest, inside)] - cost[parent[inside], inside]
    small = np.full((len(rest) + 1, len(rest) + 1), np.inf)
    small[:-1, :-1] = cost[np.ix_(rest, rest)]
    small[:-1, -1] = saved.min(axis=1)
    small[-1, :-1] = cost[np.ix_(inside, rest)].min(axis=0)
    found = cheapest_arborescence(small, int(np.searchsorted(rest, root)))
    if found is None:
        return None
    result = parent.copy()
    for place, node in enumerate(rest):
        above = found[place]
        result[node] = inside[cost[inside, node].argmin()] if above == len(rest) else rest[above]
    result[root] = root
    entry = rest[found[-1]]
    broken = inside[saved[found[-1]].argmin()]
    result[broken] = entry
    return result
