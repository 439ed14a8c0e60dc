"""What may be used for one workload, with a reason for everything that may not.

Turns a workload and the free part of the topology into slots (one worker each), or into the sentence that says why the
workload cannot run now. Machines and regions keep the order the topology lists them in, and are numbers from here on:
no decision depends on a name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from hulk_placement.accelerators.framework_memory import framework_memory
from hulk_placement.cost.compute import speeds
from hulk_placement.search.would_fit import parameters_words, tokens_words, would_fit
from hulk_placement.solution import Unplaced
from hulk_placement.topology import LinkKind, Machine, Topology
from hulk_placement.training_memory import NO_OVERHEAD
from hulk_placement.words import counted, gib, some
from hulk_placement.workload import Workload

NO_MEMORY = "NoMemory"
"""Why a workload is not placed where no machine has the memory for a whole model."""
NOT_ADMITTING = "may not run the job's pods by nodeSelector, affinity, taint, cordon or an earlier failure"
NO_ROOM = "whose free CPU, memory or other resources hold no worker's pod"
"""What machines are whose accelerators are free for nobody."""


@dataclass(frozen=True)
class Problem:
    """The machines one workload may use. Per machine: its region, how many workers it can take, FLOP/s per accelerator.

    `left_out` says in sentences which machines were not considered.
    """

    workload: Workload
    topology: Topology
    names: tuple[str, ...]
    regions: tuple[str, ...]
    region_of: tuple[int, ...]
    num_slots: tuple[int, ...]
    speed: tuple[float, ...]
    left_out: tuple[str, ...]

    @cached_property
    def max_workers(self) -> int:
        """The most workers a plan may have: asked for, free, and one sequence per rank."""
        by_batch = self.workload.global_batch // self.workload.accelerators_per_worker
        return min(self.workload.max_workers, sum(self.num_slots), by_batch)

    @cached_property
    def is_uneven(self) -> bool:
        """Whether shares of the batch are planned, and machines differ."""
        return self.workload.shares == "planned" and len(set(self.speed)) > 1

    @cached_property
    def useful_slots(self) -> tuple[int, ...]:
        """`num_slots`, none above the most workers: one machine may offer a million."""
        return tuple(min(slots, self.max_workers) for slots in self.num_slots)

    @cached_property
    def slots_by_region(self) -> tuple[tuple[int, ...], ...]:
        """The machine of each useful slot of each region, fastest first."""
        slots = [machine for machine, num in enumerate(self.useful_slots) for _ in range(num)]
        found: list[list[int]] = [[] for _ in self.regions]
        for machine in sorted(slots, key=lambda machine: (-self.speed[machine], machine)):
            found[self.region_of[machine]].append(machine)
        return tuple(map(tuple, found))

    @cached_property
    def slot_speeds(self) -> tuple[float, ...]:
        """The speeds of all useful slots, fastest first."""
        return tuple(sorted((self.speed[m] for slots in self.slots_by_region for m in slots), reverse=True))


def build(workload: Workload, topology: Topology) -> Problem | Unplaced:
    """The workload's problem, or why it has none."""
    refused = _refuse_request(workload)
    if refused:
        return refused
    sieve = Sieve(workload, list(topology.machines))
    sieve.keep(lambda m: m.name in workload.candidates, NOT_ADMITTING)
    if workload.regions:
        sieve.keep(lambda m: m.region in workload.regions, f"outside the regions {', '.join(workload.regions)}")
    if not sieve.machines:
        return Unplaced("NoCandidates", f"None of {len(topology.machines)} machines is allowed: {sieve.reasons()}.")
    sieve.keep(_has_memory(workload), _too_small(workload, sieve.machines))
    if not sieve.machines:
        return Unplaced(NO_MEMORY, _no_memory(workload, sieve.last))
    sieve.keep(lambda m: has_room_for_a_pod(workload, m), NO_ROOM)
    before = list(sieve.machines)
    sieve.keep(lambda m: slots(workload, m) > 0, f"without {workload.accelerators_per_worker} free accelerators")
    num_free = sum(slots(workload, m) for m in sieve.machines)
    if num_free < workload.min_workers:
        return Unplaced("NotEnoughAccelerators", _not_enough(workload, before, num_free, sieve))
    if not workload.allow_unknown_links:
        sieve.machines = _one_per_unknown_inside(workload, topology, sieve)
    num_joined = sum(slots(workload, m) for m in sieve.machines)
    if num_joined < workload.min_workers:
        return Unplaced("OnlyUnknownLinks", _not_joined(workload, sieve, num_free, num_joined))
    return _problem(workload, topology, sieve)


class Sieve:
    """Machines that passed so far, and a phrase for each group that did not."""

    def __init__(self, workload: Workload, machines: list[Machine]) -> None:
        self.workload, self.machines = workload, machines
        self.last: list[Machine] = []
        self.phrases: list[str] = []

    def keep(self, passes: Callable[[Machine], bool], phrase: str) -> None:
        failed = [machine for machine in self.machines if not passes(machine)]
        if failed:
            self.last = failed
            self.machines = [machine for machine in self.machines if passes(machine)]
            self.phrases.append(f"{len(failed)} {phrase} ({some(m.name for m in failed)})")

    def reasons(self) -> str:
        return "; ".join(self.phrases)


def _refuse_request(workload: Workload) -> Unplaced | None:
    num_ranks = workload.min_workers * workload.accelerators_per_worker
    if num_ranks > workload.global_batch:
        return Unplaced(
            "BatchTooSmall",
            f"{counted(workload.min_workers, 'worker')} of {counted(workload.accelerators_per_worker, 'accelerator')} "
            f"{'is' if workload.min_workers == 1 else 'are'} {counted(num_ranks, 'rank')}, but the global batch has "
            f"only {counted(workload.global_batch, 'sequence')}: each rank needs at least one.",
        )
    return None


def _least_memory(workload: Workload) -> int:
    return workload.replica_bytes(workload.micro_batch or 1)


def _has_memory(workload: Workload) -> Callable[[Machine], bool]:
    need = _least_memory(workload)
    return lambda machine: workload.room_bytes(machine) >= need


def _too_small(workload: Workload, machines: list[Machine]) -> str:
    has_framework = any(workload.overhead(framework_memory(m.product)) != NO_OVERHEAD for m in machines)
    beside = " besides the framework's" if has_framework else ""
    return f"with less accelerator memory than {gib(_least_memory(workload))}{beside}"


def _no_memory(workload: Workload, machines: list[Machine]) -> str:
    most = max(machines, key=lambda m: m.memory_bytes)
    overhead, least = workload.overhead(framework_memory(most.product)), _least_memory(workload)
    state = replace(workload, model=workload.model.without_activations()).replica_bytes(1)
    need = (
        f"A rank needs {gib(round(overhead.total(least)))} ({parameters_words(workload.model)}, {workload.optimizer}, "
        f"micro-batch {workload.micro_batch or 1}{tokens_words(workload)}; {gib(state)} without activations"
        f"{overhead.words(least)}); the "
        f"largest accelerator among {len(machines)} machines has {gib(most.memory_bytes)} ({most.name}, "
        f"{most.product})."
    )
    smaller = would_fit(workload, lambda asked: _least_memory(asked) <= asked.room_bytes(most))
    return f"{need} {smaller}".rstrip()


def slots(workload: Workload, machine: Machine) -> int:
    """How many whole workers a machine has room for."""
    return min(workload.candidates[machine.name], machine.num_accelerators // workload.accelerators_per_worker)


def has_room_for_a_pod(workload: Workload, machine: Machine) -> bool:
    """Whether what is free beside accelerators (CPU, memory) holds a pod; not asked where accelerators lack as well."""
    return workload.candidates[machine.name] > 0 or machine.num_accelerators < workload.accelerators_per_worker


def _not_enough(workload: Workload, machines: list[Machine], num_free: int, sieve: Sieve) -> str:
    free = [m.num_accelerators for m in machines]
    workers, each = counted(workload.min_workers, "worker"), counted(workload.accelerators_per_worker, "accelerator")
    largest = f", the largest has {max(free)}" if free else ""
    others = [phrase for phrase in sieve.phrases if NO_ROOM in phrase]
    return (
        f"Needs at least {workers} of {each}; there is room for {num_free}: {counted(len(free), 'machine')} "
        f"{'has' if len(free) == 1 else 'have'} {counted(sum(free), 'accelerator')} free{largest}"
        f"{''.join(f'; {phrase}' for phrase in others)}."
    )


def _not_joined(workload: Workload, sieve: Sieve, num_free: int, num_joined: int) -> str:
    return (
        f"Needs at least {counted(workload.min_workers, 'worker')}; there is room for {num_free}, but known links join "
        f"at most {num_joined} of them, {counted(len(sieve.machines), 'machine')}: not {sieve.reasons()}."
    )


def _one_per_unknown_inside(workload: Workload, topology: Topology, sieve: Sieve) -> list[Machine]:
    """In a region about whose inside nothing is known, machines cannot be joined: its roomiest, then fastest, stays."""
    by_region: dict[str, list[Machine]] = {}
    for machine in sieve.machines:
        by_region.setdefault(machine.region, []).append(machine)
    speed = speeds(workload, topology, (m.name for m in sieve.machines))
    kept: set[str] = set()
    for region, machines in by_region.items():
        if topology.region_link(region, region).kind is not LinkKind.UNKNOWN:
            kept.update(m.name for m in machines)
            continue
        best = max(machines, key=lambda m: (slots(workload, m), speed[m.name]))
        kept.add(best.name)
        if len(machines) > 1:
            sieve.phrases.append(
                f"{len(machines) - 1} in {region}, whose inner links are unknown (only {best.name} is used)"
            )
    return [machine for machine in sieve.machines if machine.name in kept]


def _problem(workload: Workload, topology: Topology, sieve: Sieve) -> Problem:
    machines = sieve.machines
    regions = tuple(dict.fromkeys(machine.region for machine in machines))
    index = {region: number for number, region in enumerate(regions)}
    speed = speeds(workload, topology, (m.name for m in machines))
    return Problem(
        workload=workload,
        topology=topology,
        names=tuple(m.name for m in machines),
        regions=regions,
        region_of=tuple(index[m.region] for m in machines),
        num_slots=tuple(slots(workload, m) for m in machines),
        speed=tuple(speed[m.name] for m in machines),
        left_out=tuple(sieve.phrases),
    )
