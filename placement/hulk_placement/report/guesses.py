"""A plan's machines that were not measured -> a sentence that says what is taken for their speed instead."""

from __future__ import annotations

from hulk_placement.cost.known import Knowledge, Source, work
from hulk_placement.plan import Plan
from hulk_placement.report import units
from hulk_placement.topology import Topology
from hulk_placement.words import some
from hulk_placement.workload import Workload

LIKE = {
    Source.LIKELY: "as other models lead to expect there",
    Source.PRODUCT: "like the median of its product",
    Source.DATA_SHEET: "by the product's data sheet",
    Source.OTHERS: "like the median of the other machines",
    Source.ASSUMED: "which is assumed, as no machine's speed is known",
}


def guessed_speeds(plan: Plan, workload: Workload, topology: Topology) -> str | None:
    """What is taken for the speed of each machine that was neither measured nor declared; None where all were.

    Machines of one product that are taken to be alike are named together.
    """
    known = Knowledge(workload, topology)
    alike: dict[tuple[str, str, int], list[str]] = {}
    for name in plan.accelerators():
        machine = topology.machine(name)
        if not known.is_measured(machine, plan.layout.tensor):
            kind = known.kind(machine)
            microseconds = round(work(workload) / kind.flops_per_s * 1e6)
            alike.setdefault((machine.product, LIKE[kind.source], microseconds), []).append(name)
    phrases = [
        f"{some(names)} ({product}): {units.duration(microseconds)} a sequence of the whole model, {like}"
        for (product, like, microseconds), names in alike.items()
    ]
    return f"not measured, and taken instead, of {'; of '.join(phrases)}" if phrases else None
