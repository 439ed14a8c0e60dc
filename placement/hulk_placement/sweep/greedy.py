"""A plan at once: the longest trial first, each where it ends soonest, in ways that were chosen beforehand.

Longest first is within 4/3 of the best where every trial takes one device (Graham 1969). Which way a trial takes
follows from a deadline (Turek, Wolf & Yu 1992; Ludwig & Tiwari 1994): the one with the least device-time that keeps it,
because many devices for one trial are wasted while others wait. Deadlines that promise most are tried, and every trial
in any way as well. CP-SAT begins with the shortest of these plans, and it is taken where CP-SAT finds nothing in time.

| 4 devices; 4 trials, each 4 s on one or 2 s on four | ways | plan |
|---|---|---|
| each where it ends soonest | four devices each | 8 s |
| deadline 4 s | one device each | 4 s |
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from hulk_placement.sweep.problem import Option, Placed, Plan, Problem, Trial

NUM_DEADLINES: Final = 8
"""So many are tried, those with the least bounds."""


class Devices:
    """When each device of each worker is free, as trials are placed one by one."""

    def __init__(self, problem: Problem) -> None:
        self._free_s = {worker.name: list(worker.free_s or (0.0,) * worker.num_devices) for worker in problem.workers}

    def soonest(self, trial: str, option: Option, worker: str) -> Placed:
        """On the worker's devices that are free first."""
        free_s = self._free_s[worker]
        first = sorted(range(len(free_s)), key=lambda device: (free_s[device], device))[: option.num_devices]
        return Placed(trial, option, worker, tuple(sorted(first)), max(free_s[device] for device in first))

    def take(self, placed: Placed) -> Placed:
        """Its devices are free again when it is done."""
        for device in placed.devices:
            self._free_s[placed.worker][device] = placed.end_s
        return placed


def greedy(problem: Problem) -> Plan:
    """Never empty; the bound is the plain one."""
    chosen = [problem.trials, *_in_time(problem)]
    return min((in_order(problem, _longest_first(trials)) for trials in chosen), key=lambda plan: plan.makespan_s)


def _longest_first(trials: Iterable[Trial]) -> list[Trial]:
    return sorted(trials, key=lambda one: (-min(option.seconds for option in one.options), one.name))


def _in_time(problem: Problem) -> list[tuple[Trial, ...]]:
    """The trials with one way each, by the deadlines whose plans can be the shortest."""
    able = [replace(t, options=tuple(o for o in t.options if problem.places(t, o))) for t in problem.trials]
    deadlines = sorted({option.seconds for trial in able for option in trial.options})
    if len(deadlines) < 2:
        return []
    num_devices = sum(worker.num_devices for worker in problem.workers)
    found = {tuple(_within(trial, deadline_s) for trial in able): None for deadline_s in deadlines}
    return sorted(found, key=lambda trials: _bound_s(trials, num_devices))[:NUM_DEADLINES]


def _within(trial: Trial, deadline_s: float) -> Trial:
    """The way with the least device-time that keeps the deadline, or else the fastest."""
    fitting = [option for option in trial.options if option.seconds <= deadline_s]
    if not fitting:
        return replace(trial, options=(min(trial.options, key=lambda o: o.seconds),))
    return replace(trial, options=(min(fitting, key=lambda o: (o.seconds * o.num_devices, o.seconds)),))


def _bound_s(trials: Sequence[Trial], num_devices: int) -> float:
    ways = [trial.options[0] for trial in trials]
    return max(max(o.seconds for o in ways), sum(o.seconds * o.num_devices for o in ways) / num_devices)


def in_order(problem: Problem, trials: Iterable[Trial]) -> Plan:
    """The trials in that order, each in the way and the place in which it ends soonest."""
    devices, placed = Devices(problem), []
    for trial in trials:
        ways = [
            devices.soonest(trial.name, option, worker.name)
            for option in trial.options
            for worker in problem.places(trial, option)
        ]
        best = min(ways, key=lambda one: (one.end_s, one.option.num_devices, one.worker))
        placed.append(devices.take(best))
    bound_s = problem.bound_s()
    plan = Plan(tuple(placed), bound_s, False)
    return Plan(plan.placed, bound_s, plan.makespan_s <= bound_s)
