"""The panels about all-reduces between regions: predicted beside observed, by size class and by link."""

from typing import Final

from hulk_operator.dashboards.panels import JOB, Panel, Query, columns, or_zero


def sizes(metric: str, word: str) -> Query:
    """A curve for each job and size class."""
    labels = "{{namespace}}/{{job}} up to {{max_bytes}} B"
    return Query(or_zero(f"max by (namespace, job, max_bytes) ({metric}{{{JOB}}})"), f"{labels} {word}")


def region_links(metric: str) -> Query:
    """A row for each job and directed link of regions."""
    return Query(or_zero(f"max by (namespace, job, source, target) ({metric}{{{JOB}}})"), shape="table")


PANELS: Final = (
    Panel(
        "All-reduce: predicted and observed",
        "timeseries",
        "Hulk's own all-reduce between regions (algorithm wan) by size class: as planned, as observed from the "
        "begin on the rank that began last, and what none can beat on the planned links. 0 without any.",
        (
            sizes("hulk_job_all_reduce_predicted_seconds", "predicted"),
            sizes("hulk_job_all_reduce_observed_seconds", "observed"),
            sizes("hulk_job_all_reduce_bound_seconds", "bound"),
        ),
        "s",
        width=12,
        custom={"min": 0},
    ),
    Panel(
        "Links: planned and observed",
        "table",
        "Links between regions under such all-reduces: the rate in the plan, and what they carried while more "
        "waited to be sent, at most 0.97 of what is believed. Of a job the 6 furthest from its plan.",
        (
            region_links("hulk_job_region_link_planned_bytes_per_second"),
            region_links("hulk_job_region_link_observed_bytes_per_second"),
        ),
        "Bps",
        width=12,
        transformations=(
            {"id": "merge", "options": {}},
            columns(
                {"Value #A": "planned", "Value #B": "observed"},
                ("namespace", "job", "source", "target", "Value #A", "Value #B"),
            ),
        ),
    ),
)
