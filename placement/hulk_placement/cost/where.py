"""Where a simulated step goes: computing, bubble, transfers and exposed all-reduces by place; together the step.

It is seen from one cell, the one whose gradients were waited for last. Whenever that cell is idle it waits for a
block's input, and that for something else: back along this chain, what is spent on a way is charged to the link, or to
the uplink that held the transfer back, and what other cells compute is the bubble. After the cell's last block the
chain goes through all-reduces.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from hulk_placement.cost.simulation.outcome import Simulated
from hulk_placement.cost.simulation.step import Cell, Place
from hulk_placement.cost.timeline import Span, Walk

Part = Literal["compute", "bubble", "transfer", "all-reduce", "blocking sends", "end of step"]

Charged = defaultdict[Place | None, float]
"""Seconds by place; None: in other cells."""


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds of a step: computing, waiting for others' computing, or for bytes at a place."""

    part: Part
    place: Place | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Where:
    """A step in rows, which add up to it: compute, bubble, transfers and all-reduces by place, the rest.

    `cell`: the replica and stage that the step is seen from.
    """

    cell: Cell
    rows: tuple[Row, ...]

    @property
    def step_s(self) -> float:
        """All of it."""
        return sum(row.seconds for row in self.rows)

    def seconds(self, part: Part, place: Place | None = None) -> float:
        """Of one part, at one place or at all of them."""
        return sum(row.seconds for row in self.rows if row.part == part and place in (None, row.place))


def where(simulated: Simulated) -> Where:
    """Split a simulated step."""
    walk = Walk(simulated)
    cell, reduces = walk.reducing()
    num_blocks = walk.num_blocks(cell)
    ends_s = [0.0, *walk.end_CI[cell][:num_blocks]]
    waits: Charged = defaultdict(float)
    for number, (start_s, free_s) in enumerate(zip(walk.start_CI[cell], ends_s[:-1], strict=False)):
        if start_s > free_s:
            _charge(waits, walk.before(cell, number), free_s)
    bubble_s = waits.pop(None, 0.0)
    borne: Charged = defaultdict(float)
    exposed: Charged = defaultdict(float)
    reduced_s = simulated.reduced_s
    _charge(exposed, (span for span in reduces if span.start_s >= reduced_s), reduced_s)
    _charge(borne, (span for span in reduces if span.start_s < reduced_s), ends_s[-1])
    for place, seconds in borne.items():
        exposed[place] += seconds / simulated.step.num_steps_apart
    replica, stage = divmod(cell, walk.num_stages)
    rows = [Row("compute", None, float(simulated.busy_DP[replica, stage])), Row("bubble", None, bubble_s)]
    besides = Row("blocking sends", None, simulated.step.held_s), Row("end of step", None, simulated.step.after_s)
    last = [row for row in besides if row.seconds]
    return Where((replica, stage), (*rows, *_rows("transfer", waits), *_rows("all-reduce", exposed), *last))


def _charge(charged: Charged, spans: Iterable[Span], early_s: float) -> None:
    """Add seconds by place along spans that go back in time, not before `early_s`."""
    for span in spans:
        charged[span.place] += max(0.0, span.end_s - max(span.start_s, early_s))
        if span.start_s <= early_s:
            break


def _rows(part: Part, charged: Charged) -> list[Row]:
    found = [Row(part, place, seconds) for place, seconds in charged.items() if seconds > 0]
    return sorted(found, key=lambda row: (-row.seconds, str(row.place)))
