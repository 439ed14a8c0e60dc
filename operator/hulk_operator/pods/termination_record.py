"""A worker's termination message -> its last step, its loss and the checkpoint that was its last act.

It is written when the run has been told to stop, or is done, and its port closes with it: no poll tells of it.
"""

import re
from dataclasses import dataclass
from typing import Final

from hulk_operator.pods import WorkerPod

_NOTE: Final = re.compile(
    r"ended attempt=(\d{1,9}) step=(\d{1,15})(?: loss=(-?\d{1,9}(?:\.\d{1,9})?(?:e[-+]\d{1,3})?|nan|-?inf))?"
    r" checkpoint_bytes=(\d{1,15})(?: where=([!-~]{1,1024}))?"
    r"(?: epoch=(\d{1,9}) without=([-A-Za-z0-9_.,]{1,2048}))?\Z"
)


@dataclass(frozen=True, slots=True, order=True)
class Farewell:
    """How an attempt ended that ended in good order. `checkpoint_bytes` of its last step's; 0: none was written.

    `loss` is empty where the program told none, `where` where the checkpoint lies where the job's spec says. `without`
    are the regions that it left out in the end, under membership epoch `epoch`.
    """

    attempt: int
    step: int
    loss: str
    checkpoint_bytes: int
    epoch: int = 0
    without: tuple[str, ...] = ()
    where: str = ""


def farewell(pod: WorkerPod) -> Farewell | None:
    """What a worker that ended said of its last step.

    >>> from hulk_operator.pods import Exit
    >>> from hulk_operator.pods.worker import LONG_AGO
    >>> said = Exit(143, "Error", "ended attempt=2 step=40 loss=2.87912 checkpoint_bytes=1000", LONG_AGO)
    >>> farewell(WorkerPod("demo-2-0", "p", "j", attempt=2, worker=0, exit=said))
    Farewell(attempt=2, step=40, loss='2.87912', checkpoint_bytes=1000, epoch=0, without=(), where='')
    """
    found = _NOTE.match(pod.exit.message.strip()) if pod.exit else None
    if found is None:
        return None
    attempt, step, loss, checkpoint_bytes, where, epoch, without = found.groups()
    left_out = tuple(without.split(",")) if without else ()
    return Farewell(int(attempt), int(step), loss or "", int(checkpoint_bytes), int(epoch or 0), left_out, where or "")
