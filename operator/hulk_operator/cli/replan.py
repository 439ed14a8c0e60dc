"""A plan that is carried out, beside the best one for the cluster as it is now -> `ReplanReport` and its table."""

from collections.abc import Iterator

from hulk_placement.plan import Plan
from hulk_placement.replan.answer import Replanned
from hulk_placement.replan.changes import FigureDrifted, LinkDrifted
from hulk_placement.topology import LinkKind, Topology
from rich.console import Group, RenderableType
from rich.text import Text

from hulk_operator.api import Resource
from hulk_operator.cli import plan_screen, tables, units
from hulk_operator.cli.plan_reports import plan_report
from hulk_operator.cli.reports import PlanReport, PlanReports
from hulk_operator.cli.table_format import sentence

MAX_DRIFTS = 8


class MachineRow(Resource):
    """A machine with more or fewer accelerators than when the plan was made."""

    name: str
    before: int
    now: int


class DriftRow(Resource):
    """A directed link of regions or machines with other figures than when the plan was made.

    Where nothing is known of it any more (`unknown`), its figures are those that unknown links are planned with.
    """

    source: str
    target: str
    rtt_microseconds_before: int
    rtt_microseconds: int
    bandwidth_bytes_per_second_before: int
    bandwidth_bytes_per_second: int
    flow_bytes_per_second_before: int  # what one TCP connection gets, uplinks counted
    flow_bytes_per_second: int
    unknown: bool = False
    factor: float  # by which the figure changed that changed most


class FigureRow(Resource):
    """An uplink or a machine's speed that is stated otherwise than when the plan was made."""

    figure: str  # uplink (bytes/s) or speed (FLOP/s)
    name: str  # of the region, or of the machine
    before: int
    now: int
    factor: float


class CostRow(Resource):
    """A part of the move; the parts sum to it."""

    part: str
    seconds: float


class ReplanReport(Resource):
    """What `hulk plan --from` prints."""

    workload: str
    verdict: str
    reason: str
    known_before: bool  # whether the plan's file says what it was made of
    lost: tuple[MachineRow, ...] = ()
    added: tuple[MachineRow, ...] = ()
    drifted: tuple[DriftRow, ...] = ()
    figures: tuple[FigureRow, ...] = ()
    step_microseconds_then: int | None = None  # predicted when it was made
    step_microseconds_now: int | None = None  # of the current plan as the links are now; absent: it cannot go on
    step_microseconds_new: int | None = None
    steps_left: int
    gain_seconds: float | None = None
    cost_seconds: float | None = None
    cost: tuple[CostRow, ...] = ()
    checkpoint_bytes_sent: int | None = None
    plan: PlanReport | None = None


def replan_report(plan: Plan, found: Replanned, topology: Topology, steps_left: int) -> ReplanReport:
    """The report of an answer about a plan."""
    changed, cost, weighed = found.changes, found.cost, found.weighed
    return ReplanReport(
        workload=plan.key,
        verdict=found.verdict.value,
        reason=found.reason,
        known_before=changed.is_whole,
        lost=tuple(MachineRow(name=one.name, before=one.num_held, now=one.num_left) for one in changed.lost),
        added=tuple(MachineRow(name=one.name, before=one.num_before, now=one.num_now) for one in changed.added),
        drifted=tuple(map(_drift_row, changed.drifted)),
        figures=tuple(map(_figure_row, changed.figures)),
        step_microseconds_then=_microseconds(plan) if plan.prediction.step_s else None,
        step_microseconds_now=_microseconds(found.current),
        step_microseconds_new=_microseconds(found.new),
        steps_left=steps_left,
        gain_seconds=weighed.gain if weighed and weighed.unit == "s" else None,
        cost_seconds=cost.seconds if cost else None,
        cost=tuple(CostRow(part=part, seconds=seconds) for part, seconds in cost.parts()) if cost else (),
        checkpoint_bytes_sent=cost.sent_bytes if cost else None,
        plan=plan_report(found.new, topology) if found.new else None,
    )


def _drift_row(drift: LinkDrifted) -> DriftRow:
    before, now = drift.before, drift.now
    return DriftRow(
        source=drift.pair[0],
        target=drift.pair[1],
        rtt_microseconds_before=round(before.rtt_s * 1e6),
        rtt_microseconds=round(now.rtt_s * 1e6),
        bandwidth_bytes_per_second_before=round(before.bandwidth_bytes_per_s),
        bandwidth_bytes_per_second=round(now.bandwidth_bytes_per_s),
        flow_bytes_per_second_before=round(before.one_flow_bytes_per_s),
        flow_bytes_per_second=round(now.one_flow_bytes_per_s),
        unknown=now.kind is LinkKind.UNKNOWN,
        factor=round(drift.factor, 3),
    )


def _figure_row(drift: FigureDrifted) -> FigureRow:
    return FigureRow(
        figure=drift.what,
        name=drift.name,
        before=round(drift.before),
        now=round(drift.now),
        factor=round(drift.factor, 3),
    )


def replan_table(report: ReplanReport, with_details: bool = False) -> RenderableType:
    """For people: what changed, both steps, the cost, the verdict, the plan to move to."""
    return Group(*_lines(report, with_details))


def _lines(report: ReplanReport, with_details: bool) -> Iterator[RenderableType]:
    colour = "yellow" if report.verdict == "move" else "green"
    yield Text.assemble((f"{report.workload}: ", "bold"), (report.verdict, colour))
    yield sentence("why", report.reason)
    yield from _changes(report)
    yield sentence(
        "step",
        f"{units.duration(report.step_microseconds_now)} by the current plan as the cluster is now, "
        f"{units.duration(report.step_microseconds_new)} by the new one; {report.steps_left:,} steps are left",
    )
    if report.cost_seconds is not None:
        parts = ", ".join(f"{row.part} {row.seconds:.2f} s" for row in report.cost if row.seconds)
        sent = units.size(report.checkpoint_bytes_sent or 0)
        yield sentence("move", f"{report.cost_seconds:.2f} s: {parts or 'nothing'}; {sent} of checkpoint sent")
    if report.plan is not None:
        yield ""
        new = PlanReports(jobs=(report.plan,))
        yield tables.plans(new) if with_details else plan_screen.plans(new)


def _changes(report: ReplanReport) -> Iterator[RenderableType]:
    for machine in (*report.lost, *report.added):
        yield sentence("changed", f"{machine.name}: {machine.before} -> {machine.now} accelerators")
    for drift in report.drifted[:MAX_DRIFTS]:
        rtt = f"{units.duration(drift.rtt_microseconds_before)} -> {units.duration(drift.rtt_microseconds)}"
        before, now = drift.bandwidth_bytes_per_second_before, drift.bandwidth_bytes_per_second
        figures = f"{rtt}, {units.rate(before)} -> {units.rate(now)}"
        one_before, one_now = drift.flow_bytes_per_second_before, drift.flow_bytes_per_second
        if (one_before, one_now) != (before, now):
            figures += f", one flow {units.rate(one_before)} -> {units.rate(one_now)}"
        figures += ", of which nothing is known now" * drift.unknown
        yield sentence("changed", f"{drift.source} -> {drift.target}: {figures} (factor {drift.factor:.2f})")
    if len(report.drifted) > MAX_DRIFTS:
        yield sentence("changed", f"{len(report.drifted) - MAX_DRIFTS} links more (-o json has all)")
    for row in report.figures[:MAX_DRIFTS]:
        unit = "B/s" if row.figure == "uplink" else "FLOP/s"
        figures = f"{row.before:,} -> {row.now:,} {unit}"
        yield sentence("changed", f"{row.figure} of {row.name}: {figures} (factor {row.factor:.2f})")
    if len(report.figures) > MAX_DRIFTS:
        yield sentence("changed", f"{len(report.figures) - MAX_DRIFTS} uplinks and speeds more (-o json has all)")
    if not report.known_before:
        yield sentence("changed", "the plan's file does not say what it was made of (madeOf)")
    elif not (report.lost or report.added or report.drifted or report.figures):
        yield sentence("changed", "nothing")


def _microseconds(plan: Plan | None) -> int | None:
    return None if plan is None else round(plan.prediction.step_s * 1e6)
