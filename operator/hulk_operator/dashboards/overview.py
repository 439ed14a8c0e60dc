"""The overview's rows: links, plan, predicted against observed, training, jobs, operator."""

from typing import Final

from hulk_operator.dashboards import pipeline, queue, wan
from hulk_operator.dashboards.panels import JOB, Json, Panel, Query, Row, columns

_RING: Final = f"hulk_job_ring_position{{{JOB}}}"
_RING_LABELS: Final = "max by (namespace, job, node, region)"
# The ring now; of a job that has no ring any more, its last one.
RING: Final = (
    f"sort({_RING_LABELS} ({_RING}) or "
    f"({_RING_LABELS} (last_over_time({_RING}[$__range])) unless on (namespace, job) {_RING}))"
)
# What Grafana would put in, for a query that is run without Grafana.
SUBSTITUTES: Final = {"$__rate_interval": "5m", "$__range": "1h", "$namespace": ".*", "$job": ".*"}

INTRODUCTION: Final = """\
Hulk trains one model on accelerators that are not in one place. From top to bottom this page follows the data: the
**links** between regions as the agents measured them, the **plan** made from them, the step time it **predicted**
against the one **observed**, the loss, the jobs, and the operator itself.

A directed link carries data from its source to its target. Its age says how old the newest sample is; a stale link is
still used. A link that is missing from the matrix is unknown and never used unless a job allows it. Series of single
nodes are left out above 64 nodes. What an alert means and what to do: docs/reference/runbooks.
"""


def matrix(title: str, metric: str, unit: str, description: str) -> Panel:
    """A table with a row per source region and a column per target region."""
    query = Query(f'max by (source, target) ({metric}{{scope="region"}})', shape="table")
    options = {"columnField": "target", "rowField": "source", "valueField": "Value", "emptyValue": "null"}
    grouping: Json = {"id": "groupingToMatrix", "options": options}
    return Panel(title, "table", description, (query,), unit, transformations=(grouping,))


ROWS: Final = (
    Row(
        "Links between regions (row: source, column: target)",
        (
            matrix("Round-trip time", "hulk_link_rtt_seconds", "s", "Median of the newest sample."),
            matrix(
                "Bandwidth", "hulk_link_bandwidth_bytes_per_second", "Bps", "TCP payload rate from source to target."
            ),
            matrix(
                "Age of the bandwidth",
                "hulk_link_bandwidth_age_seconds",
                "s",
                "Time since it was measured; round trips are measured all the time. Old links are still used.",
            ),
            Panel(
                "Bandwidth tests",
                "timeseries",
                "Under way, and links that are due but have to wait (for a running job, for the byte budget).",
                (
                    Query("max(hulk_probing_tests_pending)", "under way"),
                    Query("sum by (reason) (hulk_probing_links_waiting) or vector(0)", "waiting {{reason}}"),
                ),
                "none",
                width=16,
                height=6,
                custom={"min": 0},
            ),
            Panel(
                "Refused links",
                "stat",
                "Measured links that cannot be true and are ignored. The events of the NodeProfiles say why.",
                (Query("sum(hulk_links_refused) or vector(0)", "links", "now"),),
                "none",
                height=6,
            ),
        ),
    ),
    Row("Queue", queue.PANELS),
    Row(
        "Plan",
        (
            Panel(
                "Ring positions",
                "table",
                "Which node is where in the ring. Data flows from each position to the one before it, and from the "
                "first to the last. A finished job is shown as it was.",
                (Query(RING, shape="table"),),
                "none",
                width=12,
                transformations=(
                    columns({"Value": "position"}, ("namespace", "job", "Value", "region", "node")),
                    {"id": "sortBy", "options": {"sort": [{"field": "position"}]}},
                ),
            ),
            Panel(
                "Bottleneck link",
                "table",
                "The link that bounds the predicted step of each job. Faster elsewhere does not help.",
                (
                    Query(
                        f"max by (namespace, job, source, target) (hulk_job_bottleneck_link_info{{{JOB}}})",
                        shape="table",
                    ),
                ),
                "none",
                width=12,
                transformations=(columns({}, ("namespace", "job", "source", "target")),),
            ),
        ),
    ),
    Row(
        "Predicted against observed",
        (
            Panel(
                "Step time",
                "timeseries",
                "Predicted before the first step and never edited; observed: median of the last steps.",
                (
                    Query(
                        f"max by (namespace, job) (hulk_job_predicted_step_seconds{{{JOB}}})",
                        "{{namespace}}/{{job}} predicted",
                    ),
                    Query(
                        f"max by (namespace, job) (hulk_job_observed_step_seconds{{{JOB}}})",
                        "{{namespace}}/{{job}} observed",
                    ),
                ),
                "s",
                width=16,
                custom={"min": 0},
            ),
            Panel(
                "Relative error",
                "stat",
                "(predicted - observed) / observed. Below zero: slower than predicted.",
                (
                    Query(
                        f"max by (namespace, job) (hulk_job_step_relative_error{{{JOB}}})",
                        "{{namespace}}/{{job}}",
                        "now",
                    ),
                ),
                "percentunit",
            ),
            *wan.PANELS,
            *pipeline.PANELS,
        ),
    ),
    Row(
        "Training",
        (
            Panel(
                "Loss",
                "timeseries",
                "As rank 0 of each job reports it.",
                (Query(f"max by (namespace, job) (hulk_job_loss{{{JOB}}})", "{{namespace}}/{{job}}"),),
                "none",
                width=12,
            ),
            Panel(
                "Steps",
                "timeseries",
                "Last completed step, and the step of the last checkpoint: the distance is what a failure costs.",
                (
                    Query(f"max by (namespace, job) (hulk_job_step{{{JOB}}})", "{{namespace}}/{{job}} completed"),
                    Query(
                        f"max by (namespace, job) (hulk_job_checkpoint_step{{{JOB}}})",
                        "{{namespace}}/{{job}} checkpoint",
                    ),
                ),
                "none",
                width=12,
                custom={"min": 0},
            ),
        ),
    ),
    Row(
        "Jobs",
        (
            Panel(
                "Jobs per phase",
                "timeseries",
                "Every job is in one phase.",
                (Query('sum by (phase) (hulk_job_phase{namespace=~"$namespace"})', "{{phase}}"),),
                "none",
                width=16,
                custom={"min": 0, "decimals": 0, "custom": {"stacking": {"mode": "normal"}, "fillOpacity": 30}},
            ),
            Panel(
                "Failures and disruptions",
                "table",
                "Failures count towards backoffLimit; disruptions (lost nodes, evictions, moves) do not.",
                (
                    Query(f"max by (namespace, job) (hulk_job_failures{{{JOB}}})", shape="table"),
                    Query(f"max by (namespace, job) (hulk_job_disruptions{{{JOB}}})", shape="table"),
                ),
                "none",
                transformations=(
                    {"id": "merge", "options": {}},
                    columns(
                        {"Value #A": "failures", "Value #B": "disruptions"},
                        ("namespace", "job", "Value #A", "Value #B"),
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Operator",
        (
            Panel(
                "Lease",
                "stat",
                "1: an operator holds the Lease and acts.",
                (Query("max(hulk_operator_lease_held)", "held", "now"),),
                "none",
                width=4,
            ),
            Panel(
                "Reconcile time",
                "timeseries",
                "One pass over one job.",
                tuple(
                    Query(
                        f"histogram_quantile({quantile}, sum by (le) "
                        "(rate(hulk_operator_reconcile_seconds_bucket[$__rate_interval])))",
                        f"p{quantile * 100:.0f}",
                    )
                    for quantile in (0.5, 0.99)
                ),
                "s",
                width=10,
                custom={"min": 0},
            ),
            Panel(
                "Planning time",
                "timeseries",
                "One planning pass over all jobs.",
                (Query("max(hulk_operator_planning_seconds)", "newest pass"),),
                "s",
                width=10,
                custom={"min": 0},
            ),
            Panel(
                "Queue",
                "timeseries",
                "Jobs that wait for a reconcile pass.",
                (Query("max(hulk_operator_queue_depth)", "jobs"),),
                "none",
                custom={"min": 0},
            ),
            Panel(
                "Writes to the API server",
                "timeseries",
                "Creates, patches and deletes.",
                (Query("sum by (verb) (rate(hulk_operator_api_writes_total[$__rate_interval]))", "{{verb}}"),),
                "reqps",
                custom={"min": 0},
            ),
            Panel(
                "Errors",
                "timeseries",
                "Passes that ended in an error and are tried again.",
                (
                    Query(
                        "sum by (where) (rate(hulk_operator_errors_total[$__rate_interval])) or vector(0)", "{{where}}"
                    ),
                ),
                "reqps",
                custom={"min": 0},
            ),
        ),
    ),
)


def queries() -> tuple[tuple[str, str], ...]:
    """(panel, PromQL) of every query, runnable as it is: Grafana's variables are replaced.

    >>> queries()[0]
    ('Round-trip time', 'max by (source, target) (hulk_link_rtt_seconds{scope="region"})')
    """
    return tuple(
        (panel.title, substituted(query.expression)) for row in ROWS for panel in row.panels for query in panel.queries
    )


def substituted(expression: str) -> str:
    """The expression with Grafana's variables replaced by something that matches everything."""
    for variable, value in SUBSTITUTES.items():
        expression = expression.replace(variable, value)
    return expression
