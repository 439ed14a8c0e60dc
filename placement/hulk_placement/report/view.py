"""A predicted plan, its workload and the topology -> the rows that people are shown."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby, pairwise

from hulk_placement.advice import Advised, advise
from hulk_placement.collective.flow_words import flow_words
from hulk_placement.cost.breakdown import step_parts
from hulk_placement.cost.layer_sums import largest_sum
from hulk_placement.cost.memory import Memory, cells_memory
from hulk_placement.cost.money import GB
from hulk_placement.cost.predict import stage_groups
from hulk_placement.cost.traffic import Traffic, link_traffic, traffic
from hulk_placement.layer_pins import as_spans
from hulk_placement.plan import Plan
from hulk_placement.report.rows import (
    AdviceRow,
    AdviceRows,
    FlowRow,
    LinkUseRow,
    MemoryRow,
    PlaceRow,
    PriceRow,
    PriceRows,
    StageRow,
    StepPartRow,
    View,
    VisitRow,
)
from hulk_placement.report.schedule.of_plan import plan_schedule
from hulk_placement.topology import Link, LinkKind, Machine, Pair, Topology
from hulk_placement.workload import Workload


def view(plan: Plan, workload: Workload, topology: Topology, is_searched: bool = True) -> View:
    """The rows of a plan with its prediction; `is_searched`: a search made it, so that its gap means something.

    KeyError when the plan names a machine that the topology lacks.
    """
    found, layout = plan.prediction, plan.layout
    groups = stage_groups(plan, workload)
    sent = traffic(plan, workload, topology, groups)
    return View(
        job=plan.key,
        data=layout.data,
        pipeline=layout.pipeline,
        tensor=layout.tensor,
        shard=layout.shard,
        micro_batch=plan.micro_batch,
        global_batch=sum(plan.shares),
        schedule=plan.schedule,
        transport=plan.algorithm,
        num_accelerators=layout.num_ranks,
        regions=tuple(dict.fromkeys(worker.region for worker in plan.workers)),
        step_microseconds=microseconds(found.step_s),
        sequences_per_second=sum(plan.shares) / found.step_s,
        calibrated=found.calibrated,
        optimality_gap=plan.optimality_gap if is_searched else None,
        step=tuple(_step(plan, workload, topology)),
        stages=tuple(_stages(plan, workload)),
        memory=tuple(_memory(plan, workload, topology)),
        links=tuple(_links(*link_traffic(plan, workload, topology, groups), topology, found.step_s)),
        flows=tuple(_flows(plan, workload)),
        price=_price(plan, sent, topology),
        advice=advice_rows(advise(plan, workload, topology)),
        why=plan.why,
        blocks=plan_schedule(plan, workload, topology),
    )


def microseconds(seconds: float) -> int:
    """Whole microseconds."""
    return round(seconds * 1e6)


def advice_rows(found: Advised) -> AdviceRows:
    """Advice as rows."""
    again_s = found.searched_again_s
    return AdviceRows(
        rows=tuple(
            AdviceRow(
                change=row.words,
                step_microseconds=microseconds(row.step_s),
                share=row.share,
                is_new_plan=row.is_new_plan,
            )
            for row in found.rows
        ),
        num_tried=found.num_tried,
        are_to_fit=found.are_to_fit,
        searched_again_microseconds=None if again_s is None else microseconds(again_s),
    )


def _step(plan: Plan, workload: Workload, topology: Topology) -> Iterator[StepPartRow]:
    for part in step_parts(plan, workload, topology):
        source, target = part.link or (None, None)
        yield StepPartRow(
            part=part.part,
            microseconds=microseconds(part.seconds),
            share=part.seconds / plan.prediction.step_s,
            source=source,
            target=target,
        )


def _stages(plan: Plan, workload: Workload) -> Iterator[StageRow]:
    layers, layout = workload.model.layers, plan.layout
    regions = {worker.machine: worker.region for worker in plan.workers}
    for stage, (first, last) in enumerate(pairwise([*plan.stages, len(layers)])):
        homes: dict[str, list[int]] = {}
        for replica in range(layout.data):
            homes.setdefault(plan.machine(replica, stage), []).append(replica)
        ranks = ((replica * layout.pipeline + stage) * layout.width for replica in range(layout.data))
        yield StageRow(
            stage=stage,
            first_layer=first,
            last_layer=last - 1,
            first_name=layers[first].name,
            last_name=layers[last - 1].name,
            parameters=sum(layer.num_parameters for layer in layers[first:last]),
            compute_share=max(plan.prediction.rank_compute_s[rank] for rank in ranks) / plan.prediction.step_s,
            places=tuple(
                PlaceRow(machine=name, region=regions[name], replicas=tuple(replicas))
                for name, replicas in homes.items()
            ),
            ring=tuple(_ring(plan, stage, regions)),
            pins=tuple(_pins(workload, first, last)),
        )


def _ring(plan: Plan, stage: int, regions: dict[str, str]) -> Iterator[VisitRow]:
    """Data flows from each replica of the ring to the one before it."""
    if plan.layout.data == 1 or plan.algorithm not in ("ring", "nccl"):
        return
    homes = [regions[plan.machine(replica, stage)] for replica in reversed(plan.ring(stage))]
    for region, visit in groupby(homes):
        yield VisitRow(region=region, replicas=len(list(visit)))


def _pins(workload: Workload, first: int, last: int) -> Iterator[str]:
    for pin in workload.layer_pins:
        bound = [layer for layer in pin.layers if first <= layer < last]
        if bound:
            yield f"layer{'s' if len(bound) > 1 else ''} {as_spans(bound)} to {', '.join(pin.regions + pin.machines)}"


def _memory(plan: Plan, workload: Workload, topology: Topology) -> Iterator[MemoryRow]:
    """The fullest cell of each machine; machines that are alike in one row, the fullest for their size first."""
    fullest: dict[str, tuple[int, Memory]] = {}
    for replica, stage, memory in cells_memory(plan, workload, topology):
        name = plan.machine(replica, stage)
        if name not in fullest or memory.total > fullest[name][1].total:
            fullest[name] = stage, memory
    alike: dict[tuple[str, int, int, Memory], list[str]] = {}
    for name, (stage, memory) in fullest.items():
        machine = topology.machine(name)
        alike.setdefault((machine.product, machine.memory_bytes, stage, memory), []).append(name)
    rows = [_memory_row(*key, names) for key, names in alike.items()]
    yield from sorted(rows, key=lambda row: -row.total_bytes / (row.capacity_bytes or math.inf))


def _memory_row(product: str, capacity: int, stage: int, memory: Memory, names: list[str]) -> MemoryRow:
    total = round(memory.total)
    return MemoryRow(
        machines=tuple(names),
        product=product,
        stage=stage,
        parameter_bytes=round(memory.parameters),
        gradient_bytes=round(memory.gradients),
        optimizer_bytes=round(memory.optimizer),
        activation_bytes=round(memory.activations),
        recompute_bytes=round(memory.recompute),
        buffer_bytes=round(memory.buffers),
        framework_bytes=round(memory.framework),
        reserve_bytes=round(memory.reserve),
        total_bytes=total,
        capacity_bytes=capacity or None,
        fits=total <= capacity if capacity else None,
        missing_bytes=max(0, total - capacity) if capacity else 0,
    )


def _links(shared: Traffic, wired: Traffic, topology: Topology, step_s: float) -> list[LinkUseRow]:
    """Links of regions, and wires of two machines' own, by what they carry, most first."""
    rows = [
        _link_row(pair, shared, topology.region_links.get(pair) or topology.region_link(*pair), topology, step_s)
        for pair in shared.total()
    ]
    rows += [_link_row(pair, wired, topology.link(*pair), topology, step_s) for pair in wired.total()]
    return sorted(rows, key=lambda row: (-row.stage_bytes - row.sync_bytes, row.source, row.target))


def _link_row(pair: Pair, sent: Traffic, link: Link, topology: Topology, step_s: float) -> LinkUseRow:
    """A region pair's link is at least as wide as any that two of their machines have of their own.

    The closed form's step may be some percent shorter than its fullest link needs, where sums of one stage meet
    transfers of others: such a link is always busy.
    """
    flow, is_known = link.flow_bytes_per_s, link.kind is not LinkKind.UNKNOWN
    rate = link.bandwidth_bytes_per_s if link.own_wire else topology.capacity(pair)
    is_timed = is_known and (link.own_wire or pair[0] != pair[1])
    return LinkUseRow(
        source=pair[0],
        target=pair[1],
        kind=link.kind.value,
        rtt_microseconds=microseconds(link.rtt_s) if is_known else None,
        bandwidth_bytes_per_second=round(link.bandwidth_bytes_per_s) if is_known else None,
        flow_bytes_per_second=None if flow is None else round(flow),
        stage_bytes=round(sent.stages.get(pair, 0.0)),
        sync_bytes=round(sent.sync.get(pair, 0.0)),
        busy_share=min(1.0, sent.total()[pair] / rate / step_s) if is_timed else None,
        own_wire=link.own_wire,
    )


def _flows(plan: Plan, workload: Workload) -> Iterator[FlowRow]:
    """The flows of the largest sum of a step, the largest first; none where another transport runs."""
    if plan.collective is None:
        return
    found = plan.collective.of(largest_sum(plan, workload))
    for flow in sorted(found.flows, key=lambda flow: -flow.share):
        yield FlowRow(share=flow.share, way=flow_words(flow, plan.collective.network.regions))


def _price(plan: Plan, sent: Traffic, topology: Topology) -> PriceRows | None:
    """None where the topology states no price of what the plan uses."""
    step_s, held = plan.prediction.step_s, plan.accelerators()
    groups: dict[tuple[str, str, float], int] = {}
    for name, num in held.items():
        machine: Machine = topology.machine(name)
        key = machine.product, machine.region, machine.price_per_hour
        groups[key] = groups.get(key, 0) + num
    parts = [
        PriceRow(what=f"{num} x {product} in {region}", per_step=num * per_hour * step_s / 3600)
        for (product, region, per_hour), num in groups.items()
        if per_hour
    ]
    for (source, target), num_bytes in sent.total().items():
        price = num_bytes / GB * topology.egress_price_per_gb.get((source, target), 0.0)
        if price:
            parts.append(PriceRow(what=f"traffic {source} -> {target}, {num_bytes / GB:.3g} GB", per_step=price))
    if not parts:
        return None
    per_hour = sum(num * per_hour for (_, _, per_hour), num in groups.items())
    parts.sort(key=lambda part: -part.per_step)
    return PriceRows(parts=tuple(parts), per_step=plan.prediction.price, per_hour=per_hour)
