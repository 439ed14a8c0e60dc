"""A Prometheus collector that turns a snapshot into series at the moment they are asked for; it keeps nothing."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from hulk_operator import background, version
from hulk_operator.api import AllReduceTime, HulkJob, PipelineObserved, PredictionSummary, RegionLinkRate
from hulk_operator.metrics import definitions as d
from hulk_operator.metrics.definitions import Definition, Kind, Labels, Rows
from hulk_operator.metrics.queue_rows import queue_rows
from hulk_operator.metrics.snapshot import Health, Histogram, Snapshot, folded
from hulk_operator.metrics.sweep_rows import sweep_rows
from hulk_operator.probing import LinkSample, by_region, current

MAX_DETAIL_NODES: Final = 64  # above it, series per worker and per node pair are left out


class OperatorCollector(Collector):
    """All `hulk_*` series. `snapshot` is called once per scrape, from any thread, and must not block."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        health: Health,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._snapshot = snapshot
        self._health = health
        self._clock = clock

    def describe(self) -> Iterator[Metric]:
        """The empty families, so that registering asks for no snapshot."""
        return (_family(definition, ()) for definition in d.DEFINITIONS)

    def collect(self) -> Iterator[Metric]:
        """Every family in the order of the table, also the empty ones."""
        snapshot = self._snapshot()
        rows = {
            **_job_rows(snapshot),
            **_wan_rows(snapshot),
            **_pipeline_rows(snapshot),
            **queue_rows(snapshot, self._health.moves, self._clock()),
            **sweep_rows(snapshot),
            **_link_rows(snapshot, self._clock().timestamp()),
            **_probing_rows(snapshot),
            **_operator_rows(snapshot, self._health),
        }
        health = self._health
        histograms = {
            d.OPERATOR_RECONCILE: health.reconciles,
            d.OPERATOR_PASSES: health.passes,
            d.OPERATOR_LAG: health.lags,
        }
        for definition in d.DEFINITIONS:
            if definition.kind is Kind.HISTOGRAM:
                yield _histogram(definition, histograms[definition])
            else:
                yield _family(definition, rows[definition])


def registry(
    snapshot: Callable[[], Snapshot],
    health: Health,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> CollectorRegistry:
    """A registry with nothing but the operator's own series."""
    found = CollectorRegistry()
    found.register(OperatorCollector(snapshot, health, clock))
    return found


def exposition(seen: Snapshot, health: Health, clock: Callable[[], datetime]) -> bytes:
    """All series in Prometheus' text format, from any thread: with thousands of nodes it takes 0.1 s and more."""
    return generate_latest(registry(lambda: seen, health, clock))


def _family(definition: Definition, rows: Rows) -> Metric:
    kind = CounterMetricFamily if definition.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(definition.name, definition.help, labels=definition.labels)
    for labels, value in rows:
        if value is not None:
            family.add_metric(list(labels), value)
    return family


def _job_rows(snapshot: Snapshot) -> dict[Definition, Rows]:
    jobs = {_names(job): job for job in snapshot.jobs}

    def per_job(value: Callable[[HulkJob], float | None]) -> Rows:
        return [(labels, value(job)) for labels, job in jobs.items()]

    bottlenecks = {labels: job.status.plan.bottleneck for labels, job in jobs.items() if job.status.plan}
    return {
        d.JOB_PHASE: [((*labels, job.status.phase.value), 1.0) for labels, job in jobs.items()],
        d.JOB_ATTEMPT: per_job(lambda job: job.status.attempt),
        d.JOB_STEP: per_job(lambda job: job.status.observed.step if job.status.observed else None),
        d.JOB_LOSS: per_job(_loss),
        d.JOB_PREDICTED: per_job(
            lambda job: job.status.prediction.step_microseconds / 1e6 if job.status.prediction else None
        ),
        d.JOB_OBSERVED: per_job(_observed_s),
        d.JOB_ERROR: per_job(lambda job: _number(job.status.observed.relative_error) if job.status.observed else None),
        d.JOB_CHECKPOINT: per_job(lambda job: job.status.checkpoint.step if job.status.checkpoint else None),
        d.JOB_CHECKPOINT_REFUSED: per_job(
            lambda job: job.status.observed.refused_checkpoints or 0 if job.status.observed else None
        ),
        d.JOB_FAILURES: per_job(lambda job: job.status.failures),
        d.JOB_DISRUPTIONS: per_job(lambda job: job.status.disruptions),
        d.JOB_LEFT_OUT: per_job(_left_out),
        d.JOB_BOTTLENECK: [
            ((*labels, link.source, link.target), 1.0) for labels, link in bottlenecks.items() if link is not None
        ],
        d.JOB_RING: list(_ring_rows(snapshot)),
    }


def _wan_rows(snapshot: Snapshot) -> dict[Definition, Rows]:
    """What the job's own all-reduces take, by size class, and what their links carry."""
    seen = [
        (_names(job), job.status.observed.wan)
        for job in snapshot.jobs
        if job.status.observed and job.status.observed.wan
    ]

    def per_size(value: Callable[[AllReduceTime], int | None]) -> Rows:
        rows = [((*labels, str(size.max_bytes)), value(size)) for labels, of in seen for size in of.all_reduces]
        return [(labels, found / 1e6) for labels, found in rows if found is not None]

    def per_link(value: Callable[[RegionLinkRate], int | None]) -> Rows:
        return [((*labels, link.source, link.target), value(link)) for labels, of in seen for link in of.region_links]

    return {
        d.JOB_SUM_PREDICTED: per_size(lambda size: size.predicted_microseconds),
        d.JOB_SUM_OBSERVED: per_size(lambda size: size.observed_microseconds),
        d.JOB_SUM_BOUND: per_size(lambda size: size.bound_microseconds),
        d.JOB_LINK_PLANNED: per_link(lambda link: link.planned_bytes_per_second),
        d.JOB_LINK_OBSERVED: per_link(lambda link: link.observed_bytes_per_second),
    }


def _pipeline_rows(snapshot: Snapshot) -> dict[Definition, Rows]:
    """What the stage that computes longest waits in a step, as predicted and as observed."""
    predicted = [(_names(job), job.status.prediction) for job in snapshot.jobs if job.status.prediction]
    observed = [
        (_names(job), job.status.observed.pipeline)
        for job in snapshot.jobs
        if job.status.observed and job.status.observed.pipeline
    ]
    return {
        d.JOB_PIPELINE_PREDICTED: [row for labels, found in predicted for row in _wait_rows(labels, found)],
        d.JOB_PIPELINE_OBSERVED: [row for labels, found in observed for row in _wait_rows(labels, found)],
    }


def _wait_rows(labels: Labels, found: PredictionSummary | PipelineObserved) -> Iterator[tuple[Labels, float]]:
    parts = {"bubble": found.bubble_microseconds, "transfer": found.transfer_microseconds}
    return (((*labels, part), value / 1e6) for part, value in parts.items() if value is not None)


def _ring_rows(snapshot: Snapshot) -> Iterator[tuple[Labels, float | None]]:
    for job in snapshot.jobs:
        places = folded(snapshot.rings.get(job.key, ()))
        if len(places) <= MAX_DETAIL_NODES:
            for place, rank in places.items():
                yield (*_names(job), place.node, place.region), rank


def _link_rows(snapshot: Snapshot, now_s: float) -> dict[Definition, Rows]:
    region_of = snapshot.probing.region_of
    links = snapshot.probing.accepted.links
    scoped = [("region", link) for link in by_region(links, region_of).values()]
    if len(region_of) <= MAX_DETAIL_NODES:
        scoped += [("node", link) for link in current(links, region_of)]

    def per_link(value: Callable[[LinkSample], float | None]) -> Rows:
        return [((link.source, link.target, scope), value(link)) for scope, link in scoped]

    return {
        d.LINK_RTT: per_link(lambda link: link.rtt_s),
        d.LINK_BANDWIDTH: per_link(lambda link: link.bandwidth_bytes_per_s),
        d.LINK_AGE: per_link(lambda link: max(0.0, now_s - link.newest_s)),
        d.LINK_BANDWIDTH_AGE: per_link(
            lambda link: max(0.0, now_s - link.bandwidth_time_s) if link.bandwidth_time_s else None
        ),
    }


def _probing_rows(snapshot: Snapshot) -> dict[Definition, Rows]:
    probing = snapshot.probing
    refused = Counter(rejection.reason for rejection in probing.accepted.rejections)
    return {
        d.LINKS_REFUSED: [((reason,), float(count)) for reason, count in refused.items()],
        d.PROBING_TESTS: [((), float(probing.num_tests))],
        d.PROBING_PENDING: [((), float(probing.decision.num_pending + len(probing.decision.attempts)))],
        d.PROBING_WAITING: [((reason,), float(count)) for reason, count in probing.decision.waiting.items()],
    }


def _operator_rows(snapshot: Snapshot, health: Health) -> dict[Definition, Rows]:
    return {
        d.OPERATOR_INFO: [((version(),), 1.0)],
        d.OPERATOR_LEASE: [((), float(snapshot.lease_held))],
        d.OPERATOR_QUEUE: [((), float(snapshot.queue_depth))],
        d.OPERATOR_PLANNING: [((), health.planning_s)],
        d.OPERATOR_WRITES: [(labels, float(count)) for labels, count in dict(health.writes).items()],
        d.OPERATOR_BACKGROUND: [((task,), float(count)) for task, count in background.failures().items()],
        d.OPERATOR_ERRORS: [((where,), float(count)) for where, count in dict(health.errors).items()],
    }


def _histogram(definition: Definition, found: Histogram) -> Metric:
    bounds = [*map(str, found.bounds_s), "+Inf"]
    family = HistogramMetricFamily(definition.name, definition.help, labels=[])
    family.add_metric([], list(zip(bounds, accumulate(found.counts), strict=True)), found.sum_s)
    return family


def _names(job: HulkJob) -> tuple[str, str]:
    return job.namespace, job.metadata.name


def _observed_s(job: HulkJob) -> float | None:
    seen = job.status.observed
    return seen.step_microseconds / 1e6 if seen and seen.step_microseconds is not None else None


def _left_out(job: HulkJob) -> float | None:
    plan, known = job.status.plan, job.status.membership
    if plan is None:
        return None
    return plan.num_workers - known.workers if known else 0


def _loss(job: HulkJob) -> float | None:
    """Also when it is not finite: a training that diverged is what one looks for."""
    seen = job.status.observed
    return float(seen.loss) if seen and seen.loss is not None else None


def _number(text: str | None) -> float | None:
    """A decimal of the status; what is not finite is no sample."""
    value = float(text) if text is not None else math.nan
    return value if math.isfinite(value) else None
