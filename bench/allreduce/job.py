"""The plan that a job of equal workers gets on all nodes of a case, one a node: as the operator has it made.

DDP's, or a script's with a replica in each region, divided among its nodes. Its flows, its number of buckets and its
prediction come from the planner's own search and evaluator (`cost.predict`); the bench gives it the links of the lab's
file and how long a step computes.
"""

from __future__ import annotations

import math
from dataclasses import replace

from hulk_placement.layouts.reducing import with_all_flows
from hulk_placement.model import Model
from hulk_placement.model.layer import Layer
from hulk_placement.plan import Plan, WorkerSlot
from hulk_placement.solve import solve
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload

from bench.allreduce.case import Case
from bench.allreduce.gloo_orders import INSIDE_BYTES_PER_S, INSIDE_RTT_S

SEQUENCE_FLOPS = 1e9
"""Any figure: machines are said to be as fast as the step that was timed."""


SYNC = Sync("wan")
"""In every step."""


def workload(case: Case, num_bytes: int, sync: Sync = SYNC) -> Workload:
    """Equal workers with the whole model, one a node, by Hulk's own all-reduce; `num_bytes` of gradients."""
    names = tuple(f"node-{rank}" for rank in range(case.num_nodes))
    return Workload(
        "bench/ddp",
        Model.of_totals(num_bytes // 4, SEQUENCE_FLOPS, 0),
        global_batch=len(names),
        candidates=dict.fromkeys(names, 1),
        min_workers=len(names),
        max_workers=len(names),
        pins=names,
        sync=sync,
    )


def planned(case: Case, num_bytes: int, compute_s: float, sync: Sync = SYNC) -> Plan:
    """By Hulk's own all-reduce, ranks in the lab's order; `compute_s` of a step without any sum."""
    asked = workload(case, num_bytes, sync)
    return solve([asked], [], _topology(case, compute_s)).plans[asked.key]


def divided_workload(case: Case, num_layers: int, num_bytes: int, *, is_tensor: bool = False) -> Workload:
    """A script with so many equal layers, of which torch sums each by itself: of as many ranks as a region has nodes.

    They are shards, or tensor ranks: these the planner has on one machine alone, here a region.
    """
    (width,) = set(case.counts)
    (whole,) = Model.of_totals(num_bytes // 4, SEQUENCE_FLOPS).layers
    each = whole.num_parameters // num_layers, whole.forward_flops / num_layers, whole.backward_flops / num_layers
    model = Model(tuple(Layer(f"layers.{number}", *each, 0, 0) for number in range(num_layers)))
    asked = replace(workload(case, num_bytes), model=model, pins=(), micro_batch=1, sums_by_layer=True)
    if is_tensor:
        return replace(asked, candidates=dict.fromkeys(case.region_names, width), tensor=width)
    return replace(asked, shard=width)


def divided(case: Case, num_layers: int, num_bytes: int, compute_s: float, *, is_tensor: bool = False) -> Plan:
    """Of such a script, by Hulk's own all-reduce; ranks in the lab's order, as replicas are alike."""
    asked, topology = divided_workload(case, num_layers, num_bytes, is_tensor=is_tensor), _topology(case, compute_s)
    plan = solve([asked], [], _whole_regions(topology, asked) if is_tensor else topology).plans[asked.key]
    ordered = replace(plan, workers=tuple(WorkerSlot(node.name, node.region, 1) for node in topology.machines))
    return with_all_flows(ordered, asked, topology, lambda: math.inf)


def _whole_regions(topology: Topology, asked: Workload) -> Topology:
    """A machine in place of each region's nodes, as fast as they."""
    speed = topology.machines[0].flops_per_s
    machines = (Machine(name, name, num_accelerators=num, flops_per_s=speed) for name, num in asked.candidates.items())
    return replace(topology, machines=tuple(machines))


def _topology(case: Case, compute_s: float) -> Topology:
    """Nodes that compute so long for a step."""
    regions = [name for name, count in zip(case.region_names, case.counts, strict=True) for _ in range(count)]
    machines = tuple(
        Machine(f"node-{rank}", region, flops_per_s=SEQUENCE_FLOPS / compute_s) for rank, region in enumerate(regions)
    )
    return Topology(machines, region_links=links(case))


def links(case: Case) -> dict[tuple[str, str], Link]:
    """By region pair, those inside regions included."""
    names, inside = case.region_names, Link(INSIDE_RTT_S, INSIDE_BYTES_PER_S)
    between = {
        (names[a], names[b]): Link(one_way_s + case.links[b, a][1], rate)
        for (a, b), (rate, one_way_s) in case.links.items()
    }
    return between | {(name, name): inside for name in names}
