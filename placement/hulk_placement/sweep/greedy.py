"""A plan at once: the longest trial first, each in the way and the place in which it ends soonest.

Longest first is within 4/3 of the best where every trial takes one device (Graham 1969); it is what CP-SAT begins with,
and what is taken where CP-SAT finds nothing in its time.
"""

from hulk_placement.sweep.problem import Option, Placed, Plan, Problem, Trial


def greedy(problem: Problem) -> Plan:
    """Never empty; the bound is the plain one."""
    free_s = {worker.name: list(worker.free_s or (0.0,) * worker.num_devices) for worker in problem.workers}
    placed = []
    for trial in sorted(problem.trials, key=lambda one: (-min(o.seconds for o in one.options), one.name)):
        best = min(_places(problem, trial, free_s), key=lambda one: (one.end_s, one.option.num_devices, one.worker))
        for device in best.devices:
            free_s[best.worker][device] = best.end_s
        placed.append(best)
    bound_s = problem.bound_s()
    plan = Plan(tuple(placed), bound_s, False)
    return Plan(plan.placed, bound_s, plan.makespan_s <= bound_s)


def _places(problem: Problem, trial: Trial, free_s: dict[str, list[float]]) -> list[Placed]:
    """Each way at each worker, on the devices that are free first."""
    return [
        _soonest(trial, option, worker.name, free_s[worker.name])
        for option in trial.options
        for worker in problem.places(trial, option)
    ]


def _soonest(trial: Trial, option: Option, worker: str, free_s: list[float]) -> Placed:
    first = sorted(range(len(free_s)), key=lambda device: (free_s[device], device))[: option.num_devices]
    return Placed(trial.name, option, worker, tuple(sorted(first)), max(free_s[device] for device in first))
