"""How long rank 0 has said nothing, and what a gang said last, by the pods' logs.

A log's lines carry the times of the node's clock, which may be wrong. So no time in a log is compared with one of the
operator: a last line that is another one than at the look before is output, made since then by the operator's clock.
Who else is silent is asked of each node (`since_s`), which compares its own times.
"""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Output:
    """A pod's last line, as of `read`, and since when it is that one."""

    pod: str
    line: str
    changed: datetime
    read: datetime


@dataclass(frozen=True, slots=True)
class WorkerWords:
    """One worker's last lines, and its own step where it says so. `silent`: no line for as long as the bound is."""

    worker: int
    lines: tuple[str, ...]
    silent: bool
    step: int | None = None


@dataclass(frozen=True, slots=True)
class GangWords:
    """What was asked of an attempt's workers because rank 0 says nothing any more."""

    attempt: int
    time: datetime
    workers: tuple[WorkerWords, ...]


def heard(before: Output | None, pod: str, line: str, now: datetime) -> Output:
    """What is known after one more look."""
    same = before is not None and (before.pod, before.line) == (pod, line)
    return Output(pod, line, before.changed if same and before else now, now)
