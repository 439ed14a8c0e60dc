"""What happened in a simulated step, as spans of time: all of it, and the chain of what waited for what.

The chain is the critical path: it goes back from the step's end, from each span to the one whose end it waited for. Any
span of it that took less time would shorten the step, until another chain is as long.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from hulk_native import input_of, output_of

from hulk_placement.cost.simulation.blocks import Ints
from hulk_placement.cost.simulation.outcome import Simulated
from hulk_placement.cost.simulation.schedule import FORWARD
from hulk_placement.cost.simulation.step import Cell, Place


@dataclass(frozen=True, slots=True)
class Span:
    """What went on from `start_s` to `end_s`.

    `cell`: the replica and stage that computes, sends, or is the first of those that reduce. `place`: where bytes went,
    or what held them back in the end; None while computing. `number`: the micro-batch, or the bucket of an all-reduce.
    """

    start_s: float
    end_s: float
    kind: Literal["forward", "backward", "transfer", "all-reduce"]
    cell: Cell
    number: int
    place: Place | None = None


def timeline(simulated: Simulated) -> list[Span]:
    """All spans, by the cell; transfers from the first byte's leaving to the last one's arrival."""
    walk = Walk(simulated)
    spans = []
    for cell, order in enumerate(walk.order_CI):
        spans += [walk.computing(cell, number) for number, code in enumerate(order) if code >= 0]
    for channel, queue in enumerate(walk.queue_HM):
        spans += [walk.transfer(channel, batch) for batch in queue[: simulated.blocks.num_sent_H[channel]]]
    for s in range(len(simulated.sums.end_S)):
        spans += walk.phases(s)
    return sorted(spans, key=lambda span: (span.cell, span.start_s, span.end_s))


def chain(simulated: Simulated) -> list[Span]:
    """The critical path from 0 to the step's end, in the order of time.

    The last computing of a chain may be cut short: a bucket's gradients are there before the backward pass ends.
    """
    walk = Walk(simulated)
    cell, spans = walk.reducing()
    number = walk.num_blocks(cell) - 1
    last = walk.computing(cell, number)
    end_s = min(last.end_s, spans[-1].start_s) if spans else last.end_s
    spans += [Span(last.start_s, end_s, last.kind, last.cell, last.number), *walk.before(cell, number)]
    return spans[::-1]


class Walk:
    """The spans of a step by their numbers, and from each back to what it waited for."""

    def __init__(self, simulated: Simulated) -> None:
        blocks = simulated.blocks
        self.num_stages, self.overlap, self.sums = blocks.num_stages, blocks.overlap, simulated.sums
        self.step, self.ends_C = simulated.step, simulated.ends_DP.ravel()
        self.order_CI, self.queue_HM = blocks.order_CI.tolist(), blocks.queue_HM.tolist()
        self.number_CI, self.place_HM = _inverse(blocks.order_CI), _inverse(blocks.queue_HM)
        self.start_CI, self.end_CI = blocks.start_CI.tolist(), blocks.end_CI.tolist()
        self.sending_HM, self.arrived_HM = blocks.sending_HM.tolist(), blocks.arrived_HM.tolist()
        self.held_by_HM = blocks.held_by_HM.tolist()

    def num_blocks(self, cell: int) -> int:
        """Of a cell."""
        return sum(code >= 0 for code in self.order_CI[cell])

    def computing(self, cell: int, number: int) -> Span:
        """A block, by its number in the cell's order."""
        batch, kind = divmod(self.order_CI[cell][number], 2)
        start_s, end_s = self.start_CI[cell][number], self.end_CI[cell][number]
        return Span(start_s, end_s, "forward" if kind == FORWARD else "backward", self._cell(cell), batch)

    def transfer(self, channel: int, batch: int) -> Span:
        """What a cell sends of a micro-batch."""
        start_s, end_s = self.sending_HM[channel][batch], self.arrived_HM[channel][batch]
        place = self.step.resources[self.held_by_HM[channel][batch]].place
        return Span(start_s, end_s, "transfer", self._cell(channel // 2), batch, place)

    def phases(self, s: int) -> list[Span]:
        """Of a bucket's all-reduce, in the order of time."""
        sums, group = self.sums, int(self.sums.group_S[s])
        first, behind = int(sums.first_phase_S[s]), int(sums.first_phase_S[s + 1])
        times = [float(sums.start_S[s]), *sums.end_Q[first:behind].tolist()]
        places = [self.step.resources[r].place for r in sums.held_by_E[sums.last_Q[first:behind]].tolist()]
        cell, bucket = self.step.all_reduces[group].members[0], s - int(sums.first_sum_G[group])
        both = zip(times, times[1:], places, strict=False)
        return [Span(start_s, end_s, "all-reduce", cell, bucket, place) for start_s, end_s, place in both]

    def reducing(self) -> tuple[int, list[Span]]:
        """The cell that the step waited for last, and the all-reduces back from the step's end."""
        sums = self.sums
        if not sums.end_S.size or sums.end_S.max() < self.ends_C.max():
            return int(self.ends_C.argmax()), []
        spans: list[Span] = []
        s = int(sums.end_S.argmax())
        while True:
            spans += self.phases(s)[::-1]
            cause = int(sums.cause_S[s])
            if sums.start_S[s] > sums.ready_S[s]:
                alike = sums.group_S == sums.group_S[s]
                s = int(np.flatnonzero(alike & (sums.end_S == sums.start_S[s]))[0])
            elif cause < 0:
                s = -1 - cause
            else:
                return cause, spans

    def before(self, cell: int, number: int) -> Iterator[Span]:
        """Back from the start of a cell's block to 0."""
        while self.start_CI[cell][number] > 0.0:
            start_s = self.start_CI[cell][number]
            batch, kind = divmod(self.order_CI[cell][number], 2)
            channel = input_of(self.num_stages, cell, kind)
            if channel is None or self.arrived_HM[channel][batch] < start_s:
                number -= 1
                batch, kind = divmod(self.order_CI[cell][number], 2)
                channel = None if self.overlap else output_of(self.num_stages, cell, kind)
            if channel is not None:
                batch = yield from self._sending(channel, batch)
                cell = channel // 2
                number = self.number_CI[cell][2 * batch + channel % 2]
            yield self.computing(cell, number)

    def _sending(self, channel: int, batch: int) -> Generator[Span, None, int]:
        """Back from the arrival of a micro-batch to the end of a block: that of the micro-batch which is returned.

        Where the channel was in use then, also through what it sent before: of that, its time on the channel alone.
        """
        cell, queue, span = channel // 2, self.queue_HM[channel], self.transfer(channel, batch)
        while True:
            yield span
            number = self.number_CI[cell][2 * batch + channel % 2]
            if self.end_CI[cell][number] == span.start_s:
                return batch
            batch, since_s = queue[self.place_HM[channel][batch] - 1], span.start_s
            earlier = self.transfer(channel, batch)
            span = Span(earlier.start_s, since_s, earlier.kind, earlier.cell, batch, earlier.place)

    def _cell(self, cell: int) -> Cell:
        return divmod(cell, self.num_stages)


def _inverse(rows: Ints) -> list[list[int]]:
    """Where in its row each number from 0 stands first; what is behind a row's last entry, -1, counts for nothing.

    >>> _inverse(np.array([[2, 0, 1], [1, 0, -1]]))
    [[1, 2, 0], [1, 0, 0]]
    """
    found = np.zeros((len(rows), rows.shape[1] + 1), np.int64)
    places = np.broadcast_to(np.arange(rows.shape[1] - 1, -1, -1), rows.shape)
    np.put_along_axis(found, rows[:, ::-1], places, axis=1)
    inverse: list[list[int]] = found[:, :-1].tolist()
    return inverse
