"""Every metric a worker serves, in one place; `reference` makes docs/reference/metrics-runtime.md of them."""

from collections.abc import Callable, Collection, Iterator, Sequence
from statistics import fmean, median

from prometheus_client import (
    GC_COLLECTOR,
    PLATFORM_COLLECTOR,
    PROCESS_COLLECTOR,
    CollectorRegistry,
    Counter,
    Gauge,
    Info,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hulk_runtime import background
from hulk_runtime.collective.planned.statistics import WINDOW
from hulk_runtime.job.step_record import WINDOW_STEPS
from hulk_runtime.plan import wire
from hulk_runtime.training.all_reduce_report import WanFigures
from hulk_runtime.training.data_parallel import StepReport

BYTES_PER_GRADIENT = 4


class BackgroundCollector(Collector):
    """How often threads of this process broke (`background`): read when somebody asks."""

    def collect(self) -> Iterator[Metric]:
        """One family; a thread that was never begun has no series."""
        name, help_ = "hulk_worker_background_failures", "Unexpected ends of a thread beside the training."
        family = CounterMetricFamily(name, help_, labels=["thread"])
        for thread, count in sorted(background.failures().items()):
            family.add_metric([thread], count)
        yield family


def process_registry() -> CollectorRegistry:
    """The process's own metrics, which every worker serves."""
    registry = CollectorRegistry()
    for collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR, BackgroundCollector()):
        registry.register(collector)
    return registry


def own_step(registry: CollectorRegistry, attempt: int) -> Gauge:
    """How far the worker is by itself: who speaks for the whole job may be out of reach."""
    said = "Last step that this worker's first rank completed."
    return Gauge("hulk_worker_own_step", said, ["attempt"], registry=registry).labels(str(attempt))


class JobMetrics:
    """The view of the whole job, by the lowest rank that takes part.

    `nodes` is the node of each rank, `inner_steps` a round of local SGD, which begins after `warmup_steps`;
    `ranks_apart`: see `Layout`.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        nodes: Sequence[str],
        inner_steps: int | None = None,
        warmup_steps: int = 0,
        ranks_apart: int = 1,
    ) -> None:
        self._nodes, self._ranks_apart = nodes, ranks_apart
        self._inner_steps, self._warmup_steps = inner_steps, warmup_steps
        self._recent: list[float] = []
        self._sent_bytes = 0

        def gauge(name: str, help_: str, labels: Sequence[str] = ()) -> Gauge:
            return Gauge(f"hulk_worker_{name}", help_, labels, registry=registry)

        self._info = Info("hulk_worker", "What runs here.", registry=registry)
        self._step = gauge("step", "Last completed step.")
        self._seconds = gauge(
            "step_seconds", f"Median of the last {WINDOW_STEPS} steps; with local SGD the mean of the last whole round."
        )
        self._seconds_last = gauge("step_seconds_last", "Duration of the last step.")
        self._loss = gauge("loss", "Mean loss of the last step's global batch; with local SGD of rank 0's share.")
        self._compute = gauge("compute_seconds", "A rank's forward, backward and update in the last step.", ["rank"])
        self._parameters = gauge("parameters", "Parameters of the model.")
        self._gradient_bytes = gauge("gradient_bytes", "Bytes of their gradients.")
        self._sent = Counter("hulk_worker_sent_bytes", "Bytes rank 0 sent to other ranks.", registry=registry)
        self._checkpoint_step = gauge("checkpoint_step", "Step of the last committed checkpoint.")
        self._checkpoint_bytes = gauge("checkpoint_bytes", "Size of the last committed checkpoint.")
        self._refused = gauge(
            "checkpoint_refused", "What this attempt found in the checkpoints' folder that is not as the job wrote it."
        )
        self._epoch = gauge("membership_epoch", "How often this attempt went on without a region; 0: it is whole.")
        self._member = gauge("member", "1 while a rank takes part, 0 once its region was left out.", ["rank"])
        self._stages = gauge(
            "pipeline_seconds",
            "Where a step's time goes on a stage: computing, waiting for transfers, bubbles, sums; looked at in every "
            "fifth step.",
            ["stage", "part"],
        )
        link = ["source", "target"]
        self._rtt = gauge("link_rtt_seconds", "Smallest round trip of the job's own connection.", link)
        self._rate = gauge("link_bandwidth_bytes_per_second", "Delivery rate of the job's own connection.", link)

    def set_info(self, attempt: int, backend: str, all_reduce: str) -> None:
        """What runs here. `all_reduce`: by which algorithm of the plan gradients are summed, `ring` or `wan`."""
        versions = {"version": wire.runtime_version(), "wire_version": str(wire.VERSION)}
        self._info.info({**versions, "attempt": str(attempt), "backend": backend, "all_reduce": all_reduce})

    def set_model(self, num_parameters: int) -> None:
        """What is trained, with gradients in fp32."""
        self._parameters.set(num_parameters)
        self._gradient_bytes.set(num_parameters * BYTES_PER_GRADIENT)

    def set_membership(self, epoch: int, members: Collection[int]) -> None:
        """Which ranks take part, from the start on and whenever that changes; said by the lowest of them."""
        self._epoch.set(epoch)
        for rank in range(len(self._nodes)):
            self._member.labels(str(rank)).set(rank in members)

    def set_step(self, step: int, step_s: float, sent_bytes: int, report: StepReport) -> None:
        """One completed step. `sent_bytes` counts from the start."""
        self._step.set(step)
        if step > self._warmup_steps:
            self._set_seconds(step_s)
        self._seconds_last.set(step_s)
        self._loss.set(report.loss)
        self._sent.inc(sent_bytes - self._sent_bytes)
        self._sent_bytes = sent_bytes
        for rank, own in enumerate(report.ranks):
            self._compute.labels(str(rank)).set(own.compute_s)
        self._set_links(report)
        for stage, parts in enumerate(report.stages):
            seconds = {"compute": parts.compute_s, "transfer": parts.transfer_s, "bubble": parts.bubble_s}
            for part, value in {**seconds, "sum": parts.sum_s}.items():
                self._stages.labels(str(stage), part).set(value)

    def set_checkpoint(self, step: int, num_bytes: int) -> None:
        """One committed checkpoint."""
        self._checkpoint_step.set(step)
        self._checkpoint_bytes.set(num_bytes)

    def set_refused(self, num: int) -> None:
        """What was found so far."""
        self._refused.set(num)

    def _set_seconds(self, step_s: float) -> None:
        """Of any as many steps as a round has, one is an outer one; no plan predicts those before the first round."""
        self._recent = [*self._recent, step_s][-(self._inner_steps or WINDOW_STEPS) :]
        if not self._inner_steps:
            self._seconds.set(median(self._recent))
        elif len(self._recent) == self._inner_steps:
            self._seconds.set(fmean(self._recent))

    def _set_links(self, report: StepReport) -> None:
        """Ranks of one node share its link: the last of them with a sample is shown."""
        for rank, own in enumerate(report.ranks):
            source, target = self._nodes[rank], self._nodes[(rank - self._ranks_apart) % len(self._nodes)]
            if source == target:
                continue
            if own.link.rtt_s > 0:
                self._rtt.labels(source, target).set(own.link.rtt_s)
            if own.link.bandwidth_bytes_per_s > 0:
                self._rate.labels(source, target).set(own.link.bandwidth_bytes_per_s)


class WanCollector(Collector):
    """The all-reduces between regions, by size class and by directed link of regions: read when somebody asks."""

    def __init__(self, read: Callable[[], WanFigures]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Every family; what is not known has no series."""
        figures = self._read()
        yield from _by_size(figures)
        yield from _by_link(figures)


def _by_size(figures: WanFigures) -> Iterator[Metric]:
    label = ["max_bytes"]
    number = CounterMetricFamily("hulk_worker_all_reduces", "All-reduces whose time is known.", labels=label)
    for size in figures.sizes:
        number.add_metric([str(size.max_bytes)], size.num)
    yield number
    window = f"median of the last {WINDOW}"
    seconds = (
        ("seconds", f"From its begin on the rank that began last, {window} of the class.", "observed_s"),
        ("predicted_seconds", "What the plan predicted for an all-reduce of that size.", "predicted_s"),
        ("bound_seconds", "What no all-reduce of that size can beat on the links as planned.", "bound_s"),
    )
    for name, help_, field in seconds:
        rows = [((str(size.max_bytes),), getattr(size, field)) for size in figures.sizes]
        yield _gauges(f"hulk_worker_all_reduce_{name}", help_, label, rows)


def _by_link(figures: WanFigures) -> Iterator[Metric]:
    label, links = ["source", "target"], figures.links
    carried = CounterMetricFamily("hulk_worker_region_link_bytes", "Chunks from one region to another.", labels=label)
    for link in links:
        carried.add_metric([link.source, link.target], link.carried.num_bytes)
    yield carried
    rate = "bytes_per_second"
    for name, help_, values in (
        (f"planned_{rate}", "Rate in the plan.", [link.planned_bytes_per_s for link in links]),
        (f"believed_{rate}", "Rate that paces and shares follow now.", [link.believed_bytes_per_s for link in links]),
        (
            f"observed_{rate}",
            "Rate while more waited to be sent, in the last round that measured it; paced at 0.97 of what is believed.",
            [link.carried.bytes_per_s for link in links],
        ),
        (
            "last_byte_seconds",
            "From an all-reduce's begin to its last byte over the link, median of the last round.",
            [link.carried.last_s for link in links],
        ),
    ):
        rows = [((link.source, link.target), value) for link, value in zip(links, values, strict=True)]
        yield _gauges(f"hulk_worker_region_link_{name}", help_, label, rows)


def _gauges(name: str, help_: str, labels: Sequence[str], rows: Sequence[tuple[Sequence[str], float]]) -> Metric:
    family = GaugeMetricFamily(name, help_, labels=labels)
    for values, value in rows:
        if value > 0:
            family.add_metric(list(values), value)
    return family
