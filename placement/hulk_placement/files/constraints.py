"""Places in a workload document against its topology: which machines may be used, and which wishes exclude another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations

from hulk_placement.files.wishes import wishes
from hulk_placement.files.workload import Constraints, Pin, WorkloadFile
from hulk_placement.layer_pins import LayerPin, layers_in, layers_matching, stages_needed
from hulk_placement.model import Model
from hulk_placement.topology import Machine, Topology


def allowed_machines(asked: Constraints, topology: Topology) -> list[Machine]:
    """The machines that the constraints leave."""
    return [
        machine
        for machine in topology.machines
        if (asked.allowed_regions is None or machine.region in asked.allowed_regions)
        and machine.region not in (asked.denied_regions or ())
        and (asked.allowed_machines is None or machine.name in asked.allowed_machines)
        and machine.name not in (asked.denied_machines or ())
    ]


def layer_pins(asked: Constraints, model: Model) -> tuple[LayerPin, ...]:
    """The pins with their layers' numbers. ValueError where one means no layer."""
    return tuple(_pin(pin, f"constraints.pins[{number}]", model) for number, pin in enumerate(asked.pins))


def contradictions(document: WorkloadFile, model: Model, topology: Topology) -> list[str]:
    """A sentence for every wish that cannot be met on this topology, or not together with another, which it names."""
    strangers = [*_strangers(document.constraints, topology), *_unknown_speeds(document, topology)]
    if strangers:
        return strangers
    allowed = allowed_machines(document.constraints, topology)
    found = [*_places(document.constraints, topology, allowed)]
    if not allowed:
        who = _that(document.constraints, topology.machines, "leave")
        return [*found, f"{who} none of {len(topology.machines)} machines"]
    try:
        pins = layer_pins(document.constraints, model)
        found += [*_pins(pins, allowed)] or _stages(pins, document, allowed)
    except ValueError as error:
        found.append(str(error))
    return found + list(wishes(document, model, allowed))


def _pin(pin: Pin, where: str, model: Model) -> LayerPin:
    try:
        if pin.layers is not None:
            layers = layers_in(pin.layers, model.num_layers)
        else:
            layers = layers_matching(pin.parameters or "", [layer.name for layer in model.layers])
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return LayerPin(layers, pin.regions or (), pin.machines or ())


def _strangers(asked: Constraints, topology: Topology) -> Iterator[str]:
    """Names of regions and machines that the topology does not have."""
    regions = {machine.region for machine in topology.machines}
    machines = {machine.name for machine in topology.machines}
    named = [
        ("allowedRegions", asked.allowed_regions, regions),
        ("deniedRegions", asked.denied_regions, regions),
        ("allowedMachines", asked.allowed_machines, machines),
        ("deniedMachines", asked.denied_machines, machines),
        ("workerMachines", asked.worker_machines, machines),
    ]
    for number, pin in enumerate(asked.pins):
        named += [
            (f"pins[{number}].regions", pin.regions, regions),
            (f"pins[{number}].machines", pin.machines, machines),
        ]
    for key, names, known in named:
        unknown = dict.fromkeys(name for name in names or () if name not in known)
        if unknown:
            yield f"constraints.{key}: the topology has no {', '.join(unknown)}"


def _unknown_speeds(document: WorkloadFile, topology: Topology) -> Iterator[str]:
    known = {machine.name for machine in topology.machines}
    for key, speeds in (("measuredSpeeds", document.measured_speeds), ("likelySpeeds", document.likely_speeds)):
        machines = [speed.machine for speed in speeds]
        for number, machine in enumerate(machines):
            if machine in machines[:number]:
                yield f"{key}[{number}]: {machine} is there twice"
            if machine not in known:
                yield f"{key}[{number}].machine: the topology has no {machine}"


def _places(asked: Constraints, topology: Topology, allowed: list[Machine]) -> Iterator[str]:
    """Regions and machines that one constraint names and another excludes."""
    for key, named, other, denied in (
        ("allowedRegions", asked.allowed_regions, "deniedRegions", asked.denied_regions),
        ("allowedMachines", asked.allowed_machines, "deniedMachines", asked.denied_machines),
    ):
        both = [name for name in named or () if name in (denied or ())]
        if both:
            yield f"constraints.{key} and constraints.{other} both name {', '.join(both)}"
    left = {machine.name for machine in allowed}
    named_machines = [("allowedMachines", asked.allowed_machines), ("workerMachines", asked.worker_machines)]
    named_machines += [(f"pins[{number}].machines", pin.machines) for number, pin in enumerate(asked.pins)]
    for key, names in named_machines:
        for name in dict.fromkeys(names or ()):
            if name not in left:
                yield f"constraints.{key} names {name}, which {_excluder(asked, topology.machine(name))} excludes"
    regions, machines = {machine.region for machine in allowed}, defaultdict[str, list[Machine]](list)
    for machine in topology.machines:
        machines[machine.region].append(machine)
    for number, pin in enumerate(asked.pins):
        for region in pin.regions or ():
            if region not in regions:
                who = _that(asked, machines[region], "exclude")
                yield f"constraints.pins[{number}].regions names {region}, which {who}"


def _that(asked: Constraints, machines: Iterable[Machine], verb: str) -> str:
    """The constraints that these machines do not meet, and what they do."""
    names = dict.fromkeys(_excluder(asked, machine) for machine in machines)
    return f"{' and '.join(names)} {verb}{'s' if len(names) == 1 else ''}"


def _excluder(asked: Constraints, machine: Machine) -> str:
    """The constraint that a machine does not meet."""
    if machine.region in (asked.denied_regions or ()):
        return f"constraints.deniedRegions ({machine.region})"
    if asked.allowed_regions is not None and machine.region not in asked.allowed_regions:
        return f"constraints.allowedRegions ({machine.region} is not there)"
    return (
        "constraints.deniedMachines" if machine.name in (asked.denied_machines or ()) else "constraints.allowedMachines"
    )


def _pins(pins: tuple[LayerPin, ...], allowed: list[Machine]) -> Iterator[str]:
    """Pins of one layer to places that have no machine in common."""
    for (a, first), (b, second) in combinations(enumerate(pins), 2):
        both = sorted(set(first.layers) & set(second.layers))
        if both and not any(first.allows(machine) and second.allows(machine) for machine in allowed):
            yield (
                f"constraints.pins[{a}] and constraints.pins[{b}] both bind layer {both[0]}, to "
                f"{', '.join(first.regions + first.machines)} and to {', '.join(second.regions + second.machines)}"
            )


def _stages(pins: tuple[LayerPin, ...], document: WorkloadFile, allowed: list[Machine]) -> Iterator[str]:
    """Pins that need more stages than there may be."""
    needed, workers = stages_needed(pins, allowed), document.workers
    limits = [("parallelism.pipeline", document.parallelism.pipeline)]
    if workers.max is not None:
        limits.append(("workers.max, in accelerators,", workers.max * workers.accelerators_per_worker))
    for key, most in limits:
        if needed.apart is not None and most is not None and most < needed.num_stages:
            a, b = needed.apart
            yield (
                f"constraints.pins[{a}] ({pins[a].words}) and constraints.pins[{b}] ({pins[b].words}) have no machine "
                f"in common: the pins need {needed.num_stages} stages, and {key} is {most}"
            )
