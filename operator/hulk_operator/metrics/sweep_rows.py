"""The series of sweeps: how many trials are where, the best one, the plan of mode sharp, the trials of the table."""

from hulk_operator.api import HulkSweep
from hulk_operator.metrics import definitions as d
from hulk_operator.metrics.definitions import Definition, Labels, Rows
from hulk_operator.metrics.snapshot import Snapshot


def sweep_rows(snapshot: Snapshot) -> dict[Definition, Rows]:
    """Every series of sweeps, as their status says; a metric that is no number too: that is what one looks for."""
    named = [((sweep.namespace, sweep.metadata.name), sweep) for sweep in snapshot.sweeps]
    plans = [(labels, sweep.status.plan) for labels, sweep in named if sweep.status.plan]
    trials = [((*labels, row.name), row) for labels, sweep in named for row in sweep.status.table]
    return {
        d.SWEEP_TRIALS: [row for labels, sweep in named for row in _counts(labels, sweep)],
        d.SWEEP_BEST: [(labels, float(sweep.status.best.metric)) for labels, sweep in named if sweep.status.best],
        d.SWEEP_MAKESPAN: [(labels, float(plan.makespan_seconds)) for labels, plan in plans],
        d.SWEEP_BOUND: [(labels, float(plan.bound_seconds)) for labels, plan in plans],
        d.SWEEP_TRIAL_METRIC: [(labels, None if row.metric is None else float(row.metric)) for labels, row in trials],
        d.SWEEP_TRIAL_STEP: [(labels, float(row.step)) for labels, row in trials],
    }


def _counts(labels: Labels, sweep: HulkSweep) -> Rows:
    return [((*labels, phase.value), float(count)) for phase, count in sweep.status.trials.by_phase.items()]
