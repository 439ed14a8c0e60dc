"""How long the replicas' all-reduces take, compiled: of all stages at the same time, by transport.

By stage only the number of cells in each region counts: the machines of a region are alike to a ring, and the walk over
regions is the layout's tour. The plan that is chosen in the end gets rings over machines, and flows for Hulk's own.
"""

from __future__ import annotations

import math

from hulk_placement.compiled import compiled, inlined
from hulk_placement.cost.closed_form.arrays import Cache, Floats, Layout, Setting
from hulk_placement.cost.closed_form.shares import filled

MAX_SEGMENT_BYTES = float(1 << 20)
SOFTWARE_S = 0.0012

GLOO, WAN = 1, 2
"""Bits of `Setting.transports`."""

SEVERAL = -1
"""In place of a machine's number: the cells are on several."""

NONE = -1
"""In place of a number: there is none."""

OUT, INTO, CROSSING = range(3)
"""Rows of `Cache.region_3R`: of a region's links or uplink, out, in, and both."""

WAN_OVER_BOUND = 1.08
"""What Hulk's own all-reduce takes over its bound, measured on a quiet machine: docs/benchmarks/all-reduce.md."""


@inlined
def sync_seconds(setting: Setting, layout: Layout, cache: Cache) -> None:
    """Seconds of each stage's all-reduce into `sync_P`, by whichever way makes the slowest of them quickest.

    gloo's rings in one bucket or in two, those of several stages in one, or Hulk's own, as far as they may be used.
    Hulk's own is for replicas that are apart, in several regions, and have neither stages nor tensor parallelism.
    Infinite where there is no way.
    """
    num_replicas, num_stages = layout.machine_DP.shape
    if num_replicas == 1:
        cache.sync_P[:num_stages] = 0.0
        return
    _count(setting, layout, cache)
    _share(setting, layout, cache)
    is_apart = _is_apart(setting, layout, cache)
    quickest_s, chosen_P = math.inf, cache.one_P
    if setting.transports & GLOO or not is_apart:
        quickest_s = _rings(setting, layout, cache, 1, cache.one_P)
        two_s = _rings(setting, layout, cache, 2, cache.two_P) if num_stages == 1 else math.inf
        if two_s < quickest_s:
            quickest_s, chosen_P = two_s, cache.two_P
    if setting.transports & WAN and is_apart and num_stages == 1 and setting.tensor == 1:
        wan_s = _wan(setting, layout, cache)
        if wan_s < quickest_s:
            quickest_s, chosen_P = wan_s, cache.wan_P
    for s in range(num_stages):
        cache.sync_P[s] = chosen_P[s] if quickest_s < math.inf else math.inf


@inlined
def _is_apart(setting: Setting, layout: Layout, cache: Cache) -> bool:
    """Whether some stage has replicas in several regions."""
    num_replicas, num_stages = layout.machine_DP.shape
    num_apart = 0
    for s in range(num_stages):
        num_apart += cache.count_PR[s, setting.region_M[layout.machine_DP[0, s]]] < num_replicas
    return num_apart > 0


@inlined
def _count(setting: Setting, layout: Layout, cache: Cache) -> None:
    """Cells of every stage in every region, the one machine they are on, and one that has several of them."""
    num_replicas, num_stages = layout.machine_DP.shape
    cache.count_PR[:num_stages] = 0
    cache.twin_PR[:num_stages] = NONE
    cache.seen_M[:] = NONE
    for s in range(num_stages):
        for r in range(num_replicas):
            machine = layout.machine_DP[r, s]
            region = setting.region_M[machine]
            if cache.count_PR[s, region] == 0:
                cache.only_PR[s, region] = machine
            elif cache.only_PR[s, region] != machine:
                cache.only_PR[s, region] = SEVERAL
            cache.count_PR[s, region] += 1
            if cache.seen_M[machine] == s:
                cache.twin_PR[s, region] = machine
            cache.seen_M[machine] = s


@inlined
def _share(setting: Setting, layout: Layout, cache: Cache) -> None:
    """What the rings of all stages put on a pair of machines in a region, over what one ring does, into `sharing_PR`.

    At most: of the stage's machines there the one that brings the second most bytes stands for the busiest pair.
    """
    num_replicas, num_stages = layout.machine_DP.shape
    cache.sharing_PR[:num_stages] = 1.0
    if num_stages == 1:
        return
    cache.load_M[:] = 0.0
    for is_load in (True, False):
        cache.seen_M[:] = NONE
        for s in range(num_stages):
            own = gradient_bytes(setting, layout, s)
            cache.region_3R[:2] = 0.0
            for r in range(num_replicas):
                machine = layout.machine_DP[r, s]
                region = setting.region_M[machine]
                if cache.seen_M[machine] == s or cache.only_PR[s, region] != SEVERAL or own <= 0.0:
                    continue
                cache.seen_M[machine] = s
                if is_load:
                    cache.load_M[machine] += own
                    continue
                load, most = cache.load_M[machine], cache.region_3R[0, region]
                cache.region_3R[0, region] = max(most, load)
                cache.region_3R[1, region] = max(cache.region_3R[1, region], min(most, load))
                cache.sharing_PR[s, region] = max(1.0, cache.region_3R[1, region] / own)


@inlined
def gradient_bytes(setting: Setting, layout: Layout, stage: int) -> float:
    """Bytes that one rank of a stage brings to the all-reduce: also of what it has once more of an earlier stage."""
    first, last = layout.first_P[stage], layout.first_P[stage + 1]
    return float(held_bytes(setting, setting.gradient_J, setting.tied_gradient_T, first, last))


@inlined
def held_bytes(setting: Setting, layers_J: Floats, tied_T: Floats, first: int, last: int) -> float:
    """Bytes that a stage of layers first .. last - 1 has of its layers, and of earlier stages' that these use."""
    num_bytes = layers_J[last] - layers_J[first]
    for k in range(setting.ties_T2.shape[0]):
        if holds_tie(setting, first, last, k):
            num_bytes += tied_T[k]
    return float(num_bytes)


@inlined
def _inside(setting: Setting, cache: Cache, stage: int, region: int) -> tuple[float, float]:
    """Latency and rate between a stage's cells in one region: of one machine where all of them are on it."""
    only = cache.only_PR[stage, region]
    if only == SEVERAL:
        return setting.latency_RR[region, region], setting.flow_RR[region, region]
    kind = setting.kind_M[only]
    return setting.inside_latency_K[kind], setting.inside_flow_K[kind]


@inlined
def ring_cut(num_bytes: float, num_ranks: int, num_buckets: int) -> tuple[int, float]:
    """As `cost.gloo.cut_ring`: segments that cross every edge in each half, and the bytes of one."""
    bucket = math.ceil(num_bytes / num_buckets)
    segments = max(math.ceil(bucket / MAX_SEGMENT_BYTES), 2 * num_ranks)
    per_rank = math.ceil(segments / num_ranks)
    return (num_ranks - 1) * per_rank, bucket / (per_rank * num_ranks)


@inlined
def edge_seconds(hops: int, segment: float, num_buckets: int, way_s: float, flow: float, full_s: float) -> float:
    """As `cost.gloo.Ring.edge_s`, there and back in `way_s`.

    All that shares the edge's link keeps it busy for `full_s` in each half.
    """
    if flow <= 0.0:
        return math.inf
    round_trip_s, segment_s = way_s + SOFTWARE_S, segment / flow
    waiting_s = hops // 2 * (round_trip_s + segment_s) + num_buckets * segment_s
    if hops % 2:
        waiting_s += round_trip_s
    full_s = max(full_s, hops * num_buckets * segment_s)
    turning_s = max(0.0, round_trip_s - 2.0 * (num_buckets - 1) * full_s / (hops * num_buckets))
    return max(2.0 * waiting_s, 2.0 * full_s + round_trip_s + turning_s)


@inlined
def walk_tour(layout: Layout, cache: Cache, stage: int) -> int:
    """The tour's visits that the stage has cells for, into `walk_W`; how many."""
    num = 0
    for region in layout.tour_W:
        earlier = 0
        for k in range(num):
            earlier += cache.walk_W[k] == region
        if cache.count_PR[stage, region] > earlier and (num == 0 or cache.walk_W[num - 1] != region):
            cache.walk_W[num] = region
            num += 1
    return num - 1 if num > 1 and cache.walk_W[num - 1] == cache.walk_W[0] else num


@inlined
def _edge(
    is_exchange: bool, hops: int, segment: float, num_buckets: int, way_s: float, flow: float, full_s: float
) -> float:
    """As `edge_seconds`, or, of an exchange, half of `way_s` and as long as its bytes take."""
    if not is_exchange:
        return float(edge_seconds(hops, segment, num_buckets, way_s, flow, full_s))
    sent_s = max(hops * segment * num_buckets / flow, full_s) if flow > 0.0 else math.inf
    return 0.5 * (way_s + SOFTWARE_S) + 2.0 * sent_s


@inlined
def _way(setting: Setting, is_exchange: bool, source: int, target: int) -> float:
    """Seconds there and back between two regions; what is exchanged goes there alone."""
    return float(2.0 * setting.latency_RR[source, target] if is_exchange else setting.round_trip_RR[source, target])


@compiled
def _rings(setting: Setting, layout: Layout, cache: Cache, buckets: int, ring_P: Floats) -> float:
    """Seconds of the slowest of gloo's rings in so many buckets, all at the same time, and of each into `ring_P`.

    First what they put on links and uplinks, then the slowest edge of each, which waits for what it crosses itself. Two
    replicas of stages send each other what they have.
    """
    num_replicas, num_stages = layout.machine_DP.shape
    is_exchange = num_replicas == 2 and num_stages > 1
    cache.load_RR[:] = 0.0
    for s in range(num_stages):
        hops, segment = ring_cut(gradient_bytes(setting, layout, s), num_replicas, buckets)
        num = walk_tour(layout, cache, s)
        for k in range(num if num > 1 else 0):
            cache.load_RR[cache.walk_W[k], cache.walk_W[(k + 1) % num]] += hops * segment * buckets * setting.tensor
    _time_uplinks(setting, cache)
    slowest_s = 0.0
    for s in range(num_stages):
        hops, segment = ring_cut(gradient_bytes(setting, layout, s), num_replicas, buckets)
        num = walk_tour(layout, cache, s)
        worst_s = 0.0
        for k in range(num):
            a, b = cache.walk_W[k], cache.walk_W[(k + 1) % num]
            if num > 1:
                way_s, flow = _way(setting, is_exchange, a, b), setting.flow_RR[a, b]
                full_s = cache.load_RR[a, b] / setting.capacity_RR[a, b]
                worst_s = max(worst_s, _edge(is_exchange, hops, segment, buckets, way_s, flow, full_s))
                worst_s = max(worst_s, 2.0 * max(cache.region_3R[OUT, a], cache.region_3R[INTO, b]))
            if cache.count_PR[s, a] == _num_visits(cache, num, a):
                continue
            if cache.only_PR[s, a] == SEVERAL:
                way_s, flow = _way(setting, is_exchange, a, a), setting.flow_RR[a, a]
                num_bytes = hops * segment * buckets * setting.tensor * cache.sharing_PR[s, a]
                full_s = num_bytes / setting.capacity_RR[a, a]
                worst_s = max(worst_s, _edge(is_exchange, hops, segment, buckets, way_s, flow, full_s))
            if cache.twin_PR[s, a] != NONE:
                kind = setting.kind_M[cache.twin_PR[s, a]]
                way_s, flow = 2.0 * setting.inside_latency_K[kind], setting.inside_flow_K[kind]
                worst_s = max(worst_s, _edge(is_exchange, hops, segment, buckets, way_s, flow, 0.0))
        ring_P[s] = worst_s
        slowest_s = max(slowest_s, worst_s)
    return slowest_s


@inlined
def _num_visits(cache: Cache, num: int, region: int) -> int:
    """How often a ring of so many visits comes to a region; where a cell each time, none sends to another in it."""
    visits = 0
    for k in range(num):
        visits += cache.walk_W[k] == region
    return visits


@inlined
def _time_uplinks(setting: Setting, cache: Cache) -> None:
    """Seconds of every region's uplink, out and in, by the bytes in `load_RR`, into `region_3R`."""
    cache.region_3R[:] = 0.0
    for a in range(setting.uplink_R.shape[0]):
        if setting.uplink_R[a] < math.inf:
            cache.region_3R[OUT, a] = cache.load_RR[a].sum() / setting.uplink_R[a]
            cache.region_3R[INTO, a] = cache.load_RR[:, a].sum() / setting.uplink_R[a]


@inlined
def clear_loads(cache: Cache) -> None:
    """Nothing crosses links between regions."""
    cache.load_RR[:] = 0.0
    cache.inherited_RR[:] = 0.0


@inlined
def load(setting: Setting, cache: Cache, source: int, target: int, num_bytes: float) -> None:
    """Put what one machine sends another on the link between their regions."""
    ends = setting.region_M[source], setting.region_M[target]
    cache.load_RR[ends] += num_bytes
    if setting.own_QQ[setting.place_M[source], setting.place_M[target]] == math.inf:
        cache.inherited_RR[ends] += num_bytes


@inlined
def link_seconds(setting: Setting, cache: Cache, a: int, b: int) -> float:
    """Seconds that a link between two regions is busy with all that crosses it, and with what has no own link there."""
    all_s = cache.load_RR[a, b] / setting.carried_RR[a, b]
    return float(max(all_s, cache.inherited_RR[a, b] / setting.capacity_RR[a, b]))


@inlined
def busiest_uplink_s(setting: Setting, cache: Cache) -> float:
    """Seconds of the busiest uplink, out or in, by the bytes in `load_RR`."""
    worst_s = 0.0
    for a in range(setting.uplink_R.shape[0]):
        if setting.uplink_R[a] < math.inf:
            worst_s = max(worst_s, max(cache.load_RR[a].sum(), cache.load_RR[:, a].sum()) / setting.uplink_R[a])
    return worst_s


@compiled
def _wan(setting: Setting, layout: Layout, cache: Cache) -> float:
    """Seconds of the slowest stage's all-reduce by Hulk's own, about, and of each into `wan_P`.

    B bytes must leave each of the stage's regions and reach it, over all its links to the others together, each link
    carrying its part by rate, and cross the farthest pair once. Stages share the links that they have in common, and
    uplinks.
    """
    num_stages, slowest_s = layout.machine_DP.shape[1], 0.0
    cache.load_RR[:] = 0.0
    cache.region_3R[:] = 0.0
    for s in range(num_stages):
        _load(setting, cache, gradient_bytes(setting, layout, s) * setting.tensor, _regions(cache, s))
    for s in range(num_stages):
        cache.wan_P[s] = 0.0
        num_regions = _regions(cache, s)
        for k in range(num_regions):
            cache.wan_P[s] = max(cache.wan_P[s], _region_s(setting, layout, cache, s, k, num_regions))
        slowest_s = max(slowest_s, cache.wan_P[s])
    return slowest_s


@inlined
def _regions(cache: Cache, stage: int) -> int:
    """The regions of a stage into `walk_W`; how many."""
    num = 0
    for region in range(cache.count_PR.shape[1]):
        if cache.count_PR[stage, region] > 0:
            cache.walk_W[num] = region
            num += 1
    return num


@inlined
def _load(setting: Setting, cache: Cache, num_bytes: float, num_regions: int) -> None:
    """Add the seconds of a stage's all-reduce to each link between its regions, and its bytes to their uplinks."""
    region_3R, regions = cache.region_3R, cache.walk_W
    for k in range(num_regions if num_regions > 1 else 0):
        a, out, into = regions[k], 0.0, 0.0
        for n in range(num_regions):
            b = regions[n]
            if a != b:
                out += setting.capacity_RR[a, b] if setting.flow_RR[a, b] > 0.0 else 0.0
                into += setting.capacity_RR[b, a] if setting.flow_RR[b, a] > 0.0 else 0.0
        region_3R[OUT, a], region_3R[INTO, a] = num_bytes / out, num_bytes / into
        region_3R[CROSSING, a] += num_bytes
    for k in range(num_regions):
        for n in range(num_regions):
            a, b = regions[k], regions[n]
            if a != b:
                cache.load_RR[a, b] += max(region_3R[OUT, a], region_3R[INTO, b])


@inlined
def _region_s(setting: Setting, layout: Layout, cache: Cache, stage: int, number: int, num_regions: int) -> float:
    """Seconds that one region of `walk_W` keeps a stage's all-reduce of Hulk's own."""
    region = cache.walk_W[number]
    inside_s, num_cells = 0.0, cache.count_PR[stage, region]
    if num_cells > 1:
        near_s, flow = _inside(setting, cache, stage, region)
        num_bytes = gradient_bytes(setting, layout, stage) * setting.tensor
        inside_s = 2.0 * near_s + (2.0 * (num_cells - 1) / num_cells * num_bytes / flow if flow > 0.0 else math.inf)
    if num_regions == 1:
        return inside_s
    latency_s, out_s, into_s = 0.0, 0.0, 0.0
    for n in range(num_regions):
        other = cache.walk_W[n]
        if other != region:
            latency_s = max(latency_s, setting.latency_RR[region, other])
            if setting.flow_RR[region, other] > 0.0:
                out_s = max(out_s, cache.load_RR[region, other])
            if setting.flow_RR[other, region] > 0.0:
                into_s = max(into_s, cache.load_RR[other, region])
    if out_s == 0.0 or into_s == 0.0:
        return math.inf
    busy_s = max(max(out_s, into_s), cache.region_3R[CROSSING, region] / setting.uplink_R[region])
    return float(WAN_OVER_BOUND * (latency_s + max(inside_s, busy_s)))


@inlined
def tied_seconds(setting: Setting, layout: Layout, cache: Cache) -> float:
    """Seconds that a step is longer because stages that share parameters sum their gradients, in all replicas at once.

    The two send each other what they have, as soon as they have it, each tensor-parallel rank its own; all of them
    share the link. What is on its way while the last micro-batch goes back to the earlier stage, or the next step's
    first one comes to the later one, costs nothing.
    """
    worst_s, least_slack_s = 0.0, math.inf
    if setting.ties_T2.shape[0] > 0:
        clear_loads(cache)
        for k in range(setting.ties_T2.shape[0]):
            _load_tied(setting, layout, cache, k)
        for k in range(setting.ties_T2.shape[0]):
            late_s, slack_s = _tied(setting, layout, cache, k)
            worst_s, least_slack_s = max(worst_s, late_s), min(least_slack_s, slack_s)
        if least_slack_s < math.inf:
            worst_s = max(worst_s, busiest_uplink_s(setting, cache) - least_slack_s)
    return float(worst_s)


@inlined
def _load_tied(setting: Setting, layout: Layout, cache: Cache, number: int) -> None:
    """What the stages of one pair of layers put on links between regions, there and back."""
    tied = setting.ties_T2[number, 1]
    early, late = stage_of(layout, tied), stage_of(layout, setting.ties_T2[number, 0])
    num_bytes = setting.tied_gradient_T[number] * setting.tensor
    is_sent = holds_tie(setting, layout.first_P[late], layout.first_P[late + 1], number)
    for r in range(layout.machine_DP.shape[0] if is_sent else 0):
        a, b = layout.machine_DP[r, early], layout.machine_DP[r, late]
        if setting.region_M[a] != setting.region_M[b]:
            load(setting, cache, a, b, num_bytes)
            load(setting, cache, b, a, num_bytes)


@inlined
def _tied(setting: Setting, layout: Layout, cache: Cache, number: int) -> tuple[float, float]:
    """How much longer the slowest replica's exchange of one pair of layers takes than is free, and the least free.

    Of the second only exchanges between regions count: others cross no uplink.
    """
    tied, worst_s, least_slack_s = setting.ties_T2[number, 1], 0.0, math.inf
    early, late = stage_of(layout, tied), stage_of(layout, setting.ties_T2[number, 0])
    num_bytes = setting.tied_gradient_T[number]
    is_sent = holds_tie(setting, layout.first_P[late], layout.first_P[late + 1], number)
    for r in range(layout.machine_DP.shape[0] if is_sent else 0):
        a, b = layout.machine_DP[r, early], layout.machine_DP[r, late]
        slacks_s = slack_seconds(setting, layout, r, early, late)
        for source, target, slack_s in ((a, b, slacks_s[0]), (b, a, slacks_s[1])):
            latency_s, flow = pair(setting, source, target)
            ends = setting.region_M[source], setting.region_M[target]
            own = setting.own_QQ[setting.place_M[source], setting.place_M[target]]
            full_s = num_bytes * setting.tensor / own if a != b else 0.0
            if ends[0] != ends[1] and own < math.inf:
                full_s = max(full_s, cache.load_RR[ends] / setting.carried_RR[ends])
            elif ends[0] != ends[1]:
                full_s = link_seconds(setting, cache, ends[0], ends[1])
            sent_s = max(num_bytes / flow, full_s) if flow > 0.0 else math.inf
            worst_s = max(worst_s, latency_s + 0.5 * SOFTWARE_S + sent_s - slack_s)
            if ends[0] != ends[1]:
                least_slack_s = min(least_slack_s, slack_s)
    return worst_s, least_slack_s


@compiled
def slack_seconds(setting: Setting, layout: Layout, replica: int, early: int, late: int) -> tuple[float, float]:
    """Seconds that a micro-batch takes from one stage of a replica to a later one, forward, and back.

    So long may what the earlier stage sends at a step's end be on its way before the later one needs it, and what the
    later one sends before the earlier one has computed its last micro-batch.
    """
    there_s, back_s, size = 0.0, 0.0, filled(setting, layout, replica)
    for s in range(early, late):
        low, high = layout.first_P[s], layout.first_P[s + 1]
        here, behind = layout.machine_DP[replica, s], layout.machine_DP[replica, s + 1]
        kind, num_bytes = setting.kind_M[here], size * setting.output_L[high - 1]
        forward_s = size * (setting.forward_KJ[kind, high] - setting.forward_KJ[kind, low])
        latency_s, flow = pair(setting, here, behind)
        there_s += forward_s + latency_s
        there_s += num_bytes / flow if flow > 0.0 else 0.0
        latency_s, flow = pair(setting, behind, here)
        back_s += size * (setting.backward_KJ[kind, high] - setting.backward_KJ[kind, low]) + latency_s
        back_s += forward_s if setting.recompute else 0.0
        back_s += num_bytes / flow if flow > 0.0 else 0.0
    return there_s, back_s


@inlined
def tied_price(setting: Setting, layout: Layout) -> float:
    """Price of what stages that share parameters send each other in a step: all of them, there and back."""
    price = 0.0
    for k in range(setting.ties_T2.shape[0]):
        tied = setting.ties_T2[k, 1]
        early, late = stage_of(layout, tied), stage_of(layout, setting.ties_T2[k, 0])
        num_bytes = setting.tied_gradient_T[k] * setting.tensor
        is_sent = holds_tie(setting, layout.first_P[late], layout.first_P[late + 1], k)
        for r in range(layout.machine_DP.shape[0] if is_sent else 0):
            a, b = layout.machine_DP[r, early], layout.machine_DP[r, late]
            if a != b:
                region, other = setting.region_M[a], setting.region_M[b]
                price += num_bytes * (setting.egress_RR[region, other] + setting.egress_RR[other, region])
    return float(price)


@inlined
def holds_tie(setting: Setting, first: int, last: int, number: int) -> bool:
    """Whether layers first .. last - 1 use an earlier stage's parameters by this tie; one tie of each layer counts."""
    if not setting.ties_T2[number, 1] < first <= setting.ties_T2[number, 0] < last:
        return False
    for k in range(number):
        if setting.ties_T2[k, 1] == setting.ties_T2[number, 1] and first <= setting.ties_T2[k, 0] < last:
            return False
    return True


@inlined
def stage_of(layout: Layout, layer: int) -> int:
    """The stage that has a layer."""
    stage = 0
    while layout.first_P[stage + 1] <= layer:
        stage += 1
    return stage


@inlined
def pair(setting: Setting, source: int, target: int) -> tuple[float, float]:
    """Latency and rate of one flow between two machines, or inside one."""
    if source == target:
        kind = setting.kind_M[source]
        return setting.inside_latency_K[kind], setting.inside_flow_K[kind]
    a, b = setting.place_M[source], setting.place_M[target]
    return setting.latency_QQ[a, b], setting.flow_QQ[a, b]
