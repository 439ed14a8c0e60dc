"""Jobs that are alike, planned as one: a plan is searched for once, and copied to machines that are alike.

Alike are jobs that differ in name, age and steps alone, and machines of one region that differ in name, in what is free
on them, in measured speed and in links of their own: a copy is priced on its own machines, and passes where its step
costs at most SLOWER more. Where there is no room for another copy the next plan is searched for on what is left.

100 jobs of 2 workers on 100 machines of 2 accelerators, in 4 regions that are alike, are 4 searches: each finds a plan
on one machine, which is copied to the region's 24 others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hulk_placement.cost.memory import fits
from hulk_placement.cost.money import judged
from hulk_placement.cost.predict import predict
from hulk_placement.fit import misfits, unknown_links
from hulk_placement.plan import Plan
from hulk_placement.solution import Unplaced
from hulk_placement.topology import Topology, less
from hulk_placement.words import counted
from hulk_placement.workload import Workload

SLOWER = 0.02
"""What a copy may cost more than the plan that it is one of, as a part of that: speeds are measured no better."""

Place = Callable[[Workload, Topology, int], Plan | Unplaced]
"""The plan of a job on what is left, and for how many jobs it is looked for."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Plans by key, reasons for jobs that have no room, and what the plan of each costs if it comes first."""

    plans: Mapping[str, Plan]
    refused: Mapping[str, Unplaced]
    least: Mapping[str, float]
    num_searches: int


@dataclass
class Kind:
    """Jobs that are alike; `pods`: how many of their workers each machine has room for beside those that are planned.

    `patterns`: plans that may be copied.
    """

    waiting: list[Workload]
    pods: Counter[str]
    least: float = 0.0
    patterns: list[Plan] = field(default_factory=list)
    refused: Unplaced | None = None


def copies(workloads: Sequence[Workload], topology: Topology, place: Place) -> Copies | None:
    """A plan for each job, in their order; None where that is no less work than to plan them one by one.

    None too where jobs have pins, or would have to share what is not enough for all.
    """
    kinds = kinds_of(workloads)
    if 2 * len(kinds) > len(workloads) or any(workload.pins for workload in workloads) or _share(workloads, topology):
        return None
    kind_of = {job.key: kind for kind in kinds for job in kind.waiting}
    machines, refused = Machines(topology), dict[str, Unplaced]()
    for job in workloads:
        kind = kind_of[job.key]
        plan = machines.copy(kind, job)
        while plan is None and kind.refused is None:
            if machines.num_searches > len(kinds) + len(machines.plans) // 2:
                return None
            machines.search(kind, job, place)
            plan = machines.copy(kind, job)
        kind.waiting.remove(job)
        if plan is not None:
            machines.take(kind, plan)
        elif kind.refused is not None:
            refused[job.key] = kind.refused
    others = counted(len(workloads) - 1, "other job")
    said = f"Planned together with {others}: those that are alike have one layout, on machines that are alike."
    plans = {plan.key: replace(plan, why=(*plan.why, said)) for plan in machines.plans}
    return Copies(plans, refused, {key: kind_of[key].least for key in plans}, machines.num_searches)


def _share(workloads: Sequence[Workload], topology: Topology) -> bool:
    """Whether there are too few accelerators for all jobs, and some may have fewer than they ask for."""
    num_asked = sum(job.max_workers * job.accelerators_per_worker for job in workloads)
    num_free = sum(machine.num_accelerators for machine in topology.machines)
    return num_asked > num_free and any(job.min_workers < job.max_workers for job in workloads)


def kinds_of(workloads: Sequence[Workload]) -> list[Kind]:
    """The jobs that are alike together, in their order."""
    found: list[tuple[Workload, Kind]] = []
    for job in workloads:
        bare = replace(job, key="-", attempt=1, created_s=0.0, num_steps=None)
        kind = next((kind for other, kind in found if other == bare), None)
        if kind is None:
            found.append((bare, kind := Kind([], Counter(job.candidates))))
        kind.waiting.append(job)
    return [kind for _, kind in found]


def _typical(kind: Kind) -> Workload:
    """One of the jobs that wait, with as many steps as they make in the mean, on what is left for them."""
    steps = [job.num_steps for job in kind.waiting if job.num_steps is not None]
    mean = sum(steps) / len(steps) if len(steps) == len(kind.waiting) else None
    return replace(kind.waiting[0], num_steps=mean, candidates=dict(kind.pods))


class Machines:
    """What is free on each machine beside the plans that were made, and which machines are alike."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.plans: list[Plan] = []
        self.num_searches = 0
        self._free = Counter({machine.name: machine.num_accelerators for machine in topology.machines})
        self._linked = {name for pair in topology.node_links for name in pair}
        bare = ((m.name, replace(m, name="-", zone="", num_accelerators=0)) for m in topology.machines)
        self._figures = {name: (machine, replace(machine, flops_per_s=None)) for name, machine in bare}
        self._alike: dict[object, list[str]] = {}
        for name, (_, rough) in self._figures.items():
            self._alike.setdefault(rough, []).append(name)

    def search(self, kind: Kind, job: Workload, place: Place) -> None:
        """Another plan of the kind to copy, the first one on all machines; or why there is none."""
        held: Counter[str] = Counter()
        for plan in self.plans if kind.patterns else ():
            held.update(plan.accelerators())
        asked = replace(_typical(kind), key=job.key, attempt=job.attempt)
        found = place(asked, less(self.topology, held), len(kind.waiting))
        self.num_searches += 1
        if isinstance(found, Unplaced):
            kind.refused = found
        else:
            kind.least = kind.least or judged(found, job)
            kind.patterns.append(found)

    def take(self, kind: Kind, plan: Plan) -> None:
        """Keep a plan: what it holds is not free any more."""
        self.plans.append(plan)
        self._free.subtract(plan.accelerators())
        kind.pods.subtract(worker.machine for worker in plan.workers)

    def copy(self, kind: Kind, job: Workload) -> Plan | None:
        """A plan of the kind for the job where there is room for it; None where there is none."""
        for pattern in kind.patterns:
            instead = self._instead(kind, pattern, job)
            plan = None if instead is None else self._copied(pattern, instead, job)
            if plan is not None:
                return plan
        return None

    def _instead(self, kind: Kind, pattern: Plan, job: Workload) -> dict[str, str] | None:
        """A machine for each of a plan: alike if possible in every figure, and as full as can be."""
        found: dict[str, str] = {}
        for name, num in sorted(pattern.accelerators().items(), key=lambda held: -held[1]):
            num_pods = num // job.accelerators_per_worker
            others = [
                (self._is_like(name, other, job), -self._free[other], -kind.pods[other], -number, other)
                for number, other in enumerate(self._alike[self._figures[name][1]])
                if self._free[other] >= num and kind.pods[other] >= num_pods and other not in found.values()
            ]
            if not others:
                return None
            found[name] = max(others)[-1]
        return found

    def _is_like(self, name: str, other: str, job: Workload) -> bool:
        """Whether nothing that is known of two machines differs."""
        if name == other:
            return True
        measured = (job.flops_per_s, job.likely_flops_per_s, job.measured_micro_batch)
        is_linked = name in self._linked or other in self._linked
        is_equal = self._figures[name] == self._figures[other]
        return is_equal and not is_linked and all(known.get(name) == known.get(other) for known in measured)

    def _copied(self, pattern: Plan, instead: Mapping[str, str], job: Workload) -> Plan | None:
        """The plan on other machines; None where they are not as good."""
        workers = tuple(replace(worker, machine=instead[worker.machine]) for worker in pattern.workers)
        why = _renamed(pattern.why, instead)
        plan = replace(pattern, key=job.key, attempt=job.attempt, workers=workers, why=why)
        if all(self._is_like(name, other, job) for name, other in instead.items()):
            pair = pattern.prediction.bottleneck
            bottleneck = None if pair is None else (instead[pair[0]], instead[pair[1]])
            return replace(plan, prediction=replace(pattern.prediction, bottleneck=bottleneck))
        if unknown_links(plan, job, self.topology) or any(misfits(plan, job, self.topology)):
            return None
        plan = replace(plan, prediction=predict(plan, job, self.topology))
        most = (1 + SLOWER) * judged(pattern, job)
        return plan if judged(plan, job) <= most and fits(plan, job, self.topology) else None


def _renamed(why: Sequence[str], instead: Mapping[str, str]) -> tuple[str, ...]:
    """What is said of a plan, with the machines exchanged that the copy has in place of others."""
    full = _exchange(instead)
    names = "|".join(re.escape(name) for name in sorted(full, key=len, reverse=True))
    whole = re.compile(rf"(?<![\w.-])(?:{names})(?![\w-]|\.\w)")
    return tuple(whole.sub(lambda found: full[found[0]], said) for said in why)


def _exchange(instead: Mapping[str, str]) -> dict[str, str]:
    """All machines that change places where some take others' places.

    >>> _exchange({"a": "b", "b": "c"})
    {'a': 'b', 'b': 'c', 'c': 'a'}
    """
    before, full = {new: old for old, new in instead.items()}, dict(instead)
    for new in instead.values():
        first = new
        while new not in instead and first in before:
            first = before[first]
        full.setdefault(new, first)
    return full
