"""The Grafana dashboard as code: panels in the order the data flows, written as JSON into the chart.

    python -m hulk_operator.dashboards            writes charts/hulk/files/dashboards/hulk.json
    python -m hulk_operator.dashboards --check    fails when that file is stale

Generated, because JSON by hand drifts: units, sizes and the data source are said once, every query is known to the
tests (`queries`), and uids and panel ids never change by chance.
"""

from hulk_operator.dashboards.grafana import dashboard
from hulk_operator.dashboards.overview import ROWS, queries

__all__ = ["ROWS", "dashboard", "queries"]
