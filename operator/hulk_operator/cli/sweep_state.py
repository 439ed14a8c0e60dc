"""What the status of a sweep says, for people."""

from collections.abc import Iterable
from datetime import datetime

from rich.console import Group, RenderableType

from hulk_operator.api import HulkSweep
from hulk_operator.cli import units
from hulk_operator.cli.table_format import condition_table, sentence, table


def sweep_lines(found: Iterable[HulkSweep], now: datetime) -> RenderableType:
    """One line per sweep."""
    numbers = ("TRIALS", "METRIC", "AGE")
    made = table("NAMESPACE", "SWEEP", "PHASE", "TRIALS", "", "BEST", "METRIC", "AGE", numbers=numbers)
    for sweep in found:
        status, created = sweep.status, sweep.metadata.creation_timestamp
        best = (status.best.name, status.best.metric) if status.best else (units.ABSENT, units.ABSENT)
        made.add_row(
            sweep.metadata.namespace,
            sweep.metadata.name,
            status.phase.value,
            str(status.trials.total),
            _told(sweep),
            *best,
            units.age((now - created).total_seconds() if created else None),
        )
    return made


def sweep_state(sweep: HulkSweep, now: datetime) -> RenderableType:
    """Counts, the best trial, the plan of mode sharp, the table of trials, conditions."""
    status = sweep.status
    told = _told(sweep)
    parts: list[RenderableType] = [
        sentence(sweep.key, f"{status.phase.value}, {status.trials.total} trials" + (f": {told}" if told else ""))
    ]
    if status.best:
        values = ", ".join(f"{name} {value}" for name, value in sorted(status.best.parameters.items()))
        metric = f"{sweep.spec.objective.metric} {status.best.metric} after step {status.best.step}"
        parts.append(sentence("best", f"{status.best.name}: {metric} with {values}"))
    if status.plan:
        plan = f"version {status.plan.version}, {status.plan.makespan_seconds} s, none takes less than"
        parts.append(sentence("division", f"{plan} {status.plan.bound_seconds} s; {status.plan.measured} measured"))
    trials = table("TRIAL", "PHASE", "METRIC", "STEP", "RUNG", "PLACE", "REASON")
    for row in status.table:
        counted = (row.metric or "", str(row.step), str(row.rung))
        trials.add_row(row.name, row.phase.value, *counted, row.place, row.reason or "")
    return Group(*parts, "", trials, "", condition_table(status.conditions, now))


def _told(sweep: HulkSweep) -> str:
    """How many trials are where."""
    counts = sweep.status.trials.by_phase
    return ", ".join(f"{count} {phase.value.lower()}" for phase, count in counts.items() if count)
