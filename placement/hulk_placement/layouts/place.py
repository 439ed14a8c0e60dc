"""One workload to one plan of any layout: which machines may be used, the search, the transport, the reasons."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from hulk_placement.cost import predict
from hulk_placement.cost.closed_form.setting import Ground
from hulk_placement.layouts import reasons
from hulk_placement.layouts.admission import admitted
from hulk_placement.layouts.plans import plan_of
from hulk_placement.layouts.searches import SEARCHES
from hulk_placement.layouts.space import space_of
from hulk_placement.layouts.trials import Trial, Trials
from hulk_placement.plan import Plan
from hulk_placement.search.problem import Budget, Unplaced
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

SEARCH_SHARE = 0.9
"""Of the seconds; the others are for making plans of what was found."""

NUM_PLANNED = 4
"""Layouts of which plans are made, to choose between by what they are predicted."""

NUM_BUCKETS = (1, 2)


def place(
    workload: Workload,
    topology: Topology,
    budget: Budget,
    clock: Callable[[], float] = time.monotonic,
    search: str = "portfolio",
) -> Plan | Unplaced:
    """The best plan of any layout that the search finds within the budget, or why there is none."""
    machines = admitted(workload, topology)
    if isinstance(machines, Unplaced):
        return machines
    trials = Trials(Ground.of(workload, topology, machines))
    space = space_of(trials.ground)
    end_s = clock() + SEARCH_SHARE * budget.seconds

    def going_on() -> bool:
        return trials.num_evaluations < budget.iterations and clock() < end_s

    SEARCHES[search](trials, space, going_on, budget.seed)
    found = [plan for trial in trials.best(NUM_PLANNED) if trials.is_possible(trial) for plan in _plans(trials, trial)]
    if not found:
        return reasons.impossible(trials, space)
    best = min(
        found, key=lambda plan: plan.prediction.price if workload.objective != "time" else plan.prediction.step_s
    )
    least_s = reasons.least_step_s(trials, space)
    best = replace(
        best,
        iterations=trials.num_evaluations,
        optimality_gap=0.0 if trials.is_proven else max(0.0, 1 - least_s / best.prediction.step_s),
    )
    return replace(best, why=reasons.sentences(trials, best))


def _plans(trials: Trials, trial: Trial) -> Iterator[Plan]:
    """The layout with each way to reduce its gradients that the workload allows, predicted."""
    workload, topology = trials.ground.workload, trials.ground.topology
    plain = plan_of(trials, trial)
    algorithms = ("ring", "hierarchical") if plain.layout.data > 1 and workload.sync.mode != "ring" else ("ring",)
    for algorithm in algorithms:
        for num_buckets in NUM_BUCKETS if plain.layout.data > 1 else (1,):
            plan = replace(plain, algorithm=algorithm, num_buckets=num_buckets)
            yield replace(plan, prediction=predict(plan, workload, topology))


def _value(plan: Plan, workload: Workload) -> float:
    """What is to be least."""
    return plan.prediction.step_s if workload.objective == "time" else plan.prediction.price
