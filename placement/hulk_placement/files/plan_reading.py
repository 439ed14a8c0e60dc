"""A plan document, with the workload and the topology that it is for -> the planner's `Plan`, not yet predicted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hulk_placement.collective.document import from_document
from hulk_placement.collective.plan import CollectivePlan
from hulk_placement.files import text
from hulk_placement.files.cells import workers_of
from hulk_placement.files.plan import PlanFile, ScheduleFile
from hulk_placement.files.schedule import Blocks, parse_blocks
from hulk_placement.files.stages import first_layers
from hulk_placement.fit import misfits, unknown_links
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.search.flows import flows_of
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A plan, and warnings."""

    plan: Plan
    warnings: tuple[str, ...] = ()


def read_plan(path: Path, workload: Workload, topology: Topology) -> ReadPlan:
    """The plan in a file. ValueError with every mistake in it, and all that does not fit; OSError without a file."""
    return to_plan(read_document(path), workload, topology, str(path))


def read_document(path: Path) -> PlanFile:
    """The document in a file, its schedule from a file of its own included."""
    document = text.parse(PlanFile, text.read_values(path), str(path))
    if document.schedule_file is None:
        return document
    other = path.parent / document.schedule_file
    blocks = text.parse(ScheduleFile, text.read_values(other), str(other)).stages
    return document.model_copy(update={"blocks": blocks})


def to_plan(document: PlanFile, workload: Workload, topology: Topology, where: str = "plan") -> ReadPlan:
    """The plan that a document describes. ValueError names all that does not fit; `where` is the document's name."""
    plan = to_unchecked_plan(document, workload, topology, where)
    mistakes = list(misfits(plan, workload, topology))
    if mistakes:
        raise text.mistaken(where, mistakes)
    return ReadPlan(plan, tuple(_warnings(plan, workload, topology)))


def to_unchecked_plan(document: PlanFile, workload: Workload, topology: Topology, where: str = "plan") -> Plan:
    """The plan, whether it can be carried out or not. ValueError where it is none, or names machines nobody knows."""
    if document.workload not in (None, workload.key):
        raise ValueError(f"{where}: a plan of workload {document.workload}, not of {workload.key}")
    try:
        return _plan(document, workload, topology)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _plan(document: PlanFile, workload: Workload, topology: Topology) -> Plan:
    layout = Layout(document.layout.data, document.layout.pipeline, document.layout.tensor, document.layout.shard)
    workers = workers_of(document, topology)
    micro_batch = document.micro_batch or workload.micro_batch
    if micro_batch is None:
        raise ValueError("microBatch: neither the plan nor the workload says how many sequences a micro-batch has")
    blocks = _blocks(document, layout)
    return Plan(
        key=workload.key,
        attempt=document.attempt,
        workers=workers,
        shares=_shares(document, workload, micro_batch),
        micro_batch=micro_batch,
        num_buckets=document.buckets,
        prediction=NOT_PREDICTED,
        layout=layout,
        algorithm=document.sync,
        collective=_collective(document, workers, workload, topology),
        inner_steps=document.inner_steps,
        fragments=document.fragments,
        delay_steps=document.delay_steps,
        stages=first_layers(document, workload.model),
        schedule="explicit" if blocks else document.schedule or "1f1b",
        rings=_rings(document, layout),
        overlap=document.overlap,
        recompute=document.recompute,
        blocks=blocks,
    )


def _shares(document: PlanFile, workload: Workload, micro_batch: int) -> tuple[int, ...]:
    """Sequences of each replica."""
    data = document.layout.data
    key, given = ("shares", document.shares) if document.shares else ("microBatches", document.micro_batches)
    if given is not None:
        if len(given) != data:
            raise ValueError(f"{key}: {len(given)} figures for {data} replicas")
        return given if document.shares else tuple(count * micro_batch for count in given)
    share, rest = divmod(workload.global_batch, data)
    if rest or not share:
        raise ValueError(f"global batch {workload.global_batch} does not divide by {data} replicas: give their shares")
    return (share,) * data


def _blocks(document: PlanFile, layout: Layout) -> Blocks:
    if document.blocks is None:
        return ()
    if len(document.blocks) != layout.pipeline:
        raise ValueError(f"blocks: of {len(document.blocks)} stages, the layout has {layout.pipeline}")
    return parse_blocks(document.blocks)


def _rings(document: PlanFile, layout: Layout) -> tuple[tuple[int, ...], ...]:
    rings = document.rings or ()
    rings = rings * layout.pipeline if len(rings) == 1 else rings
    if rings and len(rings) != layout.pipeline:
        raise ValueError(f"rings: {len(rings)}, for {layout.pipeline} stages; give one for each, or one for all")
    for stage, ring in enumerate(rings):
        if sorted(ring) != list(range(layout.data)):
            raise ValueError(
                f"rings[{stage}]: {', '.join(map(str, ring))} must be replicas 0 to {layout.data - 1}, each once"
            )
    return rings


def _collective(
    document: PlanFile, workers: tuple[WorkerSlot, ...], workload: Workload, topology: Topology
) -> CollectivePlan | None:
    if document.sync != "wan":
        if document.collective is not None:
            raise ValueError(f"collective: only for sync wan, not for {document.sync}")
        return None
    if document.layout.pipeline > 1:
        raise ValueError("sync: Hulk's own all-reduce (wan) sums whole models: pipeline must be 1")
    if document.collective is None:
        width = document.layout.tensor * document.layout.shard
        machines = [slot.machine for slot in workers for _ in range(slot.num_accelerators)][::width]
        allowing = replace(workload, allow_unknown_links=True)  # `_warnings` tells of them
        return flows_of(allowing, topology, machines, [document.buckets], lambda: True, whole=False, width=width)
    try:
        return from_document(
            document.collective, [slot.region for slot in workers for _ in range(slot.num_accelerators)]
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"collective: {error!r} (its form is in docs/reference/plan-wire.md)") from error


def _warnings(plan: Plan, workload: Workload, topology: Topology) -> Iterator[str]:
    if why := unknown_links(plan, workload, topology):
        yield why
    yield from _unmeasured_degree(plan, workload, topology)


def _unmeasured_degree(plan: Plan, workload: Workload, topology: Topology) -> Iterator[str]:
    """A warning where a product was measured, but not with the plan's tensor degree."""
    times, tensor = workload.model.times, plan.layout.tensor
    products = dict.fromkeys(topology.machine(name).product for name in plan.accelerators())
    measured = {row.product for row in times.rows} if times is not None else set()
    missing = [
        product
        for product in products
        if times is not None and product in measured and times.seconds(product, plan.micro_batch, tensor) is None
    ]
    if missing:
        is_said = any(layer.tensor_bytes for layer in workload.model.layers)
        sent = "" if is_said else ", and no layer has tensorBytes: all-reduces inside of it are not counted"
        yield (
            f"the profile has no seconds of {', '.join(missing)} with tensor degree {tensor}: those that "
            f"it has are taken in proportion{sent}"
        )
