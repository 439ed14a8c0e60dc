"""What rank 0 says of its waits and all-reduces -> what the status says of them: bounded, integers only."""

from collections.abc import Collection, Sequence

from hulk_operator.api import AllReduceTime, PipelineObserved, RegionLinkRate, WanObserved
from hulk_operator.api.status import MAX_ALL_REDUCES, MAX_REGION_LINKS
from hulk_operator.observation import Observation, ObservedAllReduce, ObservedRegionLink
from hulk_operator.reconcile.plan_summary import microseconds, whole


def pipeline_observed(seen: Observation) -> PipelineObserved | None:
    """What the stage that computes longest waits for; None where there are no stages."""
    if not seen.stages:
        return None
    longest = max(seen.stages, key=lambda stage: stage.compute_s)
    return PipelineObserved(
        stage=longest.stage,
        bubble_microseconds=microseconds(longest.bubble_s + longest.transfer_s),
        transfer_microseconds=microseconds(longest.transfer_s),
    )


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
            planned_bytes_per_second=max(1, whole(link.planned_bytes_per_s)),
            observed_bytes_per_second=whole(link.observed_bytes_per_s or 0.0) or None,
        )
        for link in sorted(worst, key=lambda link: (link.source, link.target))
    )


def _distance(link: ObservedRegionLink) -> float:
    """How many times as fast or as slow as planned; 0 where that is not known."""
    if link.observed_bytes_per_s is None:
        return 0.0
    ratio = link.observed_bytes_per_s / link.planned_bytes_per_s
    return max(ratio, 1 / ratio)
