"""Replicas whose parameters are sharded: a shard group inside a machine, or over alike machines of one region.

The search over layouts knows cells inside machines. A group that no machine has room for becomes one: alike machines of
a region stand for one of all their accelerators, and its plan is written out again over them. What is between them is
what such a machine's accelerators have between them. Each degree is tried apart; by what they are predicted the best
plan is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from hulk_placement.accelerators.framework_memory import framework_memory
from hulk_placement.cost import sharding
from hulk_placement.cost.compute import speeds
from hulk_placement.cost.pipelines import time_pipelines
from hulk_placement.cost.predict import predict
from hulk_placement.cost.traffic import sharding_bytes
from hulk_placement.layouts import place as layouts
from hulk_placement.layouts.data_parallel import best_of
from hulk_placement.layouts.space import tensor_degrees
from hulk_placement.plan import Plan, WorkerSlot
from hulk_placement.search.problem import NO_MEMORY, slots
from hulk_placement.solution import Budget, Unplaced
from hulk_placement.stages import staged
from hulk_placement.topology import Link, LinkKind, Machine, Topology
from hulk_placement.words import counted, gib
from hulk_placement.workload import Workload, replicas_words

Clock = Callable[[], float]

AT_ONCE = Link(rtt_s=0.0, bandwidth_bytes_per_s=1e30)


@dataclass(frozen=True, slots=True)
class Try:
    """A workload with one shard degree, on machines of which some stand for several: `parts` by their names."""

    workload: Workload
    topology: Topology
    parts: dict[str, tuple[tuple[str, int], ...]]


def needs_shards(workload: Workload, topology: Topology) -> bool:
    """Whether a workload that may have shards has no machine with the memory for a whole model."""
    need, model = workload.replica_bytes(workload.micro_batch or 1), workload.model
    allowed = [machine for machine in topology.machines if _may_use(workload, machine)]
    has_place = any(workload.room_bytes(machine) >= need for machine in allowed)
    return workload.shards_if_needed and model.is_counted and bool(allowed) and not has_place


def sharded(workload: Workload) -> Workload:
    """The workload with as many shards as are best, and its activations kept: a plan tells no program otherwise."""
    return replace(workload, shard=None, recompute=workload.recompute or False, shards_if_needed=False)


def place_sharded(
    workload: Workload, topology: Topology, budget: Budget, clock: Clock, start: Plan | None = None
) -> Plan | Unplaced:
    """The best plan with the shard degree that is asked for, else of all that there is room for; or why there is none.

    Tensor parallelism is tried where the workload leaves it open and shards alone do not do. Stages are, where the
    workload may have these in place of shards: the quicker ones are planned.
    """
    if not workload.stages_if_needed:
        return _place_sharded(workload, topology, budget, clock, start)
    half = replace(budget, seconds=budget.seconds / 2, iterations=max(1, budget.iterations // 2))
    found = _place_sharded(replace(workload, stages_if_needed=False), topology, half, clock, start)
    stages = layouts.place(staged(replace(workload, shard=1)), topology, half, clock, start=start)
    if isinstance(found, Unplaced) or isinstance(stages, Unplaced):
        return stages if isinstance(found, Unplaced) else found
    best = best_of((found, stages), workload)
    return replace(best, why=tuple(dict.fromkeys((*_sentences(best, workload, topology), *best.why))))


def _place_sharded(
    workload: Workload, topology: Topology, budget: Budget, clock: Clock, start: Plan | None
) -> Plan | Unplaced:
    degrees = [workload.shard] if workload.shard is not None else _degrees(workload, topology)
    if words := replicas_words(
        (workload.data or 1) * min(degrees, default=1), workload.micro_batch, workload.global_batch, "ranks"
    ):
        return Unplaced("BatchTooSmall", f"{words}.")
    if not degrees:
        return layouts.place(replace(workload, shard=1), topology, budget, clock)
    refused: list[Unplaced] = []
    tensors = [workload.tensor] if workload.tensor is not None else tensor_degrees(workload)
    for number, tensor in enumerate(tensors):
        tries = [one for shard in degrees for one in _tries(workload, topology, shard, tensor)]
        part = replace(budget, seconds=budget.seconds / (number + 1))
        found = list(_placed(tries, workload, topology, part, clock, start))
        plans = [plan for plan in found if isinstance(plan, Plan)]
        if plans:
            best = best_of(plans, workload)
            return replace(best, why=(*_sentences(best, workload, topology), *best.why))
        refused += [one for one in found if isinstance(one, Unplaced)]
    return _refusal(workload, topology, degrees, refused)


def _placed(
    tries: Sequence[Try], workload: Workload, topology: Topology, budget: Budget, clock: Clock, start: Plan | None
) -> Iterator[Plan | Unplaced]:
    """The plan of each try over the machines that there are, or why there is none.

    A plan that is carried out is begun at where its groups are inside machines.
    """
    end_s = clock() + budget.seconds
    for number, one in enumerate(tries):
        part = replace(
            budget,
            seconds=max(0.01, (end_s - clock()) / (len(tries) - number)),
            iterations=max(1, budget.iterations // len(tries)),
        )
        is_there = start is not None and not one.parts and start.layout.shard == one.workload.shard
        found = layouts.place(one.workload, one.topology, part, clock, start=start if is_there else None)
        if isinstance(found, Plan):
            pods = _pods(found, one, workload)
            yield pods if isinstance(pods, Unplaced) else _predicted(pods, workload, topology)
        else:
            yield found


def _predicted(plan: Plan, workload: Workload, topology: Topology) -> Plan:
    """The plan as it is predicted over the very machines: which of them make up a group was not searched for.

    Nor was which stages gather layers for themselves. So far a plan that waits for nothing would be better.
    """
    found = predict(plan, workload, topology)
    spans = plan.layout.pipeline > 1 or len(plan.cell(0, 0)) > 1
    waits = 1 - found.compute_s / found.step_s if spans and found.step_s else 0.0
    return replace(plan, prediction=found, optimality_gap=max(plan.optimality_gap, waits))


def _may_use(workload: Workload, machine: Machine) -> bool:
    is_there = not workload.regions or machine.region in workload.regions
    return is_there and workload.candidates.get(machine.name, 0) > 0


def _offers(workload: Workload, topology: Topology) -> dict[Machine, int]:
    """Accelerators of whole workers, by machine."""
    each = workload.accelerators_per_worker
    found = {m: slots(workload, m) * each for m in topology.machines if _may_use(workload, m)}
    return {machine: num for machine, num in found.items() if num}


def _degrees(workload: Workload, topology: Topology) -> list[int]:
    """Powers of two that some region has room for, and the batch sequences."""
    room: dict[str, int] = {}
    for machine, num in _offers(workload, topology).items():
        room[machine.region] = room.get(machine.region, 0) + num
    most = min(max(room.values(), default=0), workload.max_workers * workload.accelerators_per_worker)
    most = min(
        most, workload.global_batch // ((workload.data or 1) * min(workload.micro_batch or 1, workload.global_batch))
    )
    return [1 << power for power in range(1, most.bit_length()) if 1 << power <= most]


def _tries(workload: Workload, topology: Topology, shard: int, tensor: int) -> Iterator[Try]:
    """Groups inside machines where there is one with room, and groups over several machines."""
    asked, width = replace(workload, shard=shard, tensor=tensor), shard * tensor
    offers = _offers(workload, topology)
    if any(num >= width for num in offers.values()):
        yield Try(asked, topology, {})
    units = {m: k for m, num in offers.items() if 0 < (k := _unit(workload, num, width, tensor)) < width}
    groups = list(_groups(workload, topology, units, width, tensor))
    if groups:
        yield _joined(asked, topology, groups, width)


def _unit(workload: Workload, num: int, width: int, tensor: int) -> int:
    """Accelerators of a machine in a group: as many as there are, of whole workers, that divide the group; 0: none.

    >>> from hulk_placement.model import Model
    >>> job = Workload("a/b", Model.of_totals(1000, 1.0), 8, {"m": 1}, accelerators_per_worker=2)
    >>> [_unit(job, num, 8, 1) for num in (1, 2, 6, 9)]
    [0, 2, 4, 8]
    """
    step = math.lcm(workload.accelerators_per_worker, tensor)
    return max((k for k in range(step, min(num, width) + 1, step) if width % k == 0), default=0)


def _groups(
    workload: Workload, topology: Topology, units: dict[Machine, int], width: int, tensor: int
) -> Iterator[tuple[tuple[Machine, int], ...]]:
    """Alike machines of a region, the slow ones together, as many as make up a group; each with its accelerators."""
    speed = speeds(workload, topology, (machine.name for machine in units))

    def kind(machine: Machine) -> tuple[object, ...]:
        return machine.region, machine.product, machine.memory_bytes, machine.price_per_hour, units[machine]

    ordered = sorted(units, key=lambda machine: (*map(str, kind(machine)), speed[machine.name], machine.name))
    for _, alike in groupby(ordered, kind):
        machines = list(alike)
        num = width // units[machines[0]]
        for first in range(0, len(machines) - num + 1, num):
            group = machines[first : first + num]
            ranks = _ranks(group, units[group[0]] // tensor)
            is_known = sharding.around(topology, ranks, tensor).kind is not LinkKind.UNKNOWN
            if is_known or workload.allow_unknown_links:
                yield tuple((machine, units[machine]) for machine in group)


def _ranks(machines: Sequence[Machine], num_each: int) -> list[str]:
    return [machine.name for machine in machines for _ in range(num_each)]


def _joined(asked: Workload, topology: Topology, groups: Sequence[tuple[tuple[Machine, int], ...]], width: int) -> Try:
    """The workload on the first, slowest machine of each group in place of all of them."""
    tensor = asked.tensor or 1
    heads: dict[str, Machine] = {}
    for group in groups:
        head, num_each = group[0]
        link = sharding.around(topology, _ranks([machine for machine, _ in group], num_each // tensor), tensor)
        nic = head.nic_bytes_per_s and head.nic_bytes_per_s * len(group)
        heads[head.name] = replace(head, num_accelerators=width, inside=link, nic_bytes_per_s=nic)
    return Try(
        replace(asked, candidates=dict.fromkeys(heads, width // asked.accelerators_per_worker), kept={}),
        replace(topology, machines=tuple(heads.get(machine.name, machine) for machine in topology.machines)),
        {group[0][0].name: tuple((machine.name, num) for machine, num in group) for group in groups},
    )


def _pods(plan: Plan, tried: Try, workload: Workload) -> Plan | Unplaced:
    """The plan over the machines that others stand for, in workers of as many accelerators as they have."""
    each = workload.accelerators_per_worker
    ranks = [
        (name, worker.region)
        for worker in plan.workers
        for name, num in tried.parts.get(worker.machine, ((worker.machine, worker.num_accelerators),))
        for _ in range(num)
    ]
    pods = [ranks[first : first + each] for first in range(0, len(ranks), each)]
    if any(len(set(pod)) > 1 for pod in pods):
        return Unplaced(
            "ContradictoryPlacement",
            f"Stages of {plan.layout.width} accelerators in workers of {each}: ranks of one worker would be on several "
            f"machines. A worker must have at most {plan.layout.width}, and a divisor of it.",
        )
    return replace(plan, workers=tuple(WorkerSlot(*pod[0], each) for pod in pods))


def _sentences(plan: Plan, workload: Workload, topology: Topology) -> Iterator[str]:
    """What is divided among how many, what it takes, and what it sends."""
    layout, layers = plan.layout, workload.model.layers
    if layout.shard == 1 or not workload.model.is_counted:
        return
    machine = topology.machine(plan.workers[0].machine)
    whole = workload.overhead(framework_memory(machine.product)).total(
        replace(workload, shard=1).replica_bytes(plan.micro_batch)
    )
    num_machines = max(len(plan.cell(0, stage)) for stage in range(layout.pipeline))
    where = "inside a machine" if num_machines == 1 else f"on {num_machines} machines of a region"
    divided = "each stage of a replica" if layout.pipeline > 1 else "a replica"
    num_batches = math.ceil(max(plan.shares) / plan.cell_batch)
    sent = num_batches * max(
        sharding_bytes(workload, first, last, layout.shard, layout.tensor)
        for first, last in zip(plan.stages, [*plan.stages[1:], len(layers)], strict=True)
    )
    yield (
        f"Parameters, gradients and optimizer states of {divided} are divided among {layout.shard} ranks {where}: an "
        f"accelerator holds {gib(plan.prediction.memory_bytes)} at most, a whole model would take {gib(round(whole))}. "
        f"Each of them sends {gib(round(sent))} a step there to gather layers and to reduce-scatter gradients, for "
        f"which a step computes {_waiting_s(plan, workload, topology):.3f} s longer."
    )
    yield (
        "The program must shard its model so: the mesh has dp_replicate "
        f"{layout.data}, dp_shard {layout.shard}, tp {layout.tensor}, pp {layout.pipeline}."
    )


def _waiting_s(plan: Plan, workload: Workload, topology: Topology) -> float:
    """How much less a step would compute if layers were gathered, and tensor ranks summed, at once."""
    free = Topology(
        tuple(replace(machine, inside=AT_ONCE, nic_bytes_per_s=None) for machine in topology.machines),
        region_links=dict.fromkeys(((machine.region, machine.region) for machine in topology.machines), AT_ONCE),
    )
    return plan.prediction.compute_s - float(time_pipelines(plan, workload, free).compute_DP.max())


def _refusal(workload: Workload, topology: Topology, degrees: Sequence[int], refused: Sequence[Unplaced]) -> Unplaced:
    """Of several reasons that of the largest degree which lacks memory: it lacks least."""
    if refused:
        return [*refused, *(one for one in refused if one.reason == NO_MEMORY)][-1]
    offers = _offers(workload, topology)
    largest = max(offers.values(), default=0)
    return Unplaced(
        "NotEnoughAccelerators",
        f"A shard group of {min(degrees)} x {workload.tensor or 1} accelerators has no room: the largest machine has "
        f"{counted(largest, 'free accelerator')}, and no region has alike machines that make up a group.",
    )
