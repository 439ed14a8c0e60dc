"""Machines of a plan by their own links: the search's rings know what is typical of regions alone.

Where two machines of a region have a link of their own, how many replicas are best, which machines a plan has, and in
which order replicas are in their rings, is seen of plans alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from hulk_placement.cost.compute import share_by_speed, speeds
from hulk_placement.cost.gloo import cut_ring
from hulk_placement.cost.groups import Group
from hulk_placement.cost.money import judged
from hulk_placement.cost.predict import predict, stage_groups
from hulk_placement.layouts.climbing import climb, kept_back_s
from hulk_placement.layouts.cycles import shortest_cycle
from hulk_placement.layouts.plans import plan_of
from hulk_placement.layouts.trials import Trial, Trials
from hulk_placement.plan import Plan
from hulk_placement.topology import Machine, Topology
from hulk_placement.workload import Workload

MOST_LOOKED_AT = 256
"""Plans, at most: what is tried for one layout."""

MOST_REPLICAS = 64
"""Of which the order in their rings is looked for: of more it takes too long."""


def finalists(trials: Trials, num: int, left_s: Callable[[], float]) -> list[Trial]:
    """Of the best layouts of different degrees and sets of regions the best, and those whose plans are predicted to be.

    A layout that seems best may have a ring over a slow link, and one on fewer machines, or on one alone, be better.
    `left_s`: seconds that are left, a part of which may be used.
    """
    ground, kept_s = trials.ground, kept_back_s(left_s())
    found: list[tuple[float, Trial]] = []
    for trial in trials.best_of_degrees():
        if found and left_s() <= kept_s:
            break
        plan = plan_of(trials, trial)
        prediction = predict(plan, ground.workload, ground.topology)
        found.append((judged(replace(plan, prediction=prediction), ground.workload), trial))
    return [trial for _, trial in (*found[:1], *heapq.nsmallest(num - 1, found[1:]))]


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
                    yield (instead := _with_machines(here, {name: other.name, other.name: name}))
                    if workload.shares == "planned" and here.layout.pipeline == 1:
                        yield _shared_anew(instead, workload, topology)

    return climb(plan, variants, MOST_LOOKED_AT, workload, topology, left_s)


def _with_machines(plan: Plan, instead: dict[str, str]) -> Plan:
    """Other machines of the same regions in place of some."""
    workers = (replace(worker, machine=instead.get(worker.machine, worker.machine)) for worker in plan.workers)
    return replace(plan, workers=tuple(workers))


def _shared_anew(plan: Plan, workload: Workload, topology: Topology) -> Plan:
    """The plan with as many sequences on each rank as go with its machine's speed."""
    known = speeds(workload, topology, {worker.machine for worker in plan.workers})
    return replace(plan, shares=share_by_speed(workload.global_batch, [known[w.machine] for w in plan.workers]))


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
