"""Panels to the JSON that Grafana imports."""

from collections.abc import Iterator
from typing import Final

from hulk_operator.dashboards.overview import INTRODUCTION, ROWS
from hulk_operator.dashboards.panels import WIDTH, Json, Panel, Query

UID: Final = "hulk-overview"
TITLE: Final = "Hulk"
VARIABLES: Final = {"namespace": "hulk_job_phase", "job": 'hulk_job_phase{namespace=~"$namespace"}'}
DATA_SOURCE: Final[Json] = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> Json:
    """The dashboard as Grafana imports it."""
    return {
        "uid": UID,
        "title": TITLE,
        "tags": ["hulk"],
        "schemaVersion": 39,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }


def _variables() -> Iterator[Json]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    for name, series in VARIABLES.items():
        yield {
            "name": name,
            "type": "query",
            "datasource": DATA_SOURCE,
            "query": {"query": f"label_values({series}, {name})", "refId": name},
            "refresh": 2,
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "sort": 1,
            "current": {"text": "All", "value": "$__all"},
        }


def _panels() -> Iterator[Json]:
    """Text first, then each row's heading and its panels from left to right, wrapped at the page's width."""
    number, top = 1, 4
    yield {
        "id": number,
        "type": "text",
        "title": "What this shows",
        "gridPos": {"x": 0, "y": 0, "w": WIDTH, "h": top},
        "options": {"mode": "markdown", "content": INTRODUCTION},
    }
    for row in ROWS:
        number += 1
        position = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "gridPos": position, "panels": []}
        left, top, height = 0, top + 1, 0
        for panel in row.panels:
            if left + panel.width > WIDTH:
                left, top, height = 0, top + height, 0
            number += 1
            yield _panel(panel, number, {"x": left, "y": top, "w": panel.width, "h": panel.height})
            left, height = left + panel.width, max(height, panel.height)
        top += height


def _panel(panel: Panel, number: int, position: Json) -> Json:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATA_SOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": {"unit": panel.unit, **panel.custom}, "overrides": []},
        "options": {},
        "targets": [_target(query, chr(ord("A") + index)) for index, query in enumerate(panel.queries)],
        "transformations": list(panel.transformations),
    }


def _target(query: Query, reference: str) -> Json:
    return {
        "datasource": DATA_SOURCE,
        "editorMode": "code",
        "expr": query.expression,
        "format": "table" if query.shape == "table" else "time_series",
        "instant": query.shape != "time",
        "legendFormat": query.legend or "__auto",
        "range": query.shape == "time",
        "refId": reference,
    }
