"""Reports -> tables for people."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from hulk_placement.plan import NOT_PROVEN
from hulk_placement.report.rows import StepPartRow
from hulk_placement.words import counted
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hulk_operator.api import HulkJob, PredictionSummary, RegionLinkRate, RoundsSummary
from hulk_operator.cli import units
from hulk_operator.cli.detail_tables import details
from hulk_operator.cli.queue_state import queue_state
from hulk_operator.cli.reports import (
    BottleneckRow,
    ExplainReport,
    LinkRow,
    PlanReport,
    PlanReports,
    PredictionRow,
    TopologyReport,
)
from hulk_operator.cli.stages import stage_state
from hulk_operator.cli.table_format import condition_table, sentence, table

MAX_MATRIX_REGIONS = 8
MAX_WORKER_ROWS = 64
MAX_REFUSED_ROWS = 10
MAX_FLOWS = 4


def plans(report: PlanReports) -> RenderableType:
    """Every job's plan and why."""
    parts: list[RenderableType] = []
    for number, job in enumerate(report.jobs):
        if number:
            parts.append("")
        parts.extend(_plan(job))
    return Group(*parts)


def _plan(plan: PlanReport) -> Iterator[RenderableType]:
    if not plan.planned:
        yield Text.assemble((f"{plan.job}: ", "bold"), (f"no plan ({plan.reason}). ", "red"), plan.message or "")
        return
    yield headline(plan)
    for label, text in prediction_words(plan):
        yield sentence(label, text)
    yield _workers(plan)
    if plan.flows:
        yield _flows(plan)
    if plan.details is not None:
        yield from details(plan.details)
        yield ""
    for reason in plan.why:
        yield sentence("why", reason)


def headline(plan: PlanReport) -> Text:
    """How many workers, accelerators and regions, and how they sum gradients."""
    workers = counted(len(plan.workers), "worker")
    accelerators = counted(sum(worker.accelerators for worker in plan.workers), "accelerator")
    regions = counted(len({worker.region for worker in plan.workers}), "region")
    head = f"{workers}, {accelerators}, {regions}, {plan.algorithm}"
    if plan.details is not None and plan.details.pipeline > 1:
        head += f", {plan.details.data} x {plan.details.pipeline} stages by {plan.details.schedule}"
    return Text.assemble((f"{plan.job}: ", "bold"), head)


def prediction_words(plan: PlanReport) -> Iterator[tuple[str, str]]:
    """The predicted step, its memory, its bottleneck, and what is proven: each with its label."""
    if plan.prediction is not None:
        found = plan.prediction
        known = "speeds of these nodes known" if found.calibrated else "speeds assumed until the pods measure them"
        step = units.duration(found.step_microseconds)
        yield "step", f"{step} predicted = {_parts(plan, found)}; {known}"
        if found.memory_bytes:
            yield "memory", f"{units.size(found.memory_bytes)} on the fullest accelerator"
    if plan.bottleneck is not None:
        yield "bottleneck", bottleneck_words(plan.bottleneck)
    if plan.prediction is not None and not plan.prediction.calibrated:
        yield "optimality", NOT_PROVEN
    elif plan.optimality_gap is not None:
        yield "optimality", _proven(float(plan.optimality_gap), plan.optimality_num_workers)


def _parts(plan: PlanReport, found: PredictionRow) -> str:
    """What the step is made of: as the table below says it, where there is one."""
    if plan.details is not None:
        return step_words(plan.details.step)
    bubble = f" + bubble {units.duration(found.bubble_microseconds)}" if found.bubble_microseconds else ""
    communication = f" + communication {units.duration(found.communication_microseconds)}"
    return f"compute {units.duration(found.compute_microseconds)}{bubble}{communication}"


def step_words(step: Iterable[StepPartRow]) -> str:
    """The parts of a step in one line."""
    return " + ".join(f"{row.part} {units.duration(row.microseconds)}" for row in step if row.microseconds)


def bottleneck_words(link: BottleneckRow) -> str:
    """The link that a step spends most on in one phrase."""
    spent = "" if link.part is None or link.share is None else f"; {link.part}, {units.percent(link.share)} of the step"
    return f"{link.source} -> {link.target}: {link_words(link)}{spent}"


def _proven(gap: float, num_workers: int | None) -> str:
    among = f" of {counted(num_workers, 'worker')}" if num_workers else ""
    if gap == 0:
        return f"proven best{among} by the closed form"
    # "At most" must stay true of a gap that rounds to 0.0 %.
    return f"at most {units.percent(max(gap, 0.001))} from the best possible{among} by the closed form"


def _workers(plan: PlanReport) -> Table:
    has_ring = any(row.sends_to for row in plan.workers)
    headings = ("WORKER", "NODE", "REGION", "ACCELERATORS", "SEQUENCES", "COMPUTE")
    over = ("SENDS TO", "OVER") if has_ring else ()
    made = table(*headings, *over, numbers=("WORKER", "ACCELERATORS", "SEQUENCES", "COMPUTE"))
    for row in plan.workers[:MAX_WORKER_ROWS]:
        made.add_row(
            str(row.worker),
            row.node,
            row.region,
            str(row.accelerators),
            str(row.sequences),
            units.duration(row.compute_microseconds),
            *((row.sends_to or units.ABSENT, link_words(row.link) if row.link else units.ABSENT) if has_ring else ()),
        )
    if len(plan.workers) > MAX_WORKER_ROWS:
        made.add_row("...", f"{len(plan.workers) - MAX_WORKER_ROWS} more (-o json has all)")
    return made


def _flows(plan: PlanReport) -> Table:
    has_run = any(row.observed_microseconds for row in plan.flows)
    numbers = ("VECTORS UP TO", "PREDICTED", *(("OBSERVED", "ERROR") if has_run else ()), "PHYSICAL BOUND")
    made = table(*numbers, "FLOWS", numbers=numbers)
    for row in plan.flows:
        shown = "; ".join(row.flows[:MAX_FLOWS])
        more = f"; {len(row.flows) - MAX_FLOWS} more" if len(row.flows) > MAX_FLOWS else ""
        predicted, bound = units.duration(row.predicted_microseconds), units.duration(row.bound_microseconds)
        took = row.observed_microseconds
        seen = (units.duration(took), _error(took, row.predicted_microseconds)) if has_run else ()
        made.add_row(units.size(row.max_bytes), predicted, *seen, bound, shown + more)
    return made


def _region_links(links: Iterable[RegionLinkRate]) -> Table:
    made = table("LINK", "PLANNED", "OBSERVED", "ERROR", numbers=("PLANNED", "OBSERVED", "ERROR"))
    for link in links:
        planned, observed = link.planned_bytes_per_second, link.observed_bytes_per_second
        made.add_row(
            f"{link.source} -> {link.target}", units.rate(planned), units.rate(observed), _error(observed, planned)
        )
    return made


def _error(observed: int | None, predicted: int | None) -> str:
    """|observed - predicted| / observed."""
    return units.percent(abs(observed - predicted) / observed) if observed and predicted else units.ABSENT


def link_words(link: LinkRow) -> str:
    """A link in one phrase, with how well it is known."""
    if link.kind == "unknown":
        return "unknown"
    figures = f"{units.duration(link.rtt_microseconds)}, {units.rate(link.bandwidth_bytes_per_second)}"
    return figures if link.kind == "measured" else f"{figures} ({link.kind})"


def topology(report: TopologyReport) -> RenderableType:
    """Regions with their nodes, then the matrix: rows send to columns."""
    regions = table("REGION", "NODES", "FREE ACCELERATORS", numbers=("FREE ACCELERATORS",))
    for region in report.regions:
        shown = ", ".join(region.nodes[:8]) + (f" and {len(region.nodes) - 8} more" if len(region.nodes) > 8 else "")
        regions.add_row(region.name, shown, str(region.free_accelerators))
    few = len(report.regions) <= MAX_MATRIX_REGIONS
    return Group(regions, "", _matrix(report) if few else _link_list(report.region_links), *_matrix_note(report))


def _matrix(report: TopologyReport) -> Table:
    links = {(link.source, link.target): link for link in report.region_links}
    columns = [region.name for region in report.regions]
    made = table("FROM \\ TO", *columns)
    for source in columns:
        cells = (links.get((source, target)) for target in columns)
        made.add_row(Text(source, style="bold"), *(link_words(cell) if cell else units.ABSENT for cell in cells))
    return made


def _link_list(links: Iterable[LinkRow]) -> Table:
    made = table("FROM", "TO", "RTT", "BANDWIDTH", "KNOWN", "AGE", numbers=("RTT", "BANDWIDTH", "AGE"))
    for link in links:
        made.add_row(
            link.source,
            link.target,
            units.duration(link.rtt_microseconds),
            units.rate(link.bandwidth_bytes_per_second),
            link.kind,
            units.age(link.age_seconds),
        )
    return made


def _matrix_note(report: TopologyReport) -> Iterator[Text]:
    for entry in report.refused[:MAX_REFUSED_ROWS]:
        yield Text(f"refused {entry.source} -> {entry.target}: {entry.reason}, {entry.message}", style="yellow")
    measured = [link for link in report.region_links if link.kind == "measured"]
    ages = [link.age_seconds for link in measured if link.age_seconds is not None]
    oldest = f"; oldest figure {units.age(max(ages))} old" if ages else ""
    streams = {link.streams for link in measured if link.bandwidth_bytes_per_second and link.streams}
    said = f"; TCP payload rate of {', '.join(map(str, sorted(streams)))} streams" if streams else ""
    of_all = counted(len(report.region_links), "link")
    yield Text(
        f"round-trip time, bandwidth; {len(measured)} of {of_all} measured{oldest}{said}",
        style="dim",
    )


def jobs(found: Iterable[HulkJob], now: datetime) -> RenderableType:
    """One line per job."""
    numbers = ("ATTEMPT", "WORKERS", "STEP", "PREDICTED", "OBSERVED", "LOSS", "AGE")
    made = table("NAMESPACE", "NAME", "PHASE", *numbers, numbers=numbers)
    for job in found:
        status, plan, observed = job.status, job.status.plan, job.status.observed
        created = job.metadata.creation_timestamp
        made.add_row(
            job.metadata.namespace,
            job.metadata.name,
            status.phase.value + (f" #{status.queue.position}" if status.queue else ""),
            str(status.attempt),
            str(plan.num_workers) if plan else units.ABSENT,
            f"{observed.step if observed else 0}/{job.spec.training.steps or '?'}",
            units.duration(status.prediction.step_microseconds if status.prediction else None),
            units.duration(observed.step_microseconds if observed else None),
            (observed.loss if observed else None) or units.ABSENT,
            units.age((now - created).total_seconds() if created else None),
        )
    return made


def job_state(job: HulkJob, now: datetime) -> RenderableType:
    """Everything that the status of one job says."""
    status = job.status
    parts: list[RenderableType] = [jobs([job], now), ""]
    if status.prediction and status.observed and status.observed.relative_error:
        error = units.percent(float(status.observed.relative_error))
        parts.append(sentence("prediction", f"off by {error} (source {status.prediction.source})"))
    if status.plan and status.plan.rounds:
        parts.append(sentence("rounds", _rounds_words(status.plan.rounds, status.prediction)))
    parts.extend(stage_state(status))
    parts.extend(queue_state(status, now))
    if status.checkpoint:
        where = f"step {status.checkpoint.step} at {status.checkpoint.where} ({units.size(status.checkpoint.bytes)})"
        parts.append(sentence("checkpoint", where))
    allowed = f"{status.failures} of {job.spec.run_policy.backoff_limit} allowed"
    besides = f"{counted(status.disruptions, 'disruption')} and {counted(status.restarts, 'restart')} besides"
    parts.append(sentence("failures", f"{allowed}; {besides}"))
    if status.last_failure:
        failure = status.last_failure
        code = "" if failure.exit_code is None else f", exit code {failure.exit_code}"
        what = f"attempt {failure.attempt}, {failure.pod or 'no pod'} on {failure.node or 'no node'}{code}"
        parts.append(sentence("last failure", f"{what}: {failure.reason}"))
        parts.extend(Text(f"  {line}", style="dim") for line in failure.message.splitlines())
    if status.replan:
        verdict = {"stay": "kept", "move": "given up for another one"}[status.replan.verdict]
        parts.append(sentence("plan", f"that of attempt {status.replan.attempt} is {verdict}: {status.replan.reason}"))
    for node in status.avoided_nodes:
        parts.append(sentence("avoids", f"{node.name} for another {units.age((node.until - now).total_seconds())}"))
    return Group(*parts, "", condition_table(status.conditions, now)) if status.conditions else Group(*parts)


def _rounds_words(rounds: RoundsSummary, prediction: PredictionSummary | None) -> str:
    """How replicas that train apart come together, and what part of a step they are predicted not to wait."""
    late = f", each merged {counted(rounds.delay_steps, 'step')} late" if rounds.delay_steps else ""
    short = "" if rounds.compression == "none" else f", as {rounds.compression}"
    rate, momentum = rounds.outer_learning_rate, rounds.outer_momentum
    outer = "" if rate is None else f"; outer learning rate {rate}, momentum {momentum}"
    together = f"; the first {rounds.warmup_steps} together" if rounds.warmup_steps else ""
    percent = None if prediction is None else prediction.utilisation_percent
    busy = "" if percent is None else f"; predicted utilisation {percent}%"
    parts = f"{counted(rounds.inner_steps, 'step')} in {counted(rounds.fragments, 'fragment')}"
    return f"{parts}{late}{short}{outer}{together}{busy}"


def explained(report: ExplainReport, job: HulkJob, now: datetime) -> RenderableType:
    """A job's running plan and its state."""
    nothing = Text(f"{report.job}: no plan yet; the conditions say why", style="yellow")
    plan: Iterable[RenderableType] = _plan(report.plan) if report.plan else (nothing,)
    seen = job.status.observed.wan if job.status.observed else None
    links: Iterable[RenderableType] = ("", _region_links(seen.region_links)) if seen else ()
    return Group(*plan, *links, "", job_state(job, now))
