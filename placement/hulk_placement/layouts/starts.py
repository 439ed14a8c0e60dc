"""Where searches begin: sets of regions worth using, the tours through them, and machines in the order of a tour."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hulk_placement.cost.closed_form.arrays import Floats, Ints, Setting
from hulk_placement.cost.closed_form.sync import SOFTWARE_S, ring_cut
from hulk_placement.layouts.cycles import shortest_cycle

Regions = tuple[int, ...]


def edge_seconds(setting: Setting, num_stages: int) -> Floats:
    """About what an edge between each pair of regions takes in the rings of so many equal stages; (R, R).

    A round trip and a segment for each segment that crosses it, so the smaller they are, the more latency counts; or
    what all rings together put on the link.
    """
    num_bytes = float(setting.gradient_J[-1]) / num_stages
    hops, segment = ring_cut(num_bytes, max(2, len(setting.uplink_R)), 1)
    with np.errstate(divide="ignore"):
        alone_s = setting.latency_RR + setting.latency_RR.T + SOFTWARE_S + segment / setting.flow_RR
        return hops * np.maximum(alone_s, 2.0 * segment * num_stages * setting.tensor / setting.capacity_RR)


def grown_sets(setting: Setting, speed_R: Floats) -> Iterator[Regions]:
    """From each region, the sets that grow by the region that is best joined: most speed per second of joining.

    Every region alone first, and all regions at last; none twice.
    """
    seconds_RR = edge_seconds(setting, 1)
    both_RR = np.maximum(seconds_RR, seconds_RR.T)
    seen: set[frozenset[int]] = set()
    for start in sorted(range(len(speed_R)), key=lambda r: -speed_R[r]):
        chosen = [start]
        while True:
            if frozenset(chosen) not in seen:
                seen.add(frozenset(chosen))
                yield tuple(chosen)
            rest = [r for r in range(len(speed_R)) if r not in chosen]
            worth = [(speed_R[r] / both_RR[r, chosen].min(), -r) for r in rest]
            best = max(worth, default=(0.0, 0))
            if best[0] <= 0.0:
                break
            chosen.append(-best[1])


def tours(setting: Setting, regions: Regions, num_stages: int) -> list[Ints]:
    """Closed walks over all regions: one visits each once, one goes out and back along the best joined.

    The first is the cycle over these regions whose worst edge is least; the others lie where they lengthen it least,
    should a search want them. The second walks round a spanning tree whose worst edge is least, so that it uses no link
    worse than it must ("fold": through a hub it comes back to).
    """
    seconds_RR = edge_seconds(setting, num_stages)
    cycle = shortest_cycle(seconds_RR, regions)
    others = [r for r in range(len(seconds_RR)) if r not in regions]
    for new in others:
        after = [*cycle[1:], cycle[0]]
        places = [
            (max(seconds_RR[a, new], seconds_RR[new, b]), k) for k, (a, b) in enumerate(zip(cycle, after, strict=True))
        ]
        cycle.insert(min(places)[1] + 1, new)
    found = [np.array(cycle)]
    if len(regions) > 2:
        found.append(np.array(_folded(np.maximum(seconds_RR, seconds_RR.T), (*regions, *others))))
    return found


def _folded(both_RR: Floats, regions: Regions) -> list[int]:
    children: dict[int, list[int]] = {region: [] for region in regions}
    joined, rest = [regions[0]], list(regions[1:])
    while rest:
        _, parent, new = min((both_RR[a, b], a, b) for a in joined for b in rest)
        children[parent].append(new)
        joined.append(new)
        rest.remove(new)
    walk: list[int] = []

    def visit(region: int) -> None:
        walk.append(region)
        for child in children[region]:
            visit(child)
            walk.append(region)

    visit(regions[0])
    return walk[:-1]


def order_cells(setting: Setting, tour_W: Ints, regions: Regions, least_memory: float = 0.0) -> Ints:
    """The machine of every cell that these regions have room for, in the order of a tour, in each the fastest first.

    Machines with less memory than that are left out.
    """
    visit_R = np.full(len(setting.uplink_R), -1)
    visit_R[list(regions)] = [np.flatnonzero(tour_W == region)[0] for region in regions]
    visit_M, kind_M = visit_R[setting.region_M], setting.kind_M
    order_M = np.lexsort((setting.forward_KJ[kind_M, -1], visit_M))
    used = order_M[(visit_M[order_M] >= 0) & (setting.memory_K[kind_M[order_M]] >= least_memory)]
    return np.repeat(used, setting.slots_M[used])


def aligned(setting: Setting, order_N: Ints, multiple: int) -> Ints:
    """The cells without those that are over where each region has so many, or twice as many, ...; the slowest go."""
    region_N = setting.region_M[order_N]
    _, first_G, group_N = np.unique(region_N, return_index=True, return_inverse=True)
    kept_G = np.bincount(group_N) // multiple * multiple
    return order_N[np.arange(len(order_N)) - first_G[group_N] < kept_G[group_N]]


def most_aligned(setting: Setting, order_N: Ints, num_groups: int) -> int:
    """The most cells that so many groups can have each, no group's cells in two regions; 0 where there is no room."""
    count_G = np.unique(setting.region_M[order_N], return_counts=True)[1]
    low, high = 0, len(order_N) // num_groups
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if (count_G // middle).sum() >= num_groups else (low, middle - 1)
    return low


def speed_by_region(setting: Setting) -> Floats:
    """Micro-batches a second that all cells of each region compute together; (R,)."""
    seconds_K = setting.forward_KJ[:, -1] + setting.backward_KJ[:, -1]
    speed_R = np.zeros(len(setting.uplink_R))
    np.add.at(speed_R, setting.region_M, setting.slots_M / seconds_K[setting.kind_M])
    return speed_R


def memory_levels(setting: Setting, regions: Regions) -> list[float]:
    """The different memories of the machines of these regions, least first; the least stands for any."""
    kinds = np.unique(setting.kind_M[np.isin(setting.region_M, regions)])
    return [0.0, *sorted({float(memory) for memory in setting.memory_K[kinds] if memory < math.inf})[1:]]
