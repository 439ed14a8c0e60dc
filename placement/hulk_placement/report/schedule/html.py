"""A schedule -> an HTML page, a part of one, or an SVG file: self-contained, without scripts, every name escaped."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment
from markupsafe import Markup

from hulk_placement.report import units
from hulk_placement.report.schedule.drawing import SMALL, TEXT, WIDTH, drawing
from hulk_placement.report.schedule.rows import ScheduleView
from hulk_placement.report.schedule.tracks import kinds, memory_words, time_words
from hulk_placement.report.templates import environment

FEW_ROWS, MOST_ROWS = 12, 200
"""Of a table: what is shown at once, and at most; JSON has all."""


def page(view: ScheduleView) -> str:
    """The page of a schedule."""
    return _render("schedule.html.j2", view)


def figure(view: ScheduleView, id: str = "schedule") -> Markup:
    """The drawing with its legend, for a page that has the styles `style.css` and `gantt.css`."""
    return Markup(_render("gantt-figure.html.j2", view, id))


def svg(view: ScheduleView) -> str:
    """The drawing alone, as a file."""
    return _render("gantt.svg.j2", view)


def description(view: ScheduleView) -> str:
    """The drawing in words."""
    links = "; ".join(f"{link.name} is busy {units.percent(link.share)}" for link in view.links)
    devices = "; ".join(f"device {n} is busy {units.percent(b / view.makespan)}" for n, b in enumerate(view.busy))
    return f"{devices}{'; ' if links else ''}{links}."


def _render(template: str, view: ScheduleView, id: str = "schedule") -> str:
    given = {
        "view": view,
        "id": id,
        "chart": drawing(view),
        "kinds": list(kinds(view)),
        "description": description(view),
        "few_rows": FEW_ROWS,
        "most_rows": MOST_ROWS,
        "text": TEXT,
        "small": SMALL,
        "paper": WIDTH,
    }
    return (
        _environment()
        .get_template(template)
        .render(
            **given,
            time=lambda value: time_words(value, view),
            memory=lambda value: memory_words(value, view),
        )
    )


@cache
def _environment() -> Environment:
    return environment({"percent": units.percent, "px": lambda length: f"{length:.1f}"})
