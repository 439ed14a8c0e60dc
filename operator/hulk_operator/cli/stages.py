"""What a job's status says of its pipeline stages -> lines for people."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table

from hulk_operator.api import HulkJobStatus, PlanSummary
from hulk_operator.cli import units
from hulk_operator.cli.table_format import sentence, table


def stage_state(status: HulkJobStatus) -> Iterator[RenderableType]:
    """The schedule, what stages wait, and each stage with its place; nothing of a job without stages."""
    plan = status.plan
    if plan is None or not plan.stages:
        return
    replicas = f"{plan.layout.data} replica{'s' if plan.layout.data > 1 else ''}"
    yield sentence("schedule", f"{plan.schedule}, {replicas} of {plan.layout.pipeline} stages")
    waits = "; ".join(_waits(status))
    if waits:
        yield sentence("bubble", waits)
    yield _stages(plan)


def _waits(status: HulkJobStatus) -> Iterator[str]:
    predicted, seen = status.prediction, status.observed.pipeline if status.observed else None
    if predicted and predicted.bubble_microseconds is not None:
        yield f"{_wait(predicted.bubble_microseconds, predicted.transfer_microseconds)} predicted"
    if seen:
        yield f"{_wait(seen.bubble_microseconds, seen.transfer_microseconds)} observed on stage {seen.stage}"


def _wait(bubble_us: int, transfer_us: int | None) -> str:
    transfers = "" if transfer_us is None else f" ({units.duration(transfer_us)} of it for transfers)"
    return units.duration(bubble_us) + transfers


def _stages(plan: PlanSummary) -> Table:
    made = table("STAGE", "LAYERS", "ACCELERATORS", "NODES", "REGIONS", numbers=("STAGE", "ACCELERATORS", "NODES"))
    for stage in plan.stages:
        more = stage.num_regions - len(stage.regions)
        regions = ", ".join(stage.regions) + (f" and {more} more" if more else "")
        made.add_row(str(stage.stage), stage.layers, str(stage.num_accelerators), str(stage.num_nodes), regions)
    if plan.layout.pipeline > len(plan.stages):
        made.add_row("...", f"{plan.layout.pipeline - len(plan.stages)} more")
    return made
