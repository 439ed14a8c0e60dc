"""The plan that a job of equal workers gets on all nodes of a case, one a node: as the operator has it made.

DDP's, or a script's with a replica in each region, sharded over its nodes. Its flows, its number of buckets and its
prediction come from the planner's own search and evaluator (`cost.predict`); the bench gives it the links of the lab's
file and how long a step computes.
"""

from __future__ import annotations

import math
from dataclasses import replace

from hulk_placement.layouts.reducing import with_all_flows
from hulk_placement.model import Model
from hulk_placement.model.layer import Layer
from hulk_placement.plan import Plan
from hulk_placement.solve import solve
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload

from bench.allreduce.case import Case
from bench.allreduce.gloo_orders import INSIDE_BYTES_PER_S, INSIDE_RTT_S

SEQUENCE_FLOPS = 1e9
"""Any figure: machines are said to be as fast as the step that was timed."""


def workload(case: Case, num_bytes: int) -> Workload:
    """Equal DDP workers, one a node, by Hulk's own all-reduce."""
    names = tuple(f"node-{rank}" for rank in range(case.num_nodes))
    return Workload(
        "bench/ddp",
        Model.of_totals(num_bytes // 4, SEQUENCE_FLOPS, 0),
        global_batch=len(names),
        candidates=dict.fromkeys(names, 1),
        min_workers=len(names),
        max_workers=len(names),
        pins=names,
        sync=Sync("wan"),
    )


def planned(case: Case, num_bytes: int, compute_s: float) -> Plan:
    """By Hulk's own all-reduce, ranks in the lab's order; `compute_s` of a step without any sum."""
    asked = workload(case, num_bytes)
    return solve([asked], [], _topology(case, compute_s)).plans[asked.key]


def sharded_workload(case: Case, num_layers: int, num_bytes: int) -> Workload:
    """A script with so many equal layers, of which torch sums each by itself; as many shards as a region has nodes."""
    (shard,) = set(case.counts)
    (whole,) = Model.of_totals(num_bytes // 4, SEQUENCE_FLOPS).layers
    each = whole.num_parameters // num_layers, whole.forward_flops / num_layers, whole.backward_flops / num_layers
    model = Model(tuple(Layer(f"layers.{number}", *each, 0, 0) for number in range(num_layers)))
    return replace(workload(case, num_bytes), model=model, pins=(), micro_batch=1, shard=shard, sums_by_layer=True)


def sharded(case: Case, num_layers: int, num_bytes: int, compute_s: float) -> Plan:
    """Of such a script, by Hulk's own all-reduce; ranks in the lab's order, as replicas are alike."""
    asked, topology = sharded_workload(case, num_layers, num_bytes), _topology(case, compute_s)
    plan = solve([asked], [], topology).plans[asked.key]
    ordered = replace(plan, workers=tuple(sorted(plan.workers, key=lambda worker: int(worker.machine.split("-")[1]))))
    return with_all_flows(ordered, asked, topology, lambda: math.inf)


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
