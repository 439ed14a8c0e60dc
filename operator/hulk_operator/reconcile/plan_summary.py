"""Plan -> what the status says of it: bounded by regions and stages, integers only."""

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from itertools import chain, groupby, islice, pairwise
from typing import Literal

from hulk_placement.cost.money import accelerators_per_s
from hulk_placement.layer_pins import as_spans
from hulk_placement.model import Model
from hulk_placement.plan import Plan, Prediction
from hulk_placement.report.units import duration
from hulk_placement.sync import DILOCO, Rounds
from hulk_placement.topology import Topology

from hulk_operator import names
from hulk_operator.api import (
    Bottleneck,
    HostPorts,
    HulkJob,
    LayersPlace,
    Layout,
    PlanSummary,
    PredictionSummary,
    RegionShare,
    RoundsSummary,
    StagePlace,
)
from hulk_operator.api.base import MAX_COUNT
from hulk_operator.api.plan_summary import MAX_PLACE_REGIONS, MAX_PLACES, MAX_STAGES, gap_text
from hulk_operator.reconcile.spec_digest import spec_digest
from hulk_operator.status import whole_second

MAX_ORDER = 64
Source = Literal["preflight", "profile", "template", "assumed"]


def microseconds(seconds: float) -> int:
    """
    >>> microseconds(0.0123456)
    12346
    """
    return whole(seconds * 1e6)


def whole(value: float) -> int:
    """Rounded, and within what a status holds: a model that the schema allows may be absurd.

    >>> whole(float("inf")), whole(-1.0), whole(float("nan"))
    (9007199254740992, 0, 0)
    """
    return round(min(max(0.0, value), MAX_COUNT))


def plan_summary(
    job: HulkJob,
    plan: Plan,
    digest: str,
    topology: Topology,
    model: Model,
    host_ports: HostPorts | None = None,
    rounds: Rounds = DILOCO,
) -> PlanSummary:
    """The plan by regions and stages, its ring order folded, and its slowest link as it is known now.

    `rounds`: as the job asks for them, where its replicas train apart.
    """
    regions = sorted({worker.region for worker in plan.workers})
    return PlanSummary(
        name=names.plan_config_map(job.metadata.name, plan.attempt),
        digest=digest,
        attempt=plan.attempt,
        made_of=spec_digest(job),
        algorithm=plan.algorithm,
        objective=job.spec.placement.objective,
        price_per_hour=_price_per_hour(plan, topology),
        host_ports=host_ports,
        num_workers=len(plan.workers),
        num_accelerators=sum(worker.num_accelerators for worker in plan.workers),
        smallest_share=min(plan.shares),
        largest_share=max(plan.shares),
        layout=_layout(plan),
        schedule=plan.schedule if plan.layout.pipeline > 1 else "",
        rounds=_rounds(plan, rounds),
        regions=tuple(_share(plan, region) for region in regions),
        layers=tuple(_places(plan, model.num_layers))[:MAX_PLACES],
        stages=tuple(islice(_stages(plan, model.num_layers), MAX_STAGES)),
        order=tuple(region for region, _ in groupby(_ring_regions(plan)))[:MAX_ORDER],
        bottleneck=_bottleneck(plan, topology),
        optimality_gap=gap_text(plan.optimality_gap) if model.is_timed else None,
    )


def prediction_summary(
    prediction: Prediction, plan: Plan, source: Source, now: datetime, transfer_s: float | None = None
) -> PredictionSummary:
    """The prediction as it is written before the first step; `transfer_s`: of the bubble, what links add to it."""
    has_stages = plan.layout.pipeline > 1
    return PredictionSummary(
        attempt=plan.attempt,
        step_microseconds=(step_us := max(1, microseconds(prediction.step_s))),
        step_time=duration(step_us),
        compute_microseconds=microseconds(prediction.compute_s),
        communication_microseconds=microseconds(prediction.communication_s),
        utilisation_percent=None if plan.inner_steps is None else int(100 * prediction.utilisation),
        bubble_microseconds=microseconds(prediction.bubble_s) if has_stages else None,
        transfer_microseconds=microseconds(transfer_s) if has_stages and transfer_s is not None else None,
        memory_bytes=whole(prediction.memory_bytes),
        calibrated=prediction.calibrated,
        source=source,
        written_at=whole_second(now),
    )


def assumed_prediction(plan: Plan, now: datetime) -> PredictionSummary:
    """The prediction of a plan whose pods gave no preflight."""
    return prediction_summary(plan.prediction, plan, "assumed", now)


def _price_per_hour(plan: Plan, topology: Topology) -> str | None:
    """Decimal text; None where a machine's price is not known.

    A plan's price is far below what 32 characters hold.
    """
    if not all(topology.machine(worker.machine).price_per_hour for worker in plan.workers):
        return None
    return f"{accelerators_per_s(plan, topology) * 3600:.4f}"


def _rounds(plan: Plan, asked: Rounds) -> RoundsSummary | None:
    if plan.inner_steps is None:
        return None
    rounds = asked.planned(plan.fragments, plan.delay_steps)
    return RoundsSummary(
        inner_steps=plan.inner_steps,
        fragments=plan.fragments,
        delay_steps=plan.delay_steps,
        compression="none" if plan.collective is None else plan.collective.compression,
        warmup_steps=rounds.warmup_steps,
        outer_learning_rate=_decimal(rounds.outer_learning_rate),
        outer_momentum=_decimal(rounds.outer_momentum),
    )


def _decimal(value: float | None) -> str | None:
    return None if value is None else format(Decimal(str(value)).normalize(), "f")


def _layout(plan: Plan) -> Layout:
    layout = plan.layout
    return Layout(data=layout.data, pipeline=layout.pipeline, shard=layout.shard, tensor=layout.tensor)


def _share(plan: Plan, region: str) -> RegionShare:
    here = [worker for worker in plan.workers if worker.region == region]
    return RegionShare(name=region, workers=len(here), accelerators=sum(worker.num_accelerators for worker in here))


def _places(plan: Plan, num_layers: int) -> Iterator[LayersPlace]:
    """Where every layer is, stages in the same regions folded."""
    region_of = {worker.machine: worker.region for worker in plan.workers}
    ends = (*plan.stages[1:], num_layers)
    stages = [
        (range(start, end), _machines(plan, stage))
        for stage, (start, end) in enumerate(zip(plan.stages, ends, strict=True))
    ]
    for regions, alike in groupby(stages, lambda stage: sorted({region_of[machine] for machine in stage[1]})):
        layers, machines = zip(*alike, strict=True)
        yield LayersPlace(
            layers=as_spans(chain(*layers)),
            num_nodes=len(set().union(*machines)),
            num_regions=len(regions),
            regions=tuple(regions[:MAX_PLACE_REGIONS]),
        )


def _stages(plan: Plan, num_layers: int) -> Iterator[StagePlace]:
    """Every stage of a pipeline."""
    if plan.layout.pipeline == 1:
        return
    region_of = {worker.machine: worker.region for worker in plan.workers}
    for stage, (first, end) in enumerate(pairwise((*plan.stages, num_layers))):
        machines = _machines(plan, stage)
        regions = sorted({region_of[machine] for machine in machines})
        yield StagePlace(
            stage=stage,
            layers=as_spans(range(first, end)),
            num_accelerators=plan.layout.data * plan.layout.width,
            num_nodes=len(machines),
            num_regions=len(regions),
            regions=tuple(regions[:MAX_PLACE_REGIONS]),
        )


def _ring_regions(plan: Plan) -> list[str]:
    """The regions of the first stage's replicas in ring order; without stages that of all workers."""
    if plan.layout.pipeline == 1:
        return [worker.region for worker in plan.workers]
    region_of = {worker.machine: worker.region for worker in plan.workers}
    return [region_of[plan.machine(replica, 0)] for replica in plan.ring(0)]


def _machines(plan: Plan, stage: int) -> set[str]:
    """The machines that have a stage. Ranks run (replica, stage, shard, tensor)."""
    width, pipeline = plan.layout.width, plan.layout.pipeline
    return {machine for rank, machine in enumerate(plan.rank_machines) if rank // width % pipeline == stage}


def _bottleneck(plan: Plan, topology: Topology) -> Bottleneck | None:
    if plan.prediction.bottleneck is None:
        return None
    source, target = plan.prediction.bottleneck
    link = topology.link(source, target)
    return Bottleneck(
        source=source,
        target=target,
        rtt_microseconds=microseconds(link.rtt_s),
        bandwidth_bytes_per_second=whole(link.bandwidth_bytes_per_s),
    )
