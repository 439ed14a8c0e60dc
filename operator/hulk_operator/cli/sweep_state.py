"""What the status of a sweep says, for people."""

from datetime import datetime

from rich.console import Group, RenderableType

from hulk_operator.api import HulkSweep
from hulk_operator.cli import units
from hulk_operator.cli.grid import sentence, table


def sweep_state(sweep: HulkSweep, now: datetime) -> RenderableType:
    """Counts, the best trial, the plan of mode sharp, the table of trials, conditions."""
    status, counts = sweep.status, sweep.status.trials.model_dump(exclude={"total"})
    told = ", ".join(f"{count} {phase}" for phase, count in counts.items() if count)
    parts: list[RenderableType] = [
        sentence(f"{sweep.key} ", f"{status.phase.value}, {status.trials.total} trials" + (f": {told}" if told else ""))
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
    conditions = table("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE")
    for one in status.conditions:
        since = units.age((now - one.last_transition_time).total_seconds())
        conditions.add_row(one.type, one.status, one.reason, since, one.message)
    return Group(*parts, "", trials, "", conditions)
