"""Where searches begin: sets of regions worth using, the tours through them, and machines in the order of a tour."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hulk_placement.cost.closed_form.arrays import Floats, Ints, Setting

Regions = tuple[int, ...]


def edge_seconds(setting: Setting, num_bytes: float) -> Floats:
    """Seconds of a message of so many bytes between the regions of each pair, both ways' latency; (R, R)."""
    with np.errstate(divide="ignore"):
        return setting.latency_RR + setting.latency_RR.T + num_bytes / setting.flow_RR


def grown_sets(setting: Setting, speed_R: Floats, num_bytes: float) -> Iterator[Regions]:
    """From each region, the sets that grow by the region that is best joined: most speed per second of joining.

    Every region alone first, and all regions at last; none twice.
    """
    seconds_RR = edge_seconds(setting, num_bytes)
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


def tours(setting: Setting, regions: Regions, num_bytes: float) -> list[Ints]:
    """Closed walks over all regions, these first: one visits each once, one goes out and back along the best joined.

    The first grows by the region whose worse new edge is least. The second walks round a spanning tree whose worst edge
    is least, so that it uses no link worse than it must ("fold": through a hub it comes back to).
    """
    seconds_RR = edge_seconds(setting, num_bytes)
    everything = (*regions, *(r for r in range(len(seconds_RR)) if r not in regions))
    inserted = np.array(_inserted(seconds_RR, everything))
    if len(regions) < 3:
        return [inserted]
    return [inserted, np.array(_folded(np.maximum(seconds_RR, seconds_RR.T), everything))]


def _inserted(seconds_RR: Floats, regions: Regions) -> list[int]:
    cycle = list(regions[:2])
    for new in regions[2:]:
        places = [
            (max(seconds_RR[here, new], seconds_RR[new, cycle[(k + 1) % len(cycle)]]), k)
            for k, here in enumerate(cycle)
        ]
        cycle.insert(min(places)[1] + 1, new)
    return cycle


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
