"""A plan on one screen: who is where, the predicted step, the bottleneck, and why. `tables` has everything else."""

from collections.abc import Iterator
from datetime import datetime
from textwrap import wrap

from hulk_placement.plan import NOT_PROVEN
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hulk_operator.api import HulkJob
from hulk_operator.cli import tables, units
from hulk_operator.cli.detail_tables import few
from hulk_operator.cli.reports import ExplainReport, PlanReport, PlanReports, WorkerRow
from hulk_operator.cli.table_format import sentence, table

WIDTH = 120
INDENT = 12  # of a sentence's text
MOST_REASONS = 3
MOST_REGIONS = 8
MOST_STAGES = 8
MOST_JOBS = 24
MOST_LETTERS = 36  # of names in a cell
HINT = "memory, flows, links and all reasons: --details"


def plans(report: PlanReports) -> RenderableType:
    """One job's plan, or one line for each of several."""
    if len(report.jobs) == 1:
        return Group(*plan_lines(report.jobs[0]))
    planned = [job for job in report.jobs if job.planned]
    refused = [job for job in report.jobs if not job.planned]
    lines: list[RenderableType] = [_jobs(planned)] if planned else []
    for job in refused[: MOST_JOBS // 4]:
        lines += _refused(job)
    if len(refused) > MOST_JOBS // 4:
        lines.append(Text(f"... {len(refused) - MOST_JOBS // 4} more without a plan"))
    if any(_is_assumed(job) for job in planned):
        lines.append(Text(NOT_PROVEN, style="yellow"))
    return Group(*lines, Text(HINT, style="dim"))


def explained(report: ExplainReport, job: HulkJob, now: datetime) -> RenderableType:
    """A job's running plan and its state."""
    if report.plan is None:
        return tables.explained(report, job, now)
    return Group(*plan_lines(report.plan), "", tables.job_state(job, now))


def plan_lines(plan: PlanReport) -> Iterator[RenderableType]:
    """At most 40 lines of 120 columns."""
    if not plan.planned:
        yield from _refused(plan)
        return
    yield tables.headline(plan)
    for label, text in tables.prediction_words(plan):
        if label != "memory":
            yield _wrapped(label, text)
    yield _regions(plan)
    if plan.details is not None and plan.details.pipeline > 1:
        yield _stages(plan)
    for reason in plan.why[:MOST_REASONS]:
        yield _wrapped("why", reason)
    yield Text(HINT, style="dim")


def _refused(plan: PlanReport) -> list[RenderableType]:
    lines = wrap(f"{plan.job}: no plan ({plan.reason}). {plan.message or ''}", WIDTH, max_lines=6)
    return [Text(line, style="red") for line in lines]


def _is_assumed(plan: PlanReport) -> bool:
    return plan.prediction is not None and not plan.prediction.calibrated


def _wrapped(label: str, text: str) -> Text:
    lines = wrap(text, WIDTH - INDENT, max_lines=3, placeholder=" ...")
    return sentence(label, f"\n{'':{INDENT}}".join(lines))


def _cell(text: str, most: int = MOST_LETTERS) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _by_region(plan: PlanReport) -> dict[str, list[WorkerRow]]:
    found: dict[str, list[WorkerRow]] = {}
    for worker in plan.workers:
        found.setdefault(worker.region, []).append(worker)
    return found


def _regions(plan: PlanReport) -> Table:
    has_stages = plan.details is not None and plan.details.pipeline > 1  # each of them computes the same sequences
    numbers = ("WORKERS", "ACCELERATORS", *(() if has_stages else ("SEQUENCES",)), "COMPUTE")
    made = table("REGION", *numbers, "NODES", numbers=numbers)
    regions = _by_region(plan)
    for region, workers in list(regions.items())[:MOST_REGIONS]:
        computes = [row.compute_microseconds for row in workers if row.compute_microseconds is not None]
        made.add_row(
            _cell(region),
            str(len(workers)),
            str(sum(row.accelerators for row in workers)),
            *(() if has_stages else (str(sum(row.sequences for row in workers)),)),
            units.duration(max(computes, default=None)),
            _cell(few(list(dict.fromkeys(row.node for row in workers)))),
        )
    if len(regions) > MOST_REGIONS:
        made.add_row(f"... {len(regions) - MOST_REGIONS} more")
    return made


def _stages(plan: PlanReport) -> Table:
    assert plan.details is not None
    made = table("STAGE", "LAYERS", "REGIONS", "NODES", numbers=("STAGE",))
    for row in plan.details.stages[:MOST_STAGES]:
        regions = list(dict.fromkeys(place.region for place in row.places))
        machines = list(dict.fromkeys(place.machine for place in row.places))
        layers = units.span(row.first_layer, row.last_layer)
        made.add_row(str(row.stage), layers, _cell(few(regions)), _cell(few(machines)))
    if len(plan.details.stages) > MOST_STAGES:
        made.add_row("...", f"{len(plan.details.stages) - MOST_STAGES} more")
    return made


def _jobs(found: list[PlanReport]) -> Table:
    made = table("JOB", "WORKERS", "STEP", "WHERE", "BOTTLENECK", numbers=("WORKERS", "STEP"))
    for plan in found[:MOST_JOBS]:
        step = None if plan.prediction is None else plan.prediction.step_microseconds
        link = units.ABSENT if plan.bottleneck is None else f"{plan.bottleneck.source} -> {plan.bottleneck.target}"
        where = ", ".join(f"{region} x {len(workers)}" for region, workers in _by_region(plan).items())
        made.add_row(_cell(plan.job, 28), str(len(plan.workers)), units.duration(step), _cell(where), _cell(link, 28))
    if len(found) > MOST_JOBS:
        made.add_row(f"... {len(found) - MOST_JOBS} more")
    return made
