"""A plan with its prediction -> `PredictReport`: what a step takes and where it goes, as data and as a table.

A further row is a field of the report, a line in `predict_report` that fills it, and a function in `_SECTIONS`.
"""

from collections.abc import Callable, Iterable, Iterator

from hulk_placement.cost.warm_up import predict_warm_up, steps_left
from hulk_placement.plan import Layout, Plan
from hulk_placement.report.guesses import guessed_speeds
from hulk_placement.report.rows import MemoryRow, StepPartRow, View
from hulk_placement.report.view import view
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload
from rich.console import Group, RenderableType
from rich.text import Text

from hulk_operator.api import Resource
from hulk_operator.cli import tables, units
from hulk_operator.cli.detail_tables import details, few
from hulk_operator.cli.report_rows import bottleneck
from hulk_operator.cli.reports import BottleneckRow
from hulk_operator.cli.simulated import SimulatedReport, simulated_report, simulated_table
from hulk_operator.cli.table_format import sentence, table


class CellRow(Resource):
    """One stage of one replica."""

    replica: int
    stage: int
    node: str
    region: str
    accelerators: int
    first_layer: int
    last_layer: int
    sequences: int  # per step
    compute_microseconds: int  # per step
    share_of_step: float  # that it computes


class TrainingRow(Resource):
    """The whole training, where the workload says how many steps it has."""

    steps: int
    hours: float
    price: float | None = None


class PredictReport(Resource):
    """What `hulk predict` prints."""

    workload: str
    data: int
    pipeline: int
    tensor: int
    shard: int = 1
    schedule: str
    sync: str
    step_microseconds: int
    sequences_per_second: float
    breakdown: tuple[StepPartRow, ...]
    bottleneck: BottleneckRow | None = None
    memory_bytes: int
    fits_memory: bool | None = None  # None: not known of every machine
    price_per_hour: float | None = None  # of the accelerators
    price_per_step: float | None = None  # of the accelerators and of traffic between regions
    traffic_price_per_step: float | None = None
    training: TrainingRow | None = None
    calibrated: bool
    guessed_speeds: str | None = None  # what is taken for those that were not measured
    cells: tuple[CellRow, ...]
    details: View
    simulated: SimulatedReport


def predict_report(plan: Plan, workload: Workload, topology: Topology, num_steps: int | None) -> PredictReport:
    """The report of a plan with what is promised of it (`cost.foresee`); `num_steps` of the whole training."""
    found, layout = plan.prediction, plan.layout
    per_hour = sum(topology.machine(name).price_per_hour * held for name, held in plan.accelerators().items())
    shown = view(plan, workload, topology, is_searched=False)
    return PredictReport(
        workload=plan.key,
        data=layout.data,
        pipeline=layout.pipeline,
        tensor=layout.tensor,
        shard=layout.shard,
        schedule=plan.schedule,
        sync=plan.algorithm,
        step_microseconds=_microseconds(found.step_s),
        sequences_per_second=workload.global_batch / found.step_s,
        breakdown=shown.step,
        bottleneck=bottleneck(shown.step, topology),
        memory_bytes=found.memory_bytes,
        fits_memory=_fits(shown.memory),
        price_per_hour=per_hour or None,
        price_per_step=found.price or None,
        traffic_price_per_step=max(0.0, found.price - per_hour * found.step_s / 3600) or None,
        training=None if num_steps is None else _training(num_steps, plan, workload, topology),
        calibrated=found.calibrated,
        guessed_speeds=guessed_speeds(plan, workload, topology),
        cells=tuple(_cells(plan, workload.model.num_layers)),
        details=shown,
        simulated=simulated_report(plan, workload, topology),
    )


def _fits(memory: Iterable[MemoryRow]) -> bool | None:
    """Whether every machine holds what is on it; None where one lacks nothing that is known, and not all is known."""
    verdicts = {row.fits for row in memory}
    return False if False in verdicts else None if None in verdicts else True


def _training(num_steps: int, plan: Plan, workload: Workload, topology: Topology) -> TrainingRow:
    num_together, step = min(num_steps, steps_left(plan, workload)), plan.prediction
    together = predict_warm_up(plan, workload, topology) if num_together else step
    num_after = num_steps - num_together
    return TrainingRow(
        steps=num_steps,
        hours=(num_together * together.step_s + num_after * step.step_s) / 3600,
        price=num_together * together.price + num_after * step.price or None,
    )


def _cells(plan: Plan, num_layers: int) -> Iterator[CellRow]:
    layout, bounds = plan.layout, (*plan.stages, num_layers)
    regions = {worker.machine: worker.region for worker in plan.workers}
    for replica in range(layout.data):
        for stage in range(layout.pipeline):
            rank = (replica * layout.pipeline + stage) * layout.width
            node, compute_s = plan.rank_machines[rank], plan.prediction.rank_compute_s[rank]
            yield CellRow(
                replica=replica,
                stage=stage,
                node=node,
                region=regions[node],
                accelerators=layout.width,
                first_layer=bounds[stage],
                last_layer=bounds[stage + 1] - 1,
                sequences=plan.shares[replica],
                compute_microseconds=_microseconds(compute_s),
                share_of_step=compute_s / plan.prediction.step_s,
            )


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


def predict_table(report: PredictReport) -> RenderableType:
    """The report for people."""
    return Group(*(line for section in _SECTIONS for line in section(report)))


Lines = Iterator[RenderableType]


def _head(report: PredictReport) -> Lines:
    degrees = f"{Layout(report.data, report.pipeline, report.tensor, report.shard).words} (data x pipeline x tensor)"
    order = f", {report.schedule}" if report.pipeline > 1 else ""
    sync = f", {report.sync}" if report.data > 1 else ""
    yield Text.assemble((f"{report.workload}: ", "bold"), degrees, order, sync)


def _step(report: PredictReport) -> Lines:
    step = units.duration(report.step_microseconds)
    yield sentence("step", f"{step} predicted = {tables.step_words(report.breakdown)}")
    yield sentence("throughput", f"{report.sequences_per_second:.4g} sequences/s")
    if report.guessed_speeds is not None:
        yield sentence("speeds", report.guessed_speeds)


def _bottleneck(report: PredictReport) -> Lines:
    if report.bottleneck is not None:
        yield sentence("bottleneck", tables.bottleneck_words(report.bottleneck))


def _memory(report: PredictReport) -> Lines:
    """What is lacking is said of the machines that lack most."""
    missing = max(report.details.memory, key=lambda row: row.missing_bytes)
    verdict = {
        True: "it fits",
        False: f"{units.size(missing.missing_bytes)} missing on {few(missing.machines)}",
        None: "that of the machines is not known",
    }
    size = units.size(report.memory_bytes)
    yield sentence("memory", f"{size} on the fullest accelerator; {verdict[report.fits_memory]}")


def _money(report: PredictReport) -> Lines:
    if report.price_per_step is not None:
        hour, traffic = report.price_per_hour or 0.0, report.traffic_price_per_step or 0.0
        said = f"{report.price_per_step:.4g} a step, {traffic:.4g} of it for traffic; accelerators {hour:.4g} an hour"
        yield sentence("price", said)


def _training_line(report: PredictReport) -> Lines:
    if report.training is not None:
        price = "" if report.training.price is None else f", {report.training.price:.4g}"
        yield sentence("training", f"{report.training.steps} steps: {report.training.hours:.4g} hours{price}")


def _cell_table(report: PredictReport) -> Lines:
    headings = ("REPLICA", "STAGE", "NODE", "REGION", "ACCELERATORS", "LAYERS", "SEQUENCES", "COMPUTE", "OF STEP")
    numbers = ("REPLICA", "STAGE", "ACCELERATORS", "SEQUENCES", "COMPUTE", "OF STEP")
    made = table(*headings, numbers=numbers)
    for row in report.cells[: tables.MAX_WORKER_ROWS]:
        made.add_row(
            str(row.replica),
            str(row.stage),
            row.node,
            row.region,
            str(row.accelerators),
            f"{row.first_layer}-{row.last_layer}",
            str(row.sequences),
            units.duration(row.compute_microseconds),
            units.percent(row.share_of_step),
        )
    if len(report.cells) > tables.MAX_WORKER_ROWS:
        made.add_row("...", "", f"{len(report.cells) - tables.MAX_WORKER_ROWS} more (-o json has all)")
    yield made


def _details(report: PredictReport) -> Lines:
    yield from details(report.details)


def _simulated(report: PredictReport) -> Lines:
    yield from simulated_table(report.simulated)


_SECTIONS: tuple[Callable[[PredictReport], Lines], ...] = (
    _head,
    _step,
    _bottleneck,
    _memory,
    _money,
    _training_line,
    _cell_table,
    _details,
    _simulated,
)
