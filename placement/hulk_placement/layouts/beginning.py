"""A plan that is carried out -> where a search begins: the same layout, as far as its machines are still there."""

from __future__ import annotations

import math
from itertools import groupby

import numpy as np

from hulk_placement.cost.closed_form.arrays import Ints, Layout, Setting
from hulk_placement.cost.closed_form.evaluate import evaluate
from hulk_placement.cost.closed_form.setting import Option
from hulk_placement.cost.closed_form.shares import num_batches_of_all
from hulk_placement.cost.compute import share_out
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import Shape, Trial, Trials
from hulk_placement.plan import Plan


def begin_at(trials: Trials, space: Space, plan: Plan) -> Trial | None:
    """Try the plan's layout, and keep it; None where too little is left of it, or the search may not have it.

    Replicas with a machine that lacks room fall away; the others share their sequences by what they had. An order of
    blocks of its own is no schedule of the search's: the usual one stands in its place.
    """
    schedule = space.options[0].schedule if plan.blocks else plan.schedule
    option = Option(plan.micro_batch, plan.layout.tensor, schedule, plan.recompute, plan.overlap, plan.layout.shard)
    if option not in space.options or plan.layout.pipeline not in space.pipelines:
        return None
    machine_DP, alive = _cells(trials, plan)
    if not alive or space.data not in (None, len(alive)):
        return None
    shape = Shape(option, len(alive), plan.layout.pipeline)
    if not space.admits(shape) or len(alive) > trials.num_batches(option):
        return None
    setting = trials.setting(option)
    layout = Layout(
        machine_DP=machine_DP,
        first_P=np.array([*plan.stages, len(trials.ground.workload.model.layers)]),
        shares_D=_shares(np.array([plan.shares[replica] for replica in alive]), setting),
        tour_W=_tour(plan, trials.ground.regions),
    )
    return trials.keep(shape, layout, evaluate(setting, layout, trials.cache(shape)))


def _cells(trials: Trials, plan: Plan) -> tuple[Ints, list[int]]:
    """The machines of the replicas that are still whole, and which replicas these are."""
    number = {machine.name: m for m, machine in enumerate(trials.ground.machines)}
    left = {machine.name: machine.num_accelerators // plan.layout.width for machine in trials.ground.machines}
    rows, alive = [], []
    for replica in range(plan.layout.data):
        machines = [plan.machine(replica, stage) for stage in range(plan.layout.pipeline)]
        if all(left.get(name, 0) >= machines.count(name) for name in machines):
            for name in machines:
                left[name] -= 1
            rows.append([number[name] for name in machines])
            alive.append(replica)
    return np.array(rows, np.int64).reshape(len(rows), plan.layout.pipeline), alive


def _shares(shares_D: Ints, setting: Setting) -> Ints:
    """The plan's shares where they are all of the global batch, else all of it by them; equally where that is asked."""
    if setting.is_equal:
        return np.array(share_out(setting.global_batch, shares_D.tolist()))
    if shares_D.sum() == setting.global_batch:
        return shares_D
    size = setting.micro_batch
    found_D = size * _batches(shares_D, num_batches_of_all(setting))
    for _ in range(int(found_D.sum()) - setting.global_batch):
        found_D[int(found_D.argmax())] -= 1
    return found_D


def _batches(shares_D: Ints, num_batches: int) -> Ints:
    """So many micro-batches, by shares, one at least each; what is over goes to those that have least for their share.

    >>> _batches(np.array([4, 4, 2]), 7)
    array([3, 3, 1])
    """
    exact_D = shares_D / shares_D.sum() * num_batches
    found_D: Ints = np.maximum(1, np.floor(exact_D).astype(np.int64))
    while found_D.sum() != num_batches:
        step = 1 if found_D.sum() < num_batches else -1
        lack_D = np.where((found_D > 1) | (step > 0), step * (exact_D - found_D), -math.inf)
        found_D[int(np.argmax(lack_D))] += step
    return found_D


def _tour(plan: Plan, regions: tuple[str, ...]) -> Ints:
    """The regions in the direction in which the first stage's ring sends, then those that it does not visit."""
    number = {region: r for r, region in enumerate(regions)}
    region_of = {worker.machine: worker.region for worker in plan.workers}
    flow = [region_of[plan.machine(replica, 0)] for replica in plan.ring(0)][::-1]
    visits = [number[region] for region, _ in groupby(flow) if region in number]
    return np.array([*dict.fromkeys(visits), *(r for r in range(len(regions)) if r not in visits)])
