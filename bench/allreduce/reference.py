"""Measured all-reduces of gloo: what a harness must find again before it is believed."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from bench.data import ALLREDUCES
from bench.orders import rotated

CONDITIONS = {"congestion_control": "cubic", "mtu": "1500", "router_buffer_s": "0.15"}


def gloo_s(profile: str, regions: Sequence[str], num_bytes: int, table: Path = ALLREDUCES) -> float | None:
    """Median seconds of gloo's ring over nodes in these regions, in this order; None where nobody measured that."""
    with table.open() as file:
        for row in csv.DictReader(file):
            like = {**CONDITIONS, "profile": profile, "num_bytes": str(num_bytes)}
            order = [node[0].lower() for node in row["rank_order"].split()]
            if all(row[key] == value for key, value in like.items()) and rotated(order) == rotated(regions):
                return float(row["median_s"])
    return None
