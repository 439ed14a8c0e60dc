"""What a layout costs, compiled: the closed form that all searches go by, and that `cost.predict` agrees with.

    step = max over stages s of (last backward pass of any replica's stage s + all-reduce of its gradients)

Pipelines are timed exactly, each alone on its links (`cost.pipeline`); all that crosses a region link or an uplink in a
step bounds the step from below. Gradients of all stages are reduced at the same time, over rings that follow one tour.
"""

from __future__ import annotations

import math

import numpy as np

from hulk_placement.compiled import compiled, inlined
from hulk_placement.cost.closed_form.arrays import Cache, Layout, Setting
from hulk_placement.cost.closed_form.pipeline import NUM_SCRATCH, Chain, least_s, pipeline_ends
from hulk_placement.cost.closed_form.shares import filled, num_batches
from hulk_placement.cost.closed_form.sync import (
    busiest_uplink_s,
    clear_loads,
    gradient_bytes,
    held_bytes,
    link_seconds,
    load,
    pair,
    sync_seconds,
    tied_price,
    tied_seconds,
    walk_tour,
)
from hulk_placement.cost.windows import packets_of

EXCESS_COST = 10.0
"""What a cell of twice its memory adds to the cost, in times the cost, twice the price that is allowed, and a cell
that a worker lacks; a layer where it must not be weighs more (`setting.BANNED`): the way back leads downhill."""


def make_cache(num_replicas: int, num_stages: int, num_regions: int, num_machines: int) -> Cache:
    """Room for layouts of at most so many replicas and stages."""
    return Cache(
        ends_DP=np.zeros((num_replicas, num_stages)),
        excess_DP=np.zeros((num_replicas, num_stages)),
        sync_P=np.zeros(num_stages),
        one_P=np.zeros(num_stages),
        two_P=np.zeros(num_stages),
        wan_P=np.zeros(num_stages),
        only_PR=np.zeros((num_stages, num_regions), np.int64),
        twin_PR=np.zeros((num_stages, num_regions), np.int64),
        seen_M=np.zeros(num_machines, np.int64),
        cells_M=np.zeros(num_machines, np.int64),
        count_PR=np.zeros((num_stages, num_regions), np.int64),
        load_M=np.zeros(num_machines),
        sharing_PR=np.ones((num_stages, num_regions)),
        load_RR=np.zeros((num_regions, num_regions)),
        inherited_RR=np.zeros((num_regions, num_regions)),
        region_3R=np.zeros((3, num_regions)),
        walk_W=np.zeros(max(2 * num_regions + 2, num_replicas), np.int64),
        stage=np.zeros((8, num_stages)),
        now=np.zeros((NUM_SCRATCH, num_stages)),
    )


@inlined
def memory_bytes(setting: Setting, first: int, last: int, stage: int, num_stages: int, num: int) -> float:
    """Bytes of one rank of a stage of layers first .. last - 1 at its peak, with so many micro-batches."""
    in_flight = min(num, num_stages - stage) if setting.schedule == 1 else num
    held = held_bytes(setting, setting.held_J, setting.tied_held_T, first, last)
    if setting.recompute:
        kept = setting.input_J[last] - setting.input_J[first]
        g = 0
        while 2 << g <= last - first:
            g += 1
        peak = max(setting.peak_GL[g, first], setting.peak_GL[g, last - (1 << g)])
        return float(held + in_flight * kept + peak)
    return float(held + in_flight * (setting.kept_J[last] - setting.kept_J[first]))


@compiled
def time_replica(setting: Setting, layout: Layout, cache: Cache, replica: int) -> None:
    """Time one replica's pipeline, and weigh its cells, into the cache. Infinite where a link must not be used."""
    end_replica(setting, layout, cache, replica, weigh_replica(setting, layout, cache, replica))


@compiled
def weigh_replica(setting: Setting, layout: Layout, cache: Cache, replica: int) -> Chain:
    """Weigh one replica's cells, into the cache; its stages and ways, which stay until the next replica is weighed."""
    machine, first = layout.machine_DP[replica], layout.first_P
    num_stages, num = machine.shape[0], num_batches(setting, layout, replica)
    size = filled(setting, layout, replica)
    forward, backward, send, latency, packets, back, back_latency, back_packets = cache.stage
    for s in range(num_stages):
        kind, low, high = setting.kind_M[machine[s]], first[s], first[s + 1]
        forward[s] = size * (setting.forward_KJ[kind, high] - setting.forward_KJ[kind, low])
        backward[s] = size * (setting.backward_KJ[kind, high] - setting.backward_KJ[kind, low])
        if setting.recompute:
            backward[s] += forward[s]
        need = memory_bytes(setting, low, high, s, num_stages, num)
        cache.excess_DP[replica, s] = max(0.0, need / setting.memory_K[kind] - 1.0)
        if setting.banned_MJ.shape[1] > 1:
            cache.excess_DP[replica, s] += setting.banned_MJ[machine[s], high] - setting.banned_MJ[machine[s], low]
        if s + 1 < num_stages:
            num_bytes = size * setting.output_L[high - 1]
            latency[s], flow = pair(setting, machine[s], machine[s + 1])
            send[s] = num_bytes / flow if flow > 0.0 else math.inf
            back_latency[s], flow = pair(setting, machine[s + 1], machine[s])
            back[s] = num_bytes / flow if flow > 0.0 else math.inf
            packets[s] = _cold_packets(setting, machine[s], machine[s + 1], num_bytes)
            back_packets[s] = _cold_packets(setting, machine[s + 1], machine[s], num_bytes)
    return Chain(forward[:num_stages], backward[:num_stages], send, latency, packets, back, back_latency, back_packets)


@compiled
def end_replica(setting: Setting, layout: Layout, cache: Cache, replica: int, chain: Chain) -> None:
    """Time one replica's pipeline, whose stages and ways are known, into the cache."""
    num = num_batches(setting, layout, replica)
    if layout.machine_DP.shape[1] == 1:
        cache.ends_DP[replica, 0] = num * (chain.forward_s[0] + chain.backward_s[0])
        return
    pipeline_ends(setting.schedule, num, chain, setting.overlap, cache.ends_DP[replica], cache.now)


@inlined
def least_cost(setting: Setting, layout: Layout, cache: Cache, replica: int, chain: Chain) -> float:
    """What no layout costs less than that has this replica, weighed already: its own seconds, and what it lacks."""
    excess = cache.excess_DP[replica].sum()
    cost = least_s(setting.schedule, num_batches(setting, layout, replica), chain)
    if setting.is_money:
        cost *= price_per_s(setting, layout)
    return float(cost * (1.0 + EXCESS_COST * excess))


@inlined
def _cold_packets(setting: Setting, source: int, target: int, num_bytes: float) -> float:
    """Packets on each connection of what one machine sends another; 0 where their windows are open."""
    is_cold = setting.is_cold_K[setting.kind_M[source]] and setting.region_M[source] != setting.region_M[target]
    return packets_of(num_bytes) if is_cold else 0.0


@inlined
def crossing_seconds(setting: Setting, layout: Layout, cache: Cache) -> float:
    """Seconds that the activations and gradients of a step keep the busiest region link or uplink busy."""
    num_replicas, num_stages = layout.machine_DP.shape
    clear_loads(cache)
    crossed = False
    for r in range(num_replicas):
        for s in range(num_stages - 1):
            a, b = layout.machine_DP[r, s], layout.machine_DP[r, s + 1]
            if setting.region_M[a] != setting.region_M[b]:
                num_bytes = layout.shares_D[r] / setting.micro_batch * setting.output_L[layout.first_P[s + 1] - 1]
                load(setting, cache, a, b, num_bytes)
                load(setting, cache, b, a, num_bytes)
                crossed = True
    return busiest_seconds(setting, cache) if crossed else 0.0


@compiled
def busiest_seconds(setting: Setting, cache: Cache) -> float:
    """Seconds of the busiest region link or uplink, by the bytes in `load_RR` and `inherited_RR`."""
    worst_s = busiest_uplink_s(setting, cache)
    for a in range(setting.uplink_R.shape[0]):
        for b in range(setting.uplink_R.shape[0]):
            if cache.load_RR[a, b] > 0.0:
                worst_s = max(worst_s, link_seconds(setting, cache, a, b))
    return worst_s


@compiled
def egress_price(setting: Setting, layout: Layout, cache: Cache) -> float:
    """Price of the bytes that a step sends between regions; all-reduces as gloo's rings, as `cost.money`."""
    num_replicas, num_stages = layout.machine_DP.shape
    price = 0.0
    for s in range(num_stages):
        if s + 1 < num_stages:
            for r in range(num_replicas):
                a = setting.region_M[layout.machine_DP[r, s]]
                b = setting.region_M[layout.machine_DP[r, s + 1]]
                num_bytes = layout.shares_D[r] / setting.micro_batch * setting.output_L[layout.first_P[s + 1] - 1]
                price += num_bytes * (setting.egress_RR[a, b] + setting.egress_RR[b, a])
        num = walk_tour(layout, cache, s) if num_replicas > 1 else 0
        num_bytes = 2.0 * (num_replicas - 1) / num_replicas * gradient_bytes(setting, layout, s) * setting.tensor
        for k in range(num):
            price += num_bytes / setting.inner_steps * setting.egress_RR[cache.walk_W[k], cache.walk_W[(k + 1) % num]]
    return price + tied_price(setting, layout)


@compiled
def combine(setting: Setting, layout: Layout, cache: Cache, is_moved: bool) -> float:
    """The cost of a layout whose replicas have been timed: seconds, or price, of a step; more where memory lacks.

    Infinite where a link must not be used. `is_moved`: cells, layers or the tour have changed since the last time.
    """
    num_replicas, num_stages = layout.machine_DP.shape
    if is_moved:
        sync_seconds(setting, layout, cache)
    last_s, summed_s, excess = 0.0, 0.0, 0.0
    for s in range(num_stages):
        ready_s = 0.0
        for r in range(num_replicas):
            ready_s = max(ready_s, cache.ends_DP[r, s])
            excess += cache.excess_DP[r, s]
        last_s = max(last_s, ready_s)
        summed_s = max(summed_s, ready_s + cache.sync_P[s])
    if not setting.overlap or setting.inner_steps > 1:
        summed_s = last_s + cache.sync_P[:num_stages].max()
    step_s = max(last_s, crossing_seconds(setting, layout, cache))
    if setting.inner_steps == 1:
        step_s = max(step_s, summed_s)
    else:
        step_s += max(0.0, summed_s - step_s) / setting.inner_steps
    step_s += tied_seconds(setting, layout, cache)
    if setting.price_limit < math.inf:
        excess += max(0.0, price_per_s(setting, layout) / setting.price_limit - 1.0)
    excess += lacking_cells(setting, layout, cache)
    cost = step_s * price_per_s(setting, layout) + egress_price(setting, layout, cache) if setting.is_money else step_s
    return cost * (1.0 + EXCESS_COST * excess)


@compiled
def lacking_cells(setting: Setting, layout: Layout, cache: Cache) -> int:
    """How many cells more would make all machines' cells whole workers."""
    if setting.worker_cells == 1:
        return 0
    cache.cells_M[:] = 0
    for machine in layout.machine_DP.flat:
        cache.cells_M[machine] += 1
    lacking = 0
    for num in cache.cells_M:
        lacking += int(-num % setting.worker_cells)
    return lacking


@inlined
def price_per_s(setting: Setting, layout: Layout) -> float:
    """Price of all cells for a second."""
    price = 0.0
    for machine in layout.machine_DP.flat:
        price += setting.price_K[setting.kind_M[machine]]
    return price


@inlined
def _is_alike(setting: Setting, layout: Layout, replica: int) -> bool:
    """Whether a replica takes as long, and needs as much, as the one before."""
    if layout.shares_D[replica] != layout.shares_D[replica - 1] or setting.banned_MJ.shape[1] > 1:
        return False
    for s in range(layout.machine_DP.shape[1]):
        here, there = layout.machine_DP[replica, s], layout.machine_DP[replica - 1, s]
        if setting.kind_M[here] != setting.kind_M[there] or setting.place_M[here] != setting.place_M[there]:
            return False
        if s > 0:
            stays = here == layout.machine_DP[replica, s - 1]
            if stays != (there == layout.machine_DP[replica - 1, s - 1]):
                return False
    return True


@compiled
def evaluate(setting: Setting, layout: Layout, cache: Cache) -> float:
    """The cost of a layout, from nothing."""
    for replica in range(layout.machine_DP.shape[0]):
        if replica > 0 and _is_alike(setting, layout, replica):
            cache.ends_DP[replica] = cache.ends_DP[replica - 1]
            cache.excess_DP[replica] = cache.excess_DP[replica - 1]
        else:
            time_replica(setting, layout, cache, replica)
    return combine(setting, layout, cache, True)
