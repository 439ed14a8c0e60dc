"""The dashboard and the alerts against the table of metrics: no query can ask for something that does not exist."""

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from hulk_operator.dashboards import ROWS, dashboard, queries, wan
from hulk_operator.dashboards.overview import substituted
from hulk_operator.dashboards.panels import Panel
from hulk_operator.metrics import DEFINITIONS
from hulk_operator.metrics.definitions import Kind
from rendering import CHART

REPOSITORY = CHART.parents[1]
ALERTS = tuple(
    (rule["alert"], rule["expr"])
    for group in yaml.safe_load((CHART / "files/rules/hulk.yaml").read_text())["groups"]
    for rule in group["rules"]
)
SERIES = {
    name: set(definition.labels) | ({"le"} if name.endswith("_bucket") else set())
    for definition in DEFINITIONS
    for name in (
        (definition.series, f"{definition.name}_bucket") if definition.kind is Kind.HISTOGRAM else (definition.series,)
    )
}
PANELS = dashboard()["panels"]


def selectors(expression: str) -> Iterator[promql_parser.VectorSelector]:
    """Every selector of series in an expression."""
    found: list[promql_parser.VectorSelector] = []

    def visit(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    yield from found


def grouped_by(expression: str) -> set[str]:
    """Labels in `by (...)` and `on (...)`."""
    found: set[str] = set()

    def visit(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            found.update(node.modifier.labels)
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    return found


@pytest.mark.parametrize(("name", "expression"), [*queries(), *ALERTS])
def test_queries_ask_for_metrics_and_labels_that_exist(name: str, expression: str) -> None:
    asked = list(selectors(expression))
    assert asked or expression == "vector(0)"
    for selector in asked:
        assert selector.name in SERIES, name
        assert {matcher.name for matcher in selector.matchers.matchers} <= SERIES[selector.name], name
    assert grouped_by(expression) <= set().union(*(SERIES[selector.name] for selector in asked)), name


@pytest.mark.parametrize("panel", wan.PANELS, ids=[panel.title for panel in wan.PANELS])
def test_panels_of_all_reduces_are_0_only_where_there_are_none(panel: Panel, tmp_path: Path) -> None:
    """As Prometheus computes it: a job by gloo's ring leaves no panel empty, and adds nothing beside one by wan."""
    cases = [case for query in panel.queries for case in promql_cases(substituted(query.expression))]
    path = tmp_path / "panel.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "1m", "tests": cases}))
    done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def promql_cases(expression: str) -> Iterator[dict[str, Any]]:
    """Without any series, and with one."""
    name = next(selectors(expression)).name
    labels = "{" + ", ".join(f'{label}="x"' for label in sorted(SERIES[name])) + "}"
    for series, sample in (
        ([], {"labels": "{}", "value": 0}),
        ([{"series": f"{name}{labels}", "values": "5 5 5"}], {"labels": labels, "value": 5}),
    ):
        check = {"expr": expression, "eval_time": "2m", "exp_samples": [sample]}
        yield {"interval": "1m", "input_series": series, "promql_expr_test": [check]}


def test_a_query_for_a_misspelt_metric_would_be_noticed() -> None:
    (selector,) = selectors("max(hulk_operator_lease)")
    assert selector.name not in SERIES


def test_queries_run_without_grafana() -> None:
    assert not [expression for _, expression in queries() if "$" in expression]
    assert len(queries()) == sum(len(panel.queries) for row in ROWS for panel in row.panels)


def test_the_text_comes_first_and_rows_follow_the_data() -> None:
    assert PANELS[0]["type"] == "text"
    assert [panel["title"].split(" (")[0] for panel in PANELS if panel["type"] == "row"] == [
        "Links between regions",
        "Queue",
        "Plan",
        "Predicted against observed",
        "Training",
        "Jobs",
        "Operator",
    ]


def test_every_panel_has_a_unit_a_description_and_a_number_of_its_own() -> None:
    numbers = [panel["id"] for panel in PANELS]
    assert len(set(numbers)) == len(numbers)
    for panel in PANELS:
        if panel["type"] not in ("text", "row"):
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert panel["description"].endswith(".")


def test_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in PANELS]
    for before, after in pairwise(places):
        beside = after["y"] == before["y"] and after["x"] == before["x"] + before["w"]
        assert beside or after["y"] >= before["y"] + before["h"]
    assert all(place["x"] + place["w"] <= 24 for place in places)


def test_check_fails_on_a_stale_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hulk_operator.dashboards"]
    (tmp_path / "charts/hulk/files/dashboards").mkdir(parents=True)
    assert subprocess.run([*command, "--check"], cwd=tmp_path, capture_output=True, check=False).returncode == 1
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
    assert subprocess.run([*command, "--check"], cwd=tmp_path, check=False).returncode == 0


def test_the_committed_file_is_fresh() -> None:
    command = [sys.executable, "-m", "hulk_operator.dashboards", "--check"]
    assert subprocess.run(command, cwd=REPOSITORY, check=False).returncode == 0
