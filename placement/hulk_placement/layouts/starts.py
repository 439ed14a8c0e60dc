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
        alone_s = setting.round_trip_RR + SOFTWARE_S + segment / setting.flow_RR
        return hops * np.maximum(alone_s, 2.0 * segment * num_stages * setting.tensor / setting.capacity_RR)


def grown_sets(setting: Setting, speed_R: Floats) -> Iterator[Regions]:
    """From each region, the sets that grow by the region that is best joined: most speed per second of joining.

    Every region alone first, and all regions at last; none twice.
    """
    seconds_RR = edge_seconds(setting, 1)
    both_RR = np.maximum(seconds_RR, seconds_RR.T)
    seen: set[frozenset[int]] = set()
    for start in sorted(range(len(speed_R)), key=lambda r: -speed_R[r]):
        chosen, near_R = [start], both_RR[:, start].copy()
        while True:
            if frozenset(chosen) not in seen:
                seen.add(frozenset(chosen))
                yield tuple(chosen)
            worth_R = speed_R / near_R
            worth_R[chosen] = 0.0
            best = int(worth_R.argmax())
            if worth_R[best] <= 0.0:
                break
            chosen.append(best)
            near_R = np.minimum(near_R, both_RR[:, best])


def tours(setting: Setting, regions: Regions, num_stages: int) -> list[Ints]:
    """The closed walks over all regions where searches of a tour begin."""
    seconds_RR = edge_seconds(setting, num_stages)
    walks = [cycle(seconds_RR, regions)]
    return [*walks, folded(seconds_RR, regions)] if len(regions) > 2 else walks


def cycle(seconds_RR: Floats, regions: Regions) -> Ints:
    """The closed walk that visits these regions once each whose worst edge, of those seconds, is least.

    The others lie where they lengthen it least, should a search want them.
    """
    walk = shortest_cycle(seconds_RR, regions)
    for new in _others(seconds_RR, regions):
        after = [*walk[1:], walk[0]]
        worst_W = np.maximum(seconds_RR[walk, new], seconds_RR[new, after])
        walk.insert(int(worst_W.argmin()) + 1, new)
    return np.array(walk)


def folded(seconds_RR: Floats, regions: Regions) -> Ints:
    """A walk round a spanning tree (Prim's) whose worst edge is least, so that it uses no link worse than it must.

    Through a hub it comes back to. The other regions are joined last.
    """
    both_RR = np.maximum(seconds_RR, seconds_RR.T)
    children: dict[int, list[int]] = {region: [] for region in (*regions, *_others(seconds_RR, regions))}
    near_R, parent_R = both_RR[regions[0]].copy(), np.full(len(both_RR), regions[0])
    for group in (regions[1:], _others(seconds_RR, regions)):
        rest = sorted(group)
        while rest:
            new = rest.pop(int(near_R[rest].argmin()))
            children[int(parent_R[new])].append(new)
            is_nearer_R = both_RR[new] < near_R
            near_R[is_nearer_R], parent_R[is_nearer_R] = both_RR[new][is_nearer_R], new
    walk: list[int] = []

    def visit(region: int) -> None:
        walk.append(region)
        for child in children[region]:
            visit(child)
            walk.append(region)

    visit(regions[0])
    return np.array(walk[:-1])


def _others(seconds_RR: Floats, regions: Regions) -> list[int]:
    return [region for region in range(len(seconds_RR)) if region not in regions]


def order_cells(
    setting: Setting, tour_W: Ints, regions: Regions, least_memory: float = 0.0, *, is_dealt: bool = False
) -> Ints:
    """The machine of every cell that these regions have room for, in the order of a tour, in each by `merit`.

    Machines with less memory than that are left out. `is_dealt`: equally fast machines of a region take turns, a worker
    or cell each; else all cells of a machine follow each other.
    """
    rank_K = merit(setting)
    visit_R = np.full(len(setting.uplink_R), -1)
    visit_R[tour_W[::-1]] = np.arange(len(tour_W))[::-1]  # the first visit of each region
    visit_R[[region for region in range(len(visit_R)) if region not in regions]] = -1
    visit_M, kind_M = visit_R[setting.region_M], setting.kind_M
    order_M = np.lexsort((rank_K[kind_M], visit_M))
    used = order_M[(visit_M[order_M] >= 0) & (setting.memory_K[kind_M[order_M]] >= least_memory)]
    order_N = np.repeat(used, setting.slots_M[used])
    if not is_dealt:
        return order_N
    slots_U = setting.slots_M[used]
    turn_N = np.arange(len(order_N)) - np.repeat(np.cumsum(slots_U) - slots_U, slots_U)
    turn_N //= setting.worker_cells
    return order_N[np.lexsort((turn_N, rank_K[kind_M[order_N]], visit_M[order_N]))]


def merit(setting: Setting) -> Floats:
    """By what machines of a region are taken, the least first: seconds, below a price limit what these cost; (K,)."""
    seconds_K = setting.forward_KJ[:, -1]
    return seconds_K if setting.price_limit == math.inf else seconds_K * setting.price_K


def is_mixed(setting: Setting, regions: Regions) -> bool:
    """Whether the machines of these regions are not all as fast."""
    seconds = setting.forward_KJ[setting.kind_M[np.isin(setting.region_M, regions)], -1]
    return bool((seconds != seconds[0]).any())


def fastest(setting: Setting, order_N: Ints, num: int) -> Ints:
    """So many of the cells in the order they have, without the slowest; of equal ones the first."""
    ranked_N = np.argsort(setting.forward_KJ[setting.kind_M[order_N], -1], kind="stable")
    return order_N[np.sort(ranked_N[:num])]


def affordable(setting: Setting, order_N: Ints, least: int = 0, *, is_fast: bool = False) -> Ints:
    """Of the cells in the order they have the first, or the fastest, as many as a price limit allows: their numbers.

    `least`: so many at any price.
    """
    if setting.price_limit == math.inf:
        return np.arange(len(order_N))
    seconds_N = setting.forward_KJ[setting.kind_M[order_N], -1]
    ranked_N = np.argsort(seconds_N, kind="stable") if is_fast else np.arange(len(order_N))
    price_N = setting.price_K[setting.kind_M[order_N[ranked_N]]]
    num = int(np.searchsorted(np.cumsum(price_N), setting.price_limit, side="right"))
    return np.sort(ranked_N[: max(num, least)])


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
