"""What a rank did in a step and when -> where its time went: computing, waiting for a transfer, bubbles.

Seconds count from when a rank last heard of all others, at the end of the step before, which is at another moment on
each; what is said of transfers is as true as their hosts' clocks agree. On a GPU times are the host's, which runs ahead
of it.

While a rank waits, what it waits for is not yet sent (a bubble: its peer still computes) or on its way (a transfer):

    device 0  F0 ....|            F0 ends at 1.0 and is sent
    device 1  wait ......|F1      waits from 0.0 to 1.3: a bubble of 1.0, a transfer of 0.3
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from hulk_runtime.pipeline.dataflow import Way
from hulk_runtime.plan.pipeline_schedule import Turn

Kind = Literal["run", "wait", "send", "sum"]


@dataclass(frozen=True, slots=True)
class Event:
    """One action: `run` a block, `wait` for or `send` what goes on a way, wait for the `sum` of gradients.

    `peer` is the device that it waits for or sends to. Sends go on while the rank does something else.
    """

    kind: Kind
    of: int | Way | None
    micro_batch: int
    start_s: float
    end_s: float
    peer: int | None = None

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Parts:
    """Where a rank's time of a step went. Sums: of gradients, as far as computing did not hide them, and of losses."""

    step_s: float
    compute_s: float
    transfer_s: float
    bubble_s: float
    sum_s: float


@dataclass(slots=True)
class Log:
    """The events of one step of one rank, in the order in which they began but for sends, which come last."""

    device: int
    events: list[Event] = field(default_factory=list)
    zero_s: float = 0.0
    """Its second 0 by the host's clock, which counts as the other hosts' do."""

    def of(self, kind: Kind) -> list[Event]:
        """Those of one kind."""
        return [event for event in self.events if event.kind == kind]

    @property
    def turns(self) -> list[Turn]:
        """The blocks in the order in which they ran."""
        return [(event.of, event.micro_batch) for event in self.of("run") if isinstance(event.of, int)]

    def since(self, start_s: float) -> "Log":
        """Of seconds of this process's `time.perf_counter`: of those that count from one of them."""
        moved = (replace(e, start_s=e.start_s - start_s, end_s=e.end_s - start_s) for e in self.events)
        return Log(self.device, list(moved), time.time() - time.perf_counter() + start_s)


def parts(logs: Sequence[Log]) -> list[Parts]:
    """Of the ranks of one replica, by their logs of the same step."""
    sent_s = {
        (event.of, event.micro_batch, log.device, event.peer): log.zero_s + event.start_s
        for log in logs
        for event in log.of("send")
    }
    return [_parts(log, sent_s) for log in logs]


def until_the_last(of: Sequence[Parts]) -> tuple[Parts, ...]:
    """With what each rank waits until the last one is done, as bubbles."""
    step_s = max(each.step_s for each in of)
    return tuple(replace(each, step_s=step_s, bubble_s=each.bubble_s + step_s - each.step_s) for each in of)


def packed(log: Log) -> bytes:
    """A log to send."""
    rows = [
        [
            e.kind,
            [e.of.source, e.of.target] if isinstance(e.of, Way) else e.of,
            e.micro_batch,
            e.start_s,
            e.end_s,
            e.peer,
        ]
        for e in log.events
    ]
    return json.dumps([log.device, rows, log.zero_s]).encode()


def unpacked(sent: bytes) -> Log:
    """
    >>> log = Log(1, [Event("wait", Way(0, 1), 2, 0.5, 0.75, peer=0), Event("run", 1, 2, 0.75, 1.0)], 8.0)
    >>> unpacked(packed(log)) == log
    True
    """
    device, rows, zero_s = json.loads(sent)
    events = [Event(row[0], Way(*row[1]) if isinstance(row[1], list) else row[1], *row[2:]) for row in rows]
    return Log(device, events, zero_s)


def _parts(log: Log, sent_s: dict[tuple[int | Way | None, int, int, int | None], float]) -> Parts:
    own = [event for event in log.events if event.kind != "send"]
    transfer_s = 0.0
    for wait in log.of("wait"):
        left_s = sent_s[wait.of, wait.micro_batch, wait.peer or 0, log.device] - log.zero_s
        transfer_s += max(0.0, wait.end_s - max(wait.start_s, left_s))
    step_s = max(event.end_s for event in own) - min(0.0, *(event.start_s for event in own))
    compute_s = sum(event.seconds for event in log.of("run"))
    sum_s = sum(event.seconds for event in log.of("sum"))
    return Parts(step_s, compute_s, transfer_s, step_s - compute_s - transfer_s - sum_s, sum_s)
