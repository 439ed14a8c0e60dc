"""Views of plans -> one HTML page: self-contained, without scripts, every name in it escaped by the template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jinja2 import Environment

from hulk_placement.cost.breakdown import Part
from hulk_placement.geography.cities import coordinates as of_city
from hulk_placement.geography.light import Coordinates
from hulk_placement.report import units
from hulk_placement.report.chart import Chart, chart
from hulk_placement.report.labels import link_words
from hulk_placement.report.projection import NARROW, WIDE
from hulk_placement.report.rows import StageRow, View
from hulk_placement.report.schedule.html import figure
from hulk_placement.report.templates import environment

FEW_ROWS, MOST_ROWS = 10, 200
"""Of a table: what is shown at once, and at most; JSON has all."""

MOST_NAMES = 6

NOTHING = "–"

TRANSPORTS = {
    "ring": "gloo's ring",
    "hierarchical": "gloo in two levels, inside regions and between them",
    "wan": "Hulk's own all-reduce",
    "nccl": "NCCL over sockets",
    "parameter-server": "a server that sums for all",
}

COMPONENTS = (
    ("parameters", "parameter_bytes"),
    ("gradients", "gradient_bytes"),
    ("optimizer", "optimizer_bytes"),
    ("activations", "activation_bytes"),
    ("recomputed layer", "recompute_bytes"),
    ("buffers", "buffer_bytes"),
    ("framework", "framework_bytes"),
    ("allocator's reserve", "reserve_bytes"),
)


@dataclass(frozen=True, slots=True)
class Job:
    """A view, and what the page shows of it besides."""

    view: View
    wide: Chart
    narrow: Chart

    @property
    def missing(self) -> int:
        """Bytes that the fullest accelerator lacks."""
        return max(row.missing_bytes for row in self.view.memory)

    @property
    def most_bytes(self) -> int:
        """What a whole bar of memory stands for."""
        return max(max(row.total_bytes, row.capacity_bytes or 0) for row in self.view.memory)

    @property
    def has_pins(self) -> bool:
        """Whether any layer is pinned."""
        return any(stage.pins for stage in self.view.stages)

    @property
    def transport(self) -> str:
        """How gradients come together."""
        return TRANSPORTS[self.view.transport]

    @property
    def has_stage_links(self) -> bool:
        """Whether a link carries mostly what stages send each other."""
        return any(curve.row.stage_bytes >= curve.row.sync_bytes for curve in self.wide.curves)

    @property
    def has_sync_links(self) -> bool:
        """Whether a link carries mostly what replicas send each other."""
        return any(curve.row.stage_bytes < curve.row.sync_bytes for curve in self.wide.curves)

    @property
    def description(self) -> str:
        """The drawing in words."""
        dots = "; ".join(f"{dot.region}: {dot.note}" for dot in self.wide.dots)
        links = [
            f"{curve.row.source} sends {units.size(curve.row.stage_bytes + curve.row.sync_bytes)} to {curve.row.target}"
            for curve in self.wide.curves
        ]
        return f"{dots}. {'; '.join(links) or 'Nothing is sent between regions'}."


def page(views: Sequence[View], coordinates: Mapping[str, Coordinates]) -> str:
    """The page of these plans. `coordinates` of regions, degrees north and east; those of known cities are known."""
    jobs = []
    for view in views:
        known = {region: place for region in view.regions if (place := coordinates.get(region) or of_city(region))}
        jobs.append(Job(view, chart(view, known, WIDE), chart(view, known, NARROW)))
    return (
        _environment()
        .get_template("page.html.j2")
        .render(jobs=jobs, components=COMPONENTS, few_rows=FEW_ROWS, most_rows=MOST_ROWS, figure=figure)
    )


def _environment() -> Environment:
    return environment(
        {
            "bounded": lambda value: f"{min(max(value, 0.0), 100.0):.3f}",
            "by_region": _by_region,
            "colour": [*Part].index,
            "component": [key for _, key in COMPONENTS].index,
            "count": units.count,
            "duration": lambda value: NOTHING if value is None else units.duration(value),
            "few": few,
            "link": link_words,
            "percent": lambda value: NOTHING if value is None else units.percent(value),
            "px": lambda length: f"{length:.1f}",
            "seconds": lambda value: units.duration(round(value * 1e6)),
            "rate": lambda value: units.rate(value) if value else NOTHING,
            "span": lambda stage: units.span(stage.first_layer, stage.last_layer, "–"),
            "size": lambda value: units.size(value) if value else NOTHING,
        }
    )


def _by_region(stage: StageRow) -> list[tuple[str, list[str]]]:
    regions: dict[str, list[str]] = {}
    for place in stage.places:
        regions.setdefault(place.region, []).append(place.machine)
    return list(regions.items())


def few(names: Sequence[str]) -> str:
    """
    >>> few(["a", "b", "c", "d", "e", "f", "g", "h"])
    'a, b, c, d, e and 3 more'
    """
    if len(names) <= MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[: MOST_NAMES - 1])} and {len(names) - MOST_NAMES + 1} more"
