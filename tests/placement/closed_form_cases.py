"""Settings and layouts drawn by a seed, and what they cost: the reference that the closed form is compared with.

The arrays are drawn directly, not made from a workload, so that the costs hold whatever else a workload comes to say.
`python tests/placement/closed_form_cases.py` records them anew, for a formula that is changed on purpose; the first
record was made with the implementation in Python and numba that the crate's took the place of.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hulk_native import construct_layout, estimate, evaluate
from hulk_placement.cost.closed_form.arrays import Cache, Floats, Ints, Layout, Setting

RECORD = Path(__file__).with_name("closed_form_costs.json")
NUM_CASES = 200

WAYS = np.array([(stages, eighths, way) for stages in (1, 2, 3) for eighths, way in ((8, 0), (4, 1), (8, 2), (6, 3))])
"""Shapes that are estimated: stages, eighths of the replicas there is room for, way of cutting."""


@dataclass(frozen=True)
class Case:
    """A setting whose machines lie pool after pool, a layout, and how many replicas and stages are constructed."""

    setting: Setting
    layout: Layout
    size_p: Ints
    order_n: Ints
    shape: tuple[int, int]


def drawn(seed: int) -> Case:
    """The case of a seed: of every feature of a setting some have it."""
    chance = random.Random(seed)
    num_regions, num_kinds, num_layers = chance.randint(1, 4), chance.randint(1, 3), chance.randint(4, 9)
    num_pools = chance.randint(num_regions, num_regions + 2)
    region_p = [*range(num_regions), *(chance.randrange(num_regions) for _ in range(num_pools - num_regions))]
    kind_p, size_p = [chance.randrange(num_kinds) for _ in region_p], [chance.randint(1, 3) for _ in region_p]
    region_m, kind_m = np.repeat(region_p, size_p), np.repeat(kind_p, size_p)
    worker_cells, slots = chance.choice((1, 1, 1, 2)), chance.choice((2, 4))
    num_cells, most_stages = slots * len(region_m), min(4, num_layers)
    data, stages = chance.randint(1, 4), chance.randint(1, most_stages)
    micro_batch, global_batch = chance.randint(1, 4), chance.randint(16, 90)
    is_pinned = chance.random() < 0.2
    setting = Setting(
        kind_M=kind_m,
        region_M=region_m,
        slots_M=np.full(len(region_m), slots),
        worker_cells=worker_cells,
        memory_K=np.array([chance.choice((math.inf, chance.uniform(2e9, 3e10))) for _ in range(num_kinds)]),
        price_K=np.array([chance.uniform(1e-4, 2e-3) for _ in range(num_kinds)]),
        is_cold_K=np.array([chance.random() < 0.3 for _ in range(num_kinds)]),
        nic_K=np.full(num_kinds, math.inf),
        forward_KJ=_sums([[chance.uniform(0.01, 0.2) for _ in range(num_layers)] for _ in range(num_kinds)]),
        backward_KJ=_sums([[chance.uniform(0.02, 0.4) for _ in range(num_layers)] for _ in range(num_kinds)]),
        **_layers(chance, num_layers),
        **_links(chance, region_m, num_regions),
        inside_latency_K=np.array([chance.uniform(1e-6, 1e-5) for _ in range(num_kinds)]),
        inside_flow_K=np.array([chance.uniform(1e9, 1e11) for _ in range(num_kinds)]),
        banned_MJ=_sums([[1000.0 * (chance.random() < 0.1) for _ in range(num_layers)] for _ in region_m])
        if is_pinned
        else np.zeros((len(region_m), 1)),
        price_limit=chance.choice((math.inf, math.inf, chance.uniform(1e-3, 2e-2))),
        global_batch=global_batch,
        micro_batch=micro_batch,
        tensor=chance.choice((1, 1, 2)),
        schedule=chance.randrange(2),
        overlap=chance.random() < 0.8,
        recompute=chance.random() < 0.3,
        transports=chance.randint(1, 3),
        wire_share=1.0,
        inner_steps=chance.choice((1, 1, 8)),
        sums_by_layer=False,
        is_money=chance.random() < 0.2,
        is_equal=chance.random() < 0.2,
    )
    tour = chance.sample(range(num_regions), num_regions)
    tour += [chance.randrange(num_regions) for _ in range(chance.choice((0, 0, 1)))]
    cuts = sorted(chance.sample(range(1, num_layers), stages - 1))
    ends = sorted(chance.sample(range(1, global_batch), data - 1))
    layout = Layout(
        machine_DP=np.array([[chance.randrange(len(region_m)) for _ in range(stages)] for _ in range(data)]),
        first_P=np.array([0, *cuts, num_layers]),
        shares_D=np.diff([0, *ends, global_batch]),
        tour_W=np.array(tour),
    )
    size = chance.randint(1, min(most_stages, num_cells))
    shape = chance.randint(1, max(1, min(4, num_cells // size))), size
    order_n = np.repeat(np.arange(len(region_m)), slots)
    setting = setting._replace(wire_share=chance.choice((1.0, 1.0, 0.25)))
    return Case(setting, layout, np.array(size_p), order_n, shape)


def _layers(chance: random.Random, num_layers: int) -> dict[str, Floats]:
    """What the layers hold and send; ties of one or two later layers to the first one."""
    kept_l = np.array([chance.uniform(1e7, 4e8) for _ in range(num_layers)])
    rows = [kept_l]
    while 2 << (len(rows) - 1) <= num_layers:
        step, last = 1 << (len(rows) - 1), rows[-1]
        rows.append(np.maximum(last, np.concatenate([last[step:], last[-1:].repeat(step)])))
    gradient = [chance.uniform(1e5, 2e8) for _ in range(num_layers)]
    tied = sorted(chance.sample(range(1, num_layers), chance.choice((0, 0, 1, 2))))
    tied_t = sorted((chance.uniform(1e5, gradient[0]) for _ in tied), reverse=True)
    return {
        "held_J": _sums([4 * each for each in gradient]),
        "gradient_J": _sums(gradient),
        "kept_J": _sums(kept_l),
        "input_J": _sums([chance.uniform(1e5, 1e7) for _ in range(num_layers)]),
        "peak_GL": np.array(rows),
        "output_L": np.array([chance.choice((chance.uniform(1e3, 1e5), chance.uniform(1e6, 5e7))) for _ in kept_l]),
        "ties_T2": np.array([(layer, 0) for layer in tied], np.int64).reshape(-1, 2),  # type: ignore[dict-item]
        "tied_held_T": 4 * np.array(tied_t),
        "tied_gradient_T": np.array(tied_t),
    }


def _links(chance: random.Random, region_m: Ints, num_regions: int) -> dict[str, Floats]:
    """What links carry: of regions, and of some machines that have a place of their own."""
    has_gap, regions = chance.random() < 0.05, range(num_regions)
    near = np.eye(num_regions, dtype=np.bool_)
    latency_rr = np.where(near, 1e-4, [[chance.uniform(1e-3, 0.2) for _ in regions] for _ in regions])
    capacity_rr = np.where(near, 1e9, [[chance.uniform(1e6, 1e8) for _ in regions] for _ in regions])
    flow_rr = capacity_rr * [[chance.choice((1.0, 0.5)) for _ in regions] for _ in regions]
    flow_rr *= np.where(
        near, 1.0, [[0.0 if has_gap and chance.random() < 0.2 else 1.0 for _ in regions] for _ in regions]
    )
    apart = [machine for machine in range(len(region_m)) if chance.random() < 0.2]
    place_m, region_q = region_m.copy(), [*regions, *region_m[apart]]
    place_m[apart] = np.arange(num_regions, len(region_q))
    both = np.ix_(region_q, region_q)
    latency_qq, flow_qq = latency_rr[both], flow_rr[both]
    own_qq = np.where(near, capacity_rr, math.inf)[both]
    for a in range(num_regions, len(region_q)):
        for b in range(num_regions, len(region_q)):
            if a != b and chance.random() < 0.5:
                latency_qq[a, b], flow_qq[a, b] = chance.uniform(1e-4, 0.1), chance.uniform(1e6, 1e9)
                own_qq[a, b] = flow_qq[a, b] * chance.choice((1.0, 2.0))
    return {
        "place_M": place_m,  # type: ignore[dict-item]
        "latency_QQ": latency_qq,
        "flow_QQ": flow_qq,
        "own_QQ": own_qq,
        "is_wire_QQ": np.zeros_like(own_qq, np.bool_),  # type: ignore[dict-item]
        "latency_RR": latency_rr,
        "round_trip_RR": latency_rr + latency_rr.T,
        "flow_RR": flow_rr,
        "capacity_RR": capacity_rr,
        "carried_RR": capacity_rr * np.where(near, 10.0, chance.choice((1.0, 2.0))),
        "uplink_R": np.array([chance.choice((math.inf, chance.uniform(1e6, 1e8))) for _ in regions]),
        "egress_RR": np.where(near, 0.0, [[chance.uniform(0.0, 1e-10) for _ in regions] for _ in regions]),
    }


def _sums(values: list[float] | list[list[float]] | Floats) -> Floats:
    """Prefix sums along the last axis, 0 first."""
    array = np.asarray(values, np.float64)
    return np.concatenate([np.zeros((*array.shape[:-1], 1)), np.cumsum(array, axis=-1)], axis=-1)


def costs(case: Case) -> list[float]:
    """The cost of the layout, of those that are constructed by rows and by columns, and the values of estimates."""
    found = [_cost(case.setting, case.layout)]
    for by_rows in (True, False):
        data, stages = case.shape
        layout = Layout(
            np.zeros((data, stages), np.int64),
            np.zeros(stages + 1, np.int64),
            np.ones(data, np.int64),
            case.layout.tour_W,
        )
        construct_layout(case.setting, layout, case.order_n, by_rows)
        found.append(_cost(case.setting, layout))
    setting = case.setting
    usable_p = np.full(len(case.size_p), int(setting.slots_M[0]) * setting.tensor)
    first_p = np.cumsum([0, *case.size_p[:-1]])
    both_rr, limits = np.maximum(setting.latency_RR, setting.latency_RR.T), (1, 24, 0)
    values_s = estimate(setting, both_rr, usable_p * case.size_p, usable_p, first_p, WAYS, limits)
    return [*found, *values_s.tolist()]


def _cost(setting: Setting, layout: Layout) -> float:
    data, stages = layout.machine_DP.shape
    return evaluate(setting, layout, Cache(data, stages, len(setting.uplink_R), len(setting.kind_M)))


def recorded() -> list[list[float]]:
    """The costs of all cases."""
    found: list[list[float]] = json.loads(RECORD.read_text())
    return found


if __name__ == "__main__":
    rows = [json.dumps([float(f"{cost:.12g}") for cost in costs(drawn(seed))]) for seed in range(NUM_CASES)]
    RECORD.write_text("[\n" + ",\n".join(rows) + "\n]\n")
