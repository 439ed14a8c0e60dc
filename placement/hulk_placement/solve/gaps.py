"""The gap of a plan that has a part of the machines: against what no plan on all that its job may have beats."""

from __future__ import annotations

from dataclasses import replace

from hulk_placement.cost.closed_form.setting import Ground
from hulk_placement.cost.money import judged
from hulk_placement.layouts.admission import admitted
from hulk_placement.layouts.reasons import least_cost
from hulk_placement.layouts.space import space_of
from hulk_placement.layouts.trials import Trials
from hulk_placement.plan import Plan
from hulk_placement.search.why import none_better, unproven
from hulk_placement.solution import Unplaced
from hulk_placement.split.pools import usable_by
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload


def against_all(plan: Plan, workload: Workload, given: Topology, whole: Topology) -> Plan:
    """The plan with its gap on the whole topology; as it is where the job was given all that it may have of it.

    A plan of 600 ms, the best of one machine, is 90 % from the best possible where another is ten times as fast.
    """
    num_given, num_all = (sum(usable_by(workload, machine) for machine in at.machines) for at in (given, whole))
    machines = admitted(workload, whole)
    reached = judged(plan, workload)
    if num_given == num_all or isinstance(machines, Unplaced) or not reached:
        return plan
    ground = Ground.of(workload, whole, machines)
    gap = max(plan.optimality_gap, 1 - least_cost(Trials(ground), space_of(ground)) / reached)
    plan = replace(plan, optimality_gap=gap)
    when = f"with all {num_all} accelerators to itself, always busy"
    return replace(plan, why=(*unproven(plan), *none_better(plan, workload.objective, when)))
