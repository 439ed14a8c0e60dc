"""The panel about pipelines: what stages wait in a step, predicted beside observed."""

from typing import Final

from hulk_operator.dashboards.panels import JOB, Panel, Query, or_zero


def _waits(metric: str, word: str) -> Query:
    """A curve for each job and part."""
    labels = "{{namespace}}/{{job}} {{part}}"
    return Query(or_zero(f"max by (namespace, job, part) ({metric}{{{JOB}}})"), f"{labels} {word}")


PANELS: Final = (
    Panel(
        "Pipelines: bubble and transfer time, predicted and observed",
        "timeseries",
        "What the stage that computes longest waits in a step. bubble: for other stages and for transfers; transfer: "
        "of that, what links between stages add. 0 without stages.",
        (
            _waits("hulk_job_pipeline_predicted_seconds", "predicted"),
            _waits("hulk_job_pipeline_observed_seconds", "observed"),
        ),
        "s",
        width=24,
        custom={"min": 0},
    ),
)
