"""The plan that a job of equal DDP workers gets on all nodes of a case, one a node: as the operator has it made.

Its flows, its number of buckets and its prediction come from the planner's own search and evaluator (`cost.predict`);
the bench gives it the links of the lab's file and how long a step computes.
"""

from __future__ import annotations

from hulk_placement.model import Model
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
    regions = [name for name, count in zip(case.region_names, case.counts, strict=True) for _ in range(count)]
    machines = tuple(
        Machine(f"node-{rank}", region, flops_per_s=SEQUENCE_FLOPS / compute_s) for rank, region in enumerate(regions)
    )
    asked = workload(case, num_bytes)
    return solve([asked], [], Topology(machines, region_links=links(case))).plans[asked.key]


def links(case: Case) -> dict[tuple[str, str], Link]:
    """By region pair, those inside regions included."""
    names, inside = case.region_names, Link(INSIDE_RTT_S, INSIDE_BYTES_PER_S)
    between = {
        (names[a], names[b]): Link(one_way_s + case.links[b, a][1], rate)
        for (a, b), (rate, one_way_s) in case.links.items()
    }
    return between | {(name, name): inside for name in names}
