"""The job, its links, and the plan of each way in which its replicas may come together."""

from __future__ import annotations

from itertools import permutations

from hulk_lab.spec import HEADER_BYTES, LabSpec, LinkSpec, NodeSpec, RegionSpec
from hulk_placement.model import Layer, Model
from hulk_placement.plan import Plan
from hulk_placement.solve import solve
from hulk_placement.sync import DILOCO, Rounds, Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.wire import Meta
from hulk_placement.workload import Workload

from bench.allreduce.gang import links_of

NUM_LAYERS, WIDTH = 16, 512
"""Of 1 MiB each."""
COMPUTE_S = 0.4
INNER_STEPS = 20
REGIONS = ("p", "o", "t")
MTU, MBIT_PER_S, ONE_WAY_MS = 1500, 50.0, 20.0
"""Of the wire, headers included."""
SEQUENCE_FLOPS = 1e9
"""Any figure: machines are said to be as fast as the emulated accelerator."""
OPEN = Rounds(fragments=None, delay_steps=None)

MODES = {
    "every step": Sync("wan"),
    "DiLoCo, one piece": Sync("local", INNER_STEPS, rounds=DILOCO),
    "streaming": Sync("local", INNER_STEPS, rounds=OPEN),
    "streaming, int8": Sync("local", INNER_STEPS, "int8", rounds=OPEN),
    "streaming, int4": Sync("local", INNER_STEPS, "int4", rounds=OPEN),
}
CHOSEN = Sync("local", INNER_STEPS, rounds=Rounds(fragments=None, delay_steps=None, any_precision=True))
"""All left to the planner: one of the last three."""


def lab(name: str) -> LabSpec:
    """Three regions of one node."""
    mbit = round(MBIT_PER_S * (MTU - HEADER_BYTES) / MTU, 2)
    return LabSpec(
        name=name,
        mtu=MTU,
        regions=tuple(RegionSpec(name=region, nodes=(NodeSpec(name=f"{region}0"),)) for region in REGIONS),
        links=tuple(
            LinkSpec(source=a, target=b, one_way_ms=ONE_WAY_MS, mbit_per_s=mbit) for a, b in permutations(REGIONS, 2)
        ),
    )


def workload(sync: Sync) -> Workload:
    """One equal worker in each region."""
    part = SEQUENCE_FLOPS / NUM_LAYERS / 3
    layers = tuple(Layer(str(number), WIDTH * WIDTH, part, 2 * part, 0, 0) for number in range(NUM_LAYERS))
    names = tuple(f"{region}0" for region in REGIONS)
    return Workload(
        "bench/streaming",
        Model(layers),
        global_batch=len(names),
        candidates=dict.fromkeys(names, 1),
        min_workers=len(names),
        max_workers=len(names),
        pins=names,
        sync=sync,
    )


def planned(sync: Sync, compute_s: float = COMPUTE_S) -> tuple[Plan, Meta]:
    """What the planner makes of a way, and what its ranks must know besides; `compute_s` of a step without any sum."""
    machines = tuple(Machine(f"{r}0", r, flops_per_s=SEQUENCE_FLOPS / compute_s) for r in REGIONS)
    found = {(a, b): Link(2 * one_way_s, rate) for a, b, rate, one_way_s in links_of(lab("x"))}
    asked = workload(sync)
    plan = solve([asked], [], Topology(machines, region_links=found)).plans[asked.key]
    return plan, Meta.of(asked, operator_version="bench", steps=1)
