"""A plan -> `SimulatedReport`: its step event by event, how long it takes and where, beside the closed form."""

from __future__ import annotations

from collections.abc import Iterator

from hulk_placement.cost.predict import predict
from hulk_placement.cost.simulate import simulate
from hulk_placement.cost.where import where
from hulk_placement.plan import Plan
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload
from rich.console import RenderableType
from rich.text import Text

from hulk_operator.api import Resource
from hulk_operator.cli import units
from hulk_operator.cli.table_format import table

MOST_ROWS = 12


class SimulatedRow(Resource):
    """A part of the step; the parts sum to it."""

    part: str
    place: str | None = None  # a link, an uplink, inside a region or a machine; None: computing, and waiting for it
    microseconds: int
    share: float


class SimulatedReport(Resource):
    """One step, simulated."""

    step_microseconds: int
    closed_form_microseconds: int  # what searches go by
    replica: int  # the cell that the parts are seen from: all others wait for it in the end
    stage: int
    rows: tuple[SimulatedRow, ...]


def simulated_report(plan: Plan, workload: Workload, topology: Topology) -> SimulatedReport:
    """Simulate one step of the plan."""
    found = simulate(plan, workload, topology)
    parts = where(found)
    return SimulatedReport(
        step_microseconds=round(found.step_s * 1e6),
        closed_form_microseconds=round(predict(plan, workload, topology).step_s * 1e6),
        replica=parts.cell[0],
        stage=parts.cell[1],
        rows=tuple(
            SimulatedRow(
                part=row.part,
                place=None if row.place is None else str(row.place),
                microseconds=round(row.seconds * 1e6),
                share=row.seconds / found.step_s,
            )
            for row in parts.rows
        ),
    )


def simulated_table(report: SimulatedReport) -> Iterator[RenderableType]:
    """For people."""
    made = table("SIMULATED, EVENT BY EVENT", "TIME", "SHARE", "AT", numbers=("TIME", "SHARE"))
    for row in [row for row in report.rows if row.microseconds][:MOST_ROWS]:
        made.add_row(row.part, units.duration(row.microseconds), units.percent(row.share), row.place or "")
    if len(report.rows) > MOST_ROWS:
        made.add_row(f"... {len(report.rows) - MOST_ROWS} more (-o json has all)")
    made.add_row("step", units.duration(report.step_microseconds), "", "")
    apart = ""  # of steps below half a microsecond there is nothing to compare
    if report.step_microseconds:
        apart = f"{report.closed_form_microseconds / report.step_microseconds - 1:+.1%}"
    made.add_row("by the closed form", units.duration(report.closed_form_microseconds), apart, "")
    yield ""
    yield made
    yield Text(f"as stage {report.stage} of replica {report.replica} sees it, which the step ends with", style="dim")
