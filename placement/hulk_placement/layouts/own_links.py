"""Machines of a plan by their own links: the search's rings know what is typical of regions alone.

Where two machines of a region have a link of their own, which of them a plan has, and in which order replicas are in
their rings, decides how long these take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from hulk_placement.cost.gloo import cut_ring
from hulk_placement.cost.groups import Group
from hulk_placement.cost.predict import stage_groups
from hulk_placement.layouts.climbing import climb
from hulk_placement.layouts.cycles import shortest_cycle
from hulk_placement.plan import Plan
from hulk_placement.topology import Machine, Topology
from hulk_placement.workload import Workload

MOST_LOOKED_AT = 256
"""Plans, at most: what is tried for one layout."""

MOST_REPLICAS = 64
"""Of which the order in their rings is looked for: of more it takes too long."""


def exchanged(
    plan: Plan, machines: Sequence[Machine], workload: Workload, topology: Topology, left_s: Callable[[], float]
) -> Plan:
    """The plan with rings in the best order, and machines at the worst edge exchanged, as long as that makes it better.

    `machines`: those that may be used. `left_s`: seconds that are left. A plan of one replica, and one of Hulk's own
    all-reduce, is left as it is: its links are those of regions.
    """
    if plan.layout.data == 1 or plan.algorithm == "wan":
        return plan

    def variants(here: Plan) -> Iterator[Plan]:
        if 2 < here.layout.data <= MOST_REPLICAS:
            yield _in_quickest_rings(here, workload, topology)
        for name in here.prediction.bottleneck or ():  # no other exchange makes its edge quicker
            for other in machines:
                if other.name != name and other.region == topology.machine(name).region:
                    yield _with_machines(here, {name: other.name, other.name: name})

    return climb(plan, variants, MOST_LOOKED_AT, workload, topology, left_s)


def _with_machines(plan: Plan, instead: dict[str, str]) -> Plan:
    """Other machines of the same regions in place of some."""
    workers = (replace(worker, machine=instead.get(worker.machine, worker.machine)) for worker in plan.workers)
    return replace(plan, workers=tuple(workers))


def _in_quickest_rings(plan: Plan, workload: Workload, topology: Topology) -> Plan:
    """The replicas of each stage in the order whose worst edge, alone on its link, is least."""
    groups = stage_groups(replace(plan, rings=()), workload)[:: plan.layout.tensor]
    rings = tuple(_quickest_ring(group, topology) for group in groups)
    if plan.layout.pipeline > 1:
        return replace(plan, rings=rings)
    (order,) = rings  # the order of ranks
    return replace(
        plan,
        workers=tuple(plan.workers[replica] for replica in order),
        shares=tuple(plan.shares[replica] for replica in order),
    )


def _quickest_ring(group: Group, topology: Topology) -> tuple[int, ...]:
    """Ranks of a group in ring order: data flow from each to the one before it."""
    ring = cut_ring(group.num_bytes, len(group.machines), group.num_buckets)
    links = [[topology.link(a, b) for b in group.machines] for a in group.machines]
    seconds_DD = [
        [ring.edge_s(link.rtt_s, link.bandwidth_bytes_per_s, 1, link.one_flow_bytes_per_s) for link in row]
        for row in links
    ]
    return tuple(shortest_cycle(np.array(seconds_DD), tuple(range(len(links))))[::-1])
