"""A timeline as a picture: a panel a policy, a row a job, a bar as dark as the job has workers."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from bench.fleet_simulator.run import Outcome
from bench.fleet_simulator.scenario import Scenario
from bench.fleet_simulator.state import Span

WIDTH, LEFT, TOP, ROW, GAP = 980.0, 120.0, 44.0, 9.0, 26.0
MOST_ROWS = 80
NUM_MARKS = 8
FAINTEST = 0.25


def svg(scenario: Scenario, outcomes: Sequence[Outcome]) -> str:
    """The drawing of all policies, one below the other, on one axis of time."""
    jobs = sorted(scenario.jobs, key=lambda job: job.arrived_s)[:MOST_ROWS]
    first_s = min((job.arrived_s for job in jobs), default=0.0)
    last_s = max((first_s + outcome.makespan_s for outcome in outcomes), default=1.0)
    scale = (WIDTH - LEFT - 10) / max(last_s - first_s, 1e-9)
    panel = len(jobs) * ROW + GAP
    height = TOP + panel * len(outcomes)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" font-family="sans-serif" '
        'font-size="9">',
        f'<rect width="{WIDTH:g}" height="{height:g}" fill="white"/>',
        *_axis(first_s, last_s, scale),
    ]
    rows = {job.key: place for place, job in enumerate(jobs)}
    most = {job.key: job.max_workers for job in jobs}
    for number, outcome in enumerate(outcomes):
        top = TOP + number * panel
        parts.append(f'<text x="4" y="{top - 6:g}" font-size="12" font-weight="bold">{escape(outcome.policy)}</text>')
        parts += [_name(job.key, top + rows[job.key] * ROW) for job in jobs]
        for span in outcome.spans:
            if span.job in rows:
                x, y = LEFT + (span.start_s - first_s) * scale, top + rows[span.job] * ROW
                parts.append(_bar(span, x, y, (span.end_s - span.start_s) * scale, most[span.job]))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(span: Span, x: float, y: float, width: float, most: int) -> str:
    """A stretch of time, which says its numbers when one points at it."""
    dark = FAINTEST + (1 - FAINTEST) * min(1.0, span.workers / most)
    words = f"{span.job}: {span.workers} workers, {span.start_s:g} to {span.end_s:g} s"
    return (
        f'<rect x="{x:.2f}" y="{y + 1:.2f}" width="{max(0.5, width):.2f}" height="{ROW - 2:g}" '
        f'fill="#1f5fa8" fill-opacity="{dark:.2f}"><title>{escape(words)}</title></rect>'
    )


def _axis(first_s: float, last_s: float, scale: float) -> list[str]:
    """Times along the upper edge."""
    marks = []
    for number in range(NUM_MARKS + 1):
        at_s = first_s + (last_s - first_s) * number / NUM_MARKS
        x = LEFT + (at_s - first_s) * scale
        anchor = "end" if number == NUM_MARKS else "middle"
        marks.append(f'<text x="{x:.1f}" y="14" text-anchor="{anchor}" fill="#555">{at_s:.4g} s</text>')
        marks.append(f'<line x1="{x:.1f}" y1="18" x2="{x:.1f}" y2="24" stroke="#999"/>')
    return marks


def _name(name: str, y: float) -> str:
    shown = name if len(name) <= 20 else name[:19] + "…"
    return f'<text x="{LEFT - 6:g}" y="{y + ROW - 2:.1f}" text-anchor="end" fill="#333">{escape(shown)}</text>'
