"""What a lab looks like now, as tables: nodes, links, processes."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from hulk_lab.nodeconfig import RESOURCE
from hulk_lab.up import Lab
from hulk_lab.wan import relay


def tables(lab: Lab) -> list[Table]:
    """Nodes, links (when there is a WAN) and processes."""
    return [_nodes(lab), *([_links(lab)] if len(lab.net.routers) > 1 else []), _processes(lab)]


def _nodes(lab: Lab) -> Table:
    table = Table(title="nodes")
    for heading in ("node", "region", "ready", "accelerators", "speed (cores)", "address"):
        table.add_column(heading)
    places = {place.name: place for place in lab.net.nodes}
    for item in lab.control.api().get("/api/v1/nodes")["items"]:
        name, labels = item["metadata"]["name"], item["metadata"]["labels"]
        place = places.get(name)
        table.add_row(
            name,
            labels.get("topology.kubernetes.io/region", ""),
            ready(item),
            item["status"].get("allocatable", {}).get(RESOURCE, "0"),
            f"{place.speed:g}" if place else "simulated",
            lab.net.first(place.address) if place else "",
        )
    return table


def ready(item: dict[str, Any]) -> str:
    """The status of a Node's Ready condition: True, False or Unknown."""
    conditions = item["status"].get("conditions", ())
    return next((str(c["status"]) for c in conditions if c["type"] == "Ready"), "Unknown")


def _links(lab: Lab) -> Table:
    table = Table(title="links (directed)")
    for heading in ("from", "to", "one way", "rate on the wire", "state", "packets", "dropped", "late"):
        table.add_column(heading)
    for link in relay.stats(lab.net).links:
        table.add_row(
            link.source,
            link.target,
            f"{link.delay_s * 1e3:.1f} ms",
            f"{link.bytes_per_s * 8 / 1e6:.1f} Mbit/s",
            "cut" if link.is_cut else "up",
            str(link.num_packets),
            str(link.num_dropped),
            str(link.num_late),
        )
    return table


def _processes(lab: Lab) -> Table:
    table = Table(title=f"processes (logs in {lab.state / 'logs'})")
    for heading in ("process", "pid", "state"):
        table.add_column(heading)
    for process in lab.control.table.all():
        table.add_row(process.name, str(process.pid), "running" if process.alive else "[red]ended[/red]")
    return table
