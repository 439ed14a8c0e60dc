"""Where a predicted step goes: parts in the order in which a step waits for them, which sum to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from hulk_placement.cost.pipelines import time_pipelines
from hulk_placement.cost.simulation.plans import step_of
from hulk_placement.cost.simulation.step import Way
from hulk_placement.cost.ties import ties
from hulk_placement.plan import Plan
from hulk_placement.topology import Pair, Topology
from hulk_placement.workload import Workload


class Part(StrEnum):
    """What a step spends time on."""

    COMPUTE = "compute"
    """Forward and backward passes of the cell that computes longest."""
    RECOMPUTE = "recompute"
    """Its forward passes that are done again to save memory."""
    FILL = "fill and drain"
    """What pipelines of unequal stages wait for each other, however fast the links."""
    TRANSFERS = "stage transfers"
    """What links between stages add to that, also where transfers meet and share one."""
    SYNC = "synchronisation"
    """What a step then waits for the replicas' gradients."""
    TIED = "shared parameters"
    """What stages that share parameters, an embedding and a head, then wait for each other's gradients of these."""
    END = "optimizer and end of step"
    """The update, small all-reduces that end a step, and what is stated of it."""


@dataclass(frozen=True, slots=True)
class StepPart:
    """Seconds of a step, and the (source, target) machines whose link they are spent on, where it is one."""

    part: Part
    seconds: float
    link: Pair | None = None


def step_parts(plan: Plan, workload: Workload, topology: Topology) -> tuple[StepPart, ...]:
    """The parts of a plan's predicted step that are not 0.

    Passes and waits are those of the closed form: what would be left of the bubble if links between stages were free is
    the pipelines' own, and the rest is the links'.
    """
    found = plan.prediction
    again_s = _recompute_s(plan, workload, topology)
    own_s, tied_s = 0.0, min(found.communication_s, found.tied_s)
    if plan.layout.pipeline > 1:
        free = time_pipelines(plan, workload, topology, free_links=True)
        own_s = min(found.bubble_s, max(0.0, float(free.ends_DP.max()) - found.compute_s))
    waits_s = found.bubble_s - own_s
    parts = (
        StepPart(Part.COMPUTE, found.compute_s - again_s),
        StepPart(Part.RECOMPUTE, again_s),
        StepPart(Part.FILL, own_s),
        StepPart(Part.TRANSFERS, waits_s, slowest_boundary(plan, workload, topology) if waits_s else None),
        StepPart(Part.SYNC, found.communication_s - tied_s, found.bottleneck),
        StepPart(Part.TIED, tied_s, slowest_tie(plan, workload, topology) if tied_s else None),
        StepPart(Part.END, found.overhead_s),
    )
    return tuple(part for part in parts if part.seconds > 1e-9 * found.step_s)


def _recompute_s(plan: Plan, workload: Workload, topology: Topology) -> float:
    """What the cell that computes longest would save by keeping its activations."""
    if not plan.recompute:
        return 0.0
    cells_s = time_pipelines(replace(plan, recompute=False), workload, topology).compute_DP.ravel()
    longest = max(range(len(cells_s)), key=lambda cell: plan.prediction.rank_compute_s[cell * plan.layout.width])
    return plan.prediction.compute_s - float(cells_s[longest])


def slowest_boundary(plan: Plan, workload: Workload, topology: Topology) -> Pair | None:
    """The machines of two stages whose transfers of a step take longest; None with one stage.

    Each waits for its latency, and for its bytes alone or, where that is longer, for all that use what it shares.
    """
    step = step_of(plan, workload, topology)
    sent: dict[Pair, tuple[Way, float, int]] = {}
    busy_s = [0.0] * len(step.resources)
    for number, replica in enumerate(step.replicas):
        for stage, ways in enumerate(replica.ways):
            here, there = plan.machine(number, stage), plan.machine(number, stage + 1)
            bytes_M = replica.boundary_bytes[stage]
            for pair, way in zip(((here, there), (there, here)), ways, strict=True):
                sent.setdefault(pair, (way, float(bytes_M.sum()), bytes_M.size))
                for r in way.resources:
                    busy_s[r] += float(bytes_M.sum()) / step.resources[r].bytes_per_s

    def seconds(pair: Pair) -> float:
        way, num_bytes, num = sent[pair]
        return num * way.latency_s + max(num_bytes / way.bytes_per_s, *(busy_s[r] for r in way.resources))

    return max(sent, key=seconds, default=None)


def slowest_tie(plan: Plan, workload: Workload, topology: Topology) -> Pair | None:
    """The machines of two stages that take longest to send what they share; None where no two share parameters."""
    worst, longest_s = None, -1.0
    for tie in ties(plan, workload):
        first, second = tie.group.machines
        for pair in ((first, second), (second, first)):
            took_s = topology.link(*pair).one_flow_s(tie.group.num_bytes)
            if took_s > longest_s:
                worst, longest_s = pair, took_s
    return worst
