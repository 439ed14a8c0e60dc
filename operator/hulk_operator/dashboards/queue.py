"""The panels about jobs among others: who waits, what each was given beside its fair share, what the queue did."""

from typing import Final

from hulk_operator.dashboards.panels import JOB, Panel, Query, or_zero

_NAME: Final = "{{namespace}}/{{job}}"

PANELS: Final = (
    Panel(
        "Queue: waiting jobs and moves",
        "timeseries",
        "Jobs that wait for accelerators that others have, and what the queue did with jobs within 10 minutes.",
        (
            Query(or_zero("sum(hulk_queue_waiting_jobs)"), "waiting"),
            Query(or_zero("sum by (kind) (increase(hulk_queue_moves_total[10m]))"), "{{kind}}"),
        ),
        "short",
        width=12,
        custom={"min": 0},
    ),
    Panel(
        "Queue: shares, given and fair",
        "timeseries",
        "Part of the accelerators that each job was given where jobs compete, and what its namespace's weight alone "
        "would give it.",
        (Query(or_zero(f"max by (namespace, job, share) (hulk_job_share{{{JOB}}})"), f"{_NAME} {{{{share}}}}"),),
        "percentunit",
        width=12,
        custom={"min": 0},
    ),
)
