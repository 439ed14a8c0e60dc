"""Plan -> what the status says of it: bounded by regions, integers only."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from itertools import chain, groupby
from typing import Literal

from hulk_placement.cost.money import accelerators_per_s
from hulk_placement.layer_pins import as_spans
from hulk_placement.model import Model
from hulk_placement.plan import Plan, Prediction
from hulk_placement.topology import Topology

from hulk_operator import names
from hulk_operator.api import (
    AllReduceTime,
    Bottleneck,
    HulkJob,
    LayersPlace,
    Layout,
    PlanSummary,
    PredictionSummary,
    RegionLinkRate,
    RegionShare,
    WanObserved,
)
from hulk_operator.api.base import MAX_COUNT
from hulk_operator.api.status import (
    MAX_ALL_REDUCES,
    MAX_PLACE_REGIONS,
    MAX_PLACES,
    MAX_REGION_LINKS,
    gap_text,
)
from hulk_operator.observe import Observation, ObservedAllReduce, ObservedRegionLink
from hulk_operator.status import whole_second

MAX_ORDER = 64
Source = Literal["preflight", "profile", "assumed"]


def microseconds(seconds: float) -> int:
    """
    >>> microseconds(0.0123456)
    12346
    """
    return _whole(seconds * 1e6)


def _whole(value: float) -> int:
    """Rounded, and within what a status holds: a model that the schema allows may be absurd.

    >>> _whole(float("inf")), _whole(-1.0), _whole(float("nan"))
    (9007199254740992, 0, 0)
    """
    return round(min(max(0.0, value), MAX_COUNT))


def plan_summary(job: HulkJob, plan: Plan, digest: str, topology: Topology, model: Model) -> PlanSummary:
    """The plan by regions and stages, its ring order folded, and its slowest link as it is known now."""
    regions = sorted({worker.region for worker in plan.workers})
    return PlanSummary(
        name=names.plan_config_map(job.metadata.name, plan.attempt),
        digest=digest,
        attempt=plan.attempt,
        algorithm=plan.algorithm,
        objective=job.spec.placement.objective,
        price_per_hour=_price_per_hour(plan, topology),
        num_workers=len(plan.workers),
        num_accelerators=sum(worker.num_accelerators for worker in plan.workers),
        smallest_share=min(plan.shares),
        largest_share=max(plan.shares),
        layout=Layout(data=plan.layout.data, pipeline=plan.layout.pipeline, tensor=plan.layout.tensor),
        regions=tuple(_share(plan, region) for region in regions),
        layers=tuple(_places(plan, model.num_layers))[:MAX_PLACES],
        order=tuple(region for region, _ in groupby(worker.region for worker in plan.workers))[:MAX_ORDER],
        bottleneck=_bottleneck(plan, topology),
        optimality_gap=gap_text(plan.optimality_gap),
    )


def prediction_summary(prediction: Prediction, attempt: int, source: Source, now: datetime) -> PredictionSummary:
    """The prediction as it is written before the first step."""
    return PredictionSummary(
        attempt=attempt,
        step_microseconds=max(1, microseconds(prediction.step_s)),
        compute_microseconds=microseconds(prediction.compute_s),
        communication_microseconds=microseconds(prediction.communication_s),
        memory_bytes=_whole(prediction.memory_bytes),
        calibrated=prediction.calibrated,
        source=source,
        written_at=whole_second(now),
    )


def assumed_prediction(plan: Plan, now: datetime) -> PredictionSummary:
    """The prediction of a plan whose pods gave no preflight."""
    return prediction_summary(plan.prediction, plan.attempt, "assumed", now)


def wan_observed(seen: Observation, regions: Collection[str]) -> WanObserved | None:
    """What all-reduces between regions of the plan do; None where there are none."""
    if not seen.all_reduces and not seen.region_links:
        return None
    times, rates = _all_reduce_times(seen.all_reduces), _region_link_rates(seen.region_links, regions)
    return WanObserved(all_reduces=times, region_links=rates)


def _all_reduce_times(seen: Sequence[ObservedAllReduce]) -> tuple[AllReduceTime, ...]:
    """The classes that are used most, by size."""
    most = sorted(seen, key=lambda found: -found.num)[:MAX_ALL_REDUCES]
    return tuple(
        AllReduceTime(
            max_bytes=found.max_bytes,
            observed_microseconds=max(1, microseconds(found.observed_s)),
            predicted_microseconds=microseconds(found.predicted_s or 0.0) or None,
            bound_microseconds=microseconds(found.bound_s or 0.0) or None,
        )
        for found in sorted(most, key=lambda found: found.max_bytes)
    )


def _region_link_rates(seen: Sequence[ObservedRegionLink], regions: Collection[str]) -> tuple[RegionLinkRate, ...]:
    """The links between regions of the plan that are furthest from it, by name."""
    known = [link for link in seen if link.source in regions and link.target in regions]
    worst = sorted(known, key=_distance, reverse=True)[:MAX_REGION_LINKS]
    return tuple(
        RegionLinkRate(
            source=link.source,
            target=link.target,
            planned_bytes_per_second=max(1, _whole(link.planned_bytes_per_s)),
            observed_bytes_per_second=_whole(link.observed_bytes_per_s or 0.0) or None,
        )
        for link in sorted(worst, key=lambda link: (link.source, link.target))
    )


def _distance(link: ObservedRegionLink) -> float:
    """How many times as fast or as slow as planned; 0 where that is not known."""
    if link.observed_bytes_per_s is None:
        return 0.0
    ratio = link.observed_bytes_per_s / link.planned_bytes_per_s
    return max(ratio, 1 / ratio)


def _price_per_hour(plan: Plan, topology: Topology) -> str | None:
    """Decimal text; None where a machine's price is not known.

    A plan's price is far below what 32 characters hold.
    """
    if not all(topology.machine(worker.machine).price_per_hour for worker in plan.workers):
        return None
    return f"{accelerators_per_s(plan, topology) * 3600:.4f}"


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


def _machines(plan: Plan, stage: int) -> set[str]:
    """The machines that have a stage. Ranks run (replica, stage, tensor)."""
    tensor, pipeline = plan.layout.tensor, plan.layout.pipeline
    return {machine for rank, machine in enumerate(plan.rank_machines) if rank // tensor % pipeline == stage}


def _bottleneck(plan: Plan, topology: Topology) -> Bottleneck | None:
    if plan.prediction.bottleneck is None:
        return None
    source, target = plan.prediction.bottleneck
    link = topology.link(source, target)
    return Bottleneck(
        source=source,
        target=target,
        rtt_microseconds=microseconds(link.rtt_s),
        bandwidth_bytes_per_second=_whole(link.bandwidth_bytes_per_s),
    )
