"""A worker's termination message -> the checkpoint that was its last act.

It is written when the worker has been told to stop, or is done, and its port closes with it: no poll tells of it.
"""

import re
from dataclasses import dataclass
from typing import Final

from hulk_operator.pods import WorkerPod

_NOTE: Final = re.compile(r"checkpoint attempt=(\d{1,9}) step=(\d{1,15}) bytes=(\d{1,15})\Z")


@dataclass(frozen=True, slots=True, order=True)
class Farewell:
    """The last checkpoint of an attempt."""

    attempt: int
    step: int
    num_bytes: int


def farewell(pod: WorkerPod) -> Farewell | None:
    """What a worker that ended said of its last checkpoint.

    >>> from hulk_operator.pods import Exit
    >>> said = Exit(143, "Error", "checkpoint attempt=2 step=40 bytes=1000", None)
    >>> farewell(WorkerPod("demo-2-0", "p", "j", attempt=2, worker=0, exit=said))
    Farewell(attempt=2, step=40, num_bytes=1000)
    """
    found = _NOTE.match(pod.exit.message.strip()) if pod.exit else None
    return Farewell(*map(int, found.groups())) if found else None
