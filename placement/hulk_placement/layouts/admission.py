"""Which machines a workload of any layout may use, or the sentence that says why there are too few."""

from __future__ import annotations

import math
from dataclasses import replace

from hulk_placement.cost.closed_form.setting import holds_workers
from hulk_placement.cost.money import LIMIT_ROUNDING, least_per_hour
from hulk_placement.layer_pins import stages_needed
from hulk_placement.search.problem import NO_ROOM, NOT_ADMITTING, Sieve, has_room_for_a_pod, slots
from hulk_placement.solution import Unplaced
from hulk_placement.topology import Machine, Topology
from hulk_placement.words import counted
from hulk_placement.workload import Workload, replicas_words


def admitted(workload: Workload, topology: Topology) -> tuple[Machine, ...] | Unplaced:
    """The machines that may be used, with as many accelerators as the job's pods may hold there."""
    if words := replicas_words(workload.data, workload.micro_batch, workload.global_batch):
        return Unplaced("BatchTooSmall", f"{words}.")
    sieve = Sieve(workload, list(topology.machines))
    sieve.keep(lambda m: m.name in workload.candidates, NOT_ADMITTING)
    if workload.regions:
        sieve.keep(lambda m: m.region in workload.regions, f"outside the regions {', '.join(workload.regions)}")
    if not sieve.machines:
        return Unplaced("NoCandidates", f"None of {len(topology.machines)} machines is allowed: {sieve.reasons()}.")
    each, least = workload.accelerators_per_worker, (workload.tensor or 1) * (workload.shard or 1)
    sieve.keep(lambda m: has_room_for_a_pod(workload, m), NO_ROOM)
    of_workers = f" for workers of {each}" if each > 1 else ""
    largest = max((m.num_accelerators for m in sieve.machines), default=0)
    of_largest = f"; the largest machine has {largest}" if each > 1 and largest else ""
    if each > 1:
        sieve.keep(lambda m: slots(workload, m) > 0, f"without {each} free accelerators")
    sieve.machines = [_offered(workload, machine) for machine in sieve.machines]
    sieve.keep(
        lambda m: m.num_accelerators >= least,
        f"with {'no accelerator' if least == 1 else f'fewer than {least} accelerators'} free{of_workers}",
    )
    sieve.keep(
        lambda m: holds_workers(m, each, least),
        f"without room for a whole worker of {each} in {_cells_words(workload)}",
    )
    num_free = sum(machine.num_accelerators for machine in sieve.machines)
    needed = accelerators_needed(workload)
    if num_free < needed:
        return Unplaced(
            "NotEnoughAccelerators",
            f"Needs at least {counted(needed, 'accelerator')}; {num_free} {'is' if num_free == 1 else 'are'} free"
            f"{of_workers}{': ' * bool(sieve.phrases)}{sieve.reasons()}{of_largest}.",
        )
    num_layers = len(workload.model.layers)
    if workload.pipeline is not None and workload.pipeline > num_layers:
        words = f"{counted(workload.pipeline, 'stage')} are asked for, and the model has {counted(num_layers, 'layer')}"
        return Unplaced("MoreStagesThanLayers", f"{words}: each stage needs one at least.")
    return _pins_apart(workload, sieve.machines) or _pins_above(workload, sieve.machines) or tuple(sieve.machines)


def _pins_apart(workload: Workload, machines: list[Machine]) -> Unplaced | None:
    """That no machine is where a pin binds layers to, or that two pins need more stages than are asked for."""
    for pin in workload.layer_pins:
        if not any(map(pin.allows, machines)):
            return Unplaced("PinsNotPossible", f"A pin has {pin.words}, and none of {len(machines)} machines is there.")
    pins, needed = workload.layer_pins, stages_needed(workload.layer_pins, machines)
    if needed.apart is None or needed.num_stages <= (workload.pipeline or needed.num_stages):
        return None
    first, second = (pins[number].words for number in needed.apart)
    return Unplaced(
        "ContradictoryPlacement",
        f"Pins of {first} and of {second} have no machine in common: they need {needed.num_stages} stages, and "
        f"{workload.pipeline} is asked for.",
    )


def _pins_above(workload: Workload, machines: list[Machine]) -> Unplaced | None:
    """That the accelerators of a pin's layers, and the cheapest others, cost more than a price limit allows."""
    limit, num_pinned = (
        workload.max_price_per_hour,
        (workload.data or 1) * (workload.tensor or 1) * (workload.shard or 1),
    )
    if limit is None:
        return None
    num_others = max(0, accelerators_needed(workload) - num_pinned)
    others = least_per_hour(((m.price_per_hour, m.num_accelerators) for m in machines), num_others)
    for pin in workload.layer_pins:
        here = [(m.price_per_hour, m.num_accelerators) for m in machines if pin.allows(m)]
        least = least_per_hour(here, num_pinned) + others
        if least > limit * LIMIT_ROUNDING:
            return Unplaced(
                "ContradictoryPlacement",
                f"A pin has {pin.words}, where {counted(num_pinned + num_others, 'accelerator')} cost at least "
                f"{least:g} an hour; at most {limit:g} an hour is asked for: the two exclude each other.",
            )
    return None


def _offered(workload: Workload, machine: Machine) -> Machine:
    """The machine with no more accelerators than the job's pods may hold there: those of whole workers."""
    most = slots(workload, machine) * workload.accelerators_per_worker
    return machine if machine.num_accelerators == most else replace(machine, num_accelerators=most)


def _cells_words(workload: Workload) -> str:
    tensor, shard = workload.tensor or 1, workload.shard or 1
    return f"tensor-parallel ranks of {tensor}" if shard == 1 else f"{shard} shards of {tensor}"


def accelerators_needed(workload: Workload) -> int:
    """The least that are asked for, as workers or by degrees."""
    asked = math.prod(degree or 1 for degree in (workload.data, workload.pipeline, workload.tensor, workload.shard))
    return max(workload.min_workers * workload.accelerators_per_worker, asked)
