"""Machines of a plan by their own links: the search's rings know what is typical of regions alone.

Where two machines of a region have a link of their own, how many replicas are best, which machines a plan has, and in
which order replicas are in their rings, is seen of plans alone.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from operator import itemgetter

import numpy as np

from hulk_placement.cost.closed_form.setting import Ground
from hulk_placement.cost.compute import share_by_speed, speeds
from hulk_placement.cost.gloo import cut_ring
from hulk_placement.cost.groups import Group
from hulk_placement.cost.money import judged
from hulk_placement.cost.predict import predict, stage_groups
from hulk_placement.cost.traffic import links_used
from hulk_placement.layouts.climbing import climb, kept_back_s
from hulk_placement.layouts.cycles import shortest_cycle
from hulk_placement.layouts.plans import plan_of
from hulk_placement.layouts.trials import Degrees, Trial, Trials
from hulk_placement.plan import Plan
from hulk_placement.topology import Pair, Topology
from hulk_placement.workload import Workload

MOST_LOOKED_AT = 256
"""Plans, at most: what is tried for one layout."""

MOST_CELLS = 1 << 14
"""Of those plans together: to predict one takes 20 us a cell."""

MOST_FINALIST_CELLS = 1 << 16
"""Of the plans among which those that are gone on with are chosen."""

MOST_REPLICAS = 64
"""Of which the order in their rings is looked for: of more it takes too long."""


def finalists(trials: Trials, num: int, left_s: Callable[[], float]) -> list[Trial]:
    """Of the best layouts of different degrees and sets of regions the best, and those whose plans are predicted to be.

    A layout that seems best may have a ring over a slow link, and one on fewer machines, or on one alone, be better.
    First each degrees' best set of regions is looked at, then each one's second best; those with more cells than may
    still be looked at are passed over. `left_s`: seconds that are left, a part of which may be used.
    """
    ground, kept_s, num_cells = trials.ground, kept_back_s(left_s()), MOST_FINALIST_CELLS
    found: list[tuple[float, Trial]] = []
    for trial in _in_turn(trials.best_of_degrees()):
        if found and left_s() <= kept_s:
            break
        if found and trial.layout.machine_DP.size > num_cells:
            continue
        num_cells -= trial.layout.machine_DP.size
        plan = plan_of(trials, trial)
        prediction = predict(plan, ground.workload, ground.topology)
        found.append((judged(replace(plan, prediction=prediction), ground.workload), trial))
    return [trial for _, trial in (*found[:1], *heapq.nsmallest(num - 1, found[1:]))]


def _in_turn(trials: Iterable[Trial]) -> list[Trial]:
    """The first of each degrees, then the second of each, and so on; among them in the order given."""
    num_before: Counter[Degrees] = Counter()
    turns: list[tuple[int, Trial]] = []
    for trial in trials:
        turns.append((num_before[trial.shape.degrees], trial))
        num_before[trial.shape.degrees] += 1
    return [trial for _, trial in sorted(turns, key=itemgetter(0))]


def exchanged(plan: Plan, ground: Ground, left_s: Callable[[], float]) -> Plan:
    """The plan with rings in the best order, and machines at the worst edge exchanged, as long as that makes it better.

    The machines of the ground may be used. `left_s`: seconds that are left. A plan of one replica, and one of Hulk's
    own all-reduce, is left as it is: its links are those of regions.
    """
    if plan.layout.data == 1 or plan.algorithm == "wan":
        return plan
    workload, topology = ground.workload, ground.topology

    def variants(here: Plan) -> Iterator[Plan]:
        if 2 < here.layout.data <= MOST_REPLICAS:
            yield _in_quickest_rings(here, workload, topology)
        is_shared = workload.shares == "planned" and here.layout.pipeline == 1
        if is_shared:
            yield _shared_anew(here, workload, topology)
        for a, b in _exchanges(here, ground):
            yield (instead := _with_machines(here, {a: b, b: a}))
            if is_shared:
                yield _shared_anew(instead, workload, topology)

    most = min(MOST_LOOKED_AT, MOST_CELLS // (plan.layout.data * plan.layout.pipeline))
    return climb(plan, variants, most, workload, topology, left_s)


def _exchanges(plan: Plan, ground: Ground) -> Iterator[Pair]:
    """A machine at the worst edge and one of its region: no other exchange makes that edge quicker.

    Two in whose places each other's links and figures are the same are passed over: that changes nothing.
    """
    topology = ground.topology
    figures = dict(zip((machine.name for machine in ground.machines), ground.figures, strict=True))
    links = links_used(plan, ground.workload, topology, stage_groups(plan, ground.workload))
    pairs: dict[str, list[Pair]] = {}
    for pair in links:
        for name in pair:
            pairs.setdefault(name, []).append(pair)

    def is_change(a: str, b: str) -> bool:
        instead, crossed = {a: b, b: a}, (*pairs.get(a, ()), *pairs.get(b, ()))
        is_same = all(links[c, d] == topology.link(instead.get(c, c), instead.get(d, d)) for c, d in crossed)
        return figures[a] != figures[b] or not is_same

    for name in plan.prediction.bottleneck or ():
        region = topology.machine(name).region
        others = (other.name for other in ground.machines if other.region == region and other.name != name)
        yield from ((name, other) for other in others if is_change(name, other))


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
    groups = stage_groups(replace(plan, rings=()), workload)[:: plan.layout.width]
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
