"""What of a plan does not fit its workload and topology, in sentences: whoever wrote it may have meant other ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import product

from hulk_placement.cost.money import LIMIT_ROUNDING
from hulk_placement.cost.predict import stage_groups
from hulk_placement.cost.traffic import links_used
from hulk_placement.layer_pins import as_spans
from hulk_placement.model import Model
from hulk_placement.plan import Plan
from hulk_placement.topology import LinkKind, Topology
from hulk_placement.workload import Workload, heads_words

_MOST_SHOWN = 5


def misfits(plan: Plan, workload: Workload, topology: Topology) -> Iterator[str]:
    """A sentence for everything that keeps the plan from being carried out; machines must be the topology's."""
    yield from _machines(plan, workload, topology)
    yield from _layers(plan, workload, topology)
    yield from _sequences(plan, workload)
    yield from _wishes(plan, workload, topology)
    yield from _ways(plan, workload)


def _machines(plan: Plan, workload: Workload, topology: Topology) -> Iterator[str]:
    for name, num_held in plan.accelerators().items():
        machine = topology.machine(name)
        if num_held > machine.num_accelerators:
            yield f"{num_held} accelerators of {name}, which has {machine.num_accelerators}"
        if num_held % workload.accelerators_per_worker:
            words = f"{num_held} accelerator{'s' * (num_held > 1)} of {name}"
            yield f"{words}, and workers have {workload.accelerators_per_worker} each"
        if workload.goes_by_prices and not machine.price_per_hour:
            yield f"{name} has no price, and the workload goes by prices"
        elif name not in workload.candidates:
            yield f"{name}, in region {machine.region}, is not allowed by the workload's constraints"
    ranks, tensor = plan.rank_machines, plan.layout.tensor
    if not workload.model.shares_heads(tensor):
        yield heads_words(workload.model, tensor)
    for first in range(0, len(ranks), tensor):
        group = dict.fromkeys(ranks[first : first + tensor])
        if len(group) > 1:
            yield f"ranks {first} to {first + tensor - 1} share their layers, but are on {' and '.join(group)}"
    for replica, stage in product(range(plan.layout.data), range(plan.layout.pipeline)):
        regions = dict.fromkeys(topology.machine(name).region for name in plan.cell(replica, stage))
        if len(regions) > 1:
            yield f"stage {stage} of replica {replica} is sharded over {' and '.join(regions)}: not one region"


def _layers(plan: Plan, workload: Workload, topology: Topology) -> Iterator[str]:
    model = workload.model
    if plan.stages[-1] >= model.num_layers:
        yield f"the last of {len(plan.stages)} stages begins with layer {plan.stages[-1]}, of {layer_words(model)}"
    for replica in range(plan.layout.data):
        for stage, first in enumerate(plan.stages):
            last = (*plan.stages[1:], model.num_layers)[stage]
            machine = topology.machine(plan.machine(replica, stage))
            for pin in workload.layer_pins:
                astray = [layer for layer in pin.layers if first <= layer < last]
                if astray and not pin.allows(machine):
                    yield (
                        f"layers {as_spans(astray)} are pinned to {', '.join(pin.regions + pin.machines)}, and stage "
                        f"{stage} of replica {replica} is on {machine.name} in {machine.region}"
                    )


def _sequences(plan: Plan, workload: Workload) -> Iterator[str]:
    if sum(plan.shares) != workload.global_batch:
        listed = " + ".join(map(str, plan.shares))
        yield f"shares {listed} = {sum(plan.shares)}, and the global batch is {workload.global_batch}"
    if workload.micro_batch not in (None, plan.micro_batch):
        yield f"micro-batches of {plan.micro_batch}, the workload has {workload.micro_batch}"
    for replica, share in enumerate(plan.shares):
        num_micro_batches = math.ceil(share / plan.cell_batch)
        if plan.blocks and len(plan.blocks[0]) != 2 * num_micro_batches:
            yield (
                f"the schedule is of {len(plan.blocks[0]) // 2} micro-batches, and replica {replica} has "
                f"{num_micro_batches}"
            )


def _wishes(plan: Plan, workload: Workload, topology: Topology) -> Iterator[str]:
    """What the workload fixes, and the plan has otherwise."""
    layout, each = plan.layout, workload.accelerators_per_worker
    for key, fixed, has in (
        ("data", workload.data, layout.data),
        ("pipeline", workload.pipeline, layout.pipeline),
        ("tensor", workload.tensor, layout.tensor),
        ("shard", workload.shard, layout.shard),
        ("recompute", workload.recompute, plan.recompute),
    ):
        if fixed not in (None, has):
            yield f"{key} is {has}, the workload has {fixed}"
    fewest, most = workload.min_workers * each, workload.max_workers * each
    if not fewest <= layout.num_ranks <= most:
        yield f"{layout.num_ranks} accelerators, the workload has {fewest} to {most}"
    price = sum(topology.machine(name).price_per_hour * held for name, held in plan.accelerators().items())
    if workload.max_price_per_hour is not None and price > workload.max_price_per_hour * LIMIT_ROUNDING:
        yield f"its accelerators cost {price:g} an hour, the workload allows {workload.max_price_per_hour:g}"


def _ways(plan: Plan, workload: Workload) -> Iterator[str]:
    """How the workload is to be trained, where the plan does it in another way. A replica has nobody to sum with."""
    sync, layout = workload.sync, plan.layout
    if layout.pipeline > 1 and workload.schedule not in (None, plan.schedule):
        yield f"the schedule is {plan.schedule}, the workload has {workload.schedule}"
    if workload.shares == "equal" and max(plan.shares) - min(plan.shares) > 1:
        yield f"shares are {min(plan.shares)} to {max(plan.shares)} sequences, the workload has equal ones"
    if layout.data > 1 and sync.mode == "ring" and plan.algorithm == "wan":
        yield "gradients are summed by Hulk's own all-reduce, the workload has the backend's (ring)"
    wanted, has = sync.planned_inner_steps or 1, plan.inner_steps or 1
    if layout.data > 1 and sync.mode != "auto" and has != wanted:
        yield f"{has} steps to a sum of what replicas have (innerSteps), the workload has {wanted}"
    held = {name: num // workload.accelerators_per_worker for name, num in plan.accelerators().items()}
    if workload.pins and held != Counter(workload.pins):
        yield f"workers are {_numbered(held)}, the workload has {_numbered(Counter(workload.pins))}"


def _numbered(workers: Mapping[str, int]) -> str:
    return ", ".join(f"{num} on {name}" for name, num in workers.items())


def unknown_links(plan: Plan, workload: Workload, topology: Topology) -> str:
    """In a sentence, the links of which nothing is known, where the plan uses some and the workload allows none."""
    if workload.allow_unknown_links:
        return ""
    used = links_used(plan, workload, topology, stage_groups(plan, workload))
    found = [pair for pair, link in used.items() if link.kind is LinkKind.UNKNOWN]
    if not found:
        return ""
    more = f" and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    listed = ", ".join(f"{source} -> {target}" for source, target in found[:_MOST_SHOWN])
    return f"the plan uses links of which nothing is known, and the workload does not allow it: {listed}{more}"


def layer_words(model: Model) -> str:
    """How many layers a model has, and their names.

    >>> layer_words(Model.of_totals(1, 1.0))
    '1 layers: model'
    """
    names = [layer.name for layer in model.layers]
    shown = names if len(names) <= 5 else [*names[:2], "...", *names[-2:]]
    return f"{len(names)} layers: {', '.join(shown)}"
