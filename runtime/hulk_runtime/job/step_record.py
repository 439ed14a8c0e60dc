"""What a rank has done so far, in memory that it shares with `hulk-launch`: steps, their times, the loss, the model.

The rank writes a few numbers after each step and never waits; the launcher reads them when somebody asks. So there is
an answer also while the rank hangs, with or without Python's lock. A rank that nobody observes has no record, and
`report` then does nothing.
"""

import mmap
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Final, SupportsFloat

WINDOW_STEPS: Final = 20
_NUM_SLOTS: Final = 32  # more than are read: the one that is being written is not among those
(
    _NUM_REPORTS,
    _STEP,
    _TIME_NS,
    _IS_TOLD,
    _IS_SERVED,
    _HAS_LOSS,
    _LOSS,
    _PARAMETERS,
    _GRADIENT_BYTES,
    _COMPUTE,
    _CHECKPOINT_STEP,
    _CHECKPOINT_BYTES,
    _SLOTS,
) = range(13)
_WHERE_BYTES: Final = 1024
NUM_BYTES: Final = 8 * (_SLOTS + _NUM_SLOTS) + _WHERE_BYTES


@dataclass(frozen=True, slots=True)
class Progress:
    """One reading. `step` 0: none was made. `durations_s`: of the last steps, oldest first; the first one has none.

    `compute_s`: of a step what the rank itself computes; None: not known (yet). `checkpoint_step` 0: none is complete.
    """

    step: int
    durations_s: tuple[float, ...]
    loss: float | None
    num_parameters: int
    gradient_bytes: int
    compute_s: float | None = None
    checkpoint_step: int = 0
    checkpoint_bytes: int = 0
    checkpoint_where: str = ""

    @property
    def step_s(self) -> float | None:
        """Median of the last steps; None before the second one."""
        return median(self.durations_s) if self.durations_s else None


class StepRecord:
    """One rank's numbers in a file of `NUM_BYTES` (a descriptor), which begins as zeros."""

    def __init__(self, descriptor: int, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        shared = memoryview(mmap.mmap(descriptor, NUM_BYTES))
        self._whole, self._real, self._where = shared.cast("q"), shared.cast("d"), shared[-_WHERE_BYTES:]
        self._clock_ns = clock_ns
        self._stepped: set[int] = set()

    def optimizer_stepped(self, optimizer: int) -> bool:
        """Count a training step with the first optimizer that steps in it; whether this was the first.

        A training step ends where an optimizer steps that has stepped in it before. So several optimizers are one
        step together, like a wrapper and what it wraps; and where another one takes over for good, it is counted on.
        """
        is_first = not self._stepped or optimizer in self._stepped
        if is_first:
            self._stepped.clear()
            if not self._whole[_IS_TOLD]:
                self._completed(self._whole[_STEP] + 1)
        self._stepped.add(optimizer)
        return is_first

    def told(self, step: int | None, loss: float | None) -> None:
        """Take the program's own words. Once it has told a step, its optimizers are not counted any more."""
        if loss is not None:
            self._real[_LOSS] = loss
            self._whole[_HAS_LOSS] = 1
        if step is not None:
            self._whole[_IS_TOLD] = 1
            if step > self._whole[_STEP]:
                self._completed(step)

    def add_model(self, num_parameters: int, gradient_bytes: int) -> None:
        """Count what one more optimizer updates."""
        self._whole[_PARAMETERS] += num_parameters
        self._whole[_GRADIENT_BYTES] += gradient_bytes

    def waits(self, wait_s: float) -> None:
        """Take the median of what the steps so far waited for other ranks: the rest of them is compute."""
        step_s = self.read().step_s
        if step_s is not None and 0 <= wait_s < step_s:
            self._real[_COMPUTE] = step_s - wait_s

    def saved(self, step: int, num_bytes: int, where: str) -> None:
        """A checkpoint is complete. `where`: its URL; the place is left out where that is too long or has blanks."""
        is_url = len(where) <= _WHERE_BYTES and where.isascii() and where.isprintable() and " " not in where
        self._where[:] = (where if is_url else "").encode().ljust(_WHERE_BYTES, b"\0")
        self._whole[_CHECKPOINT_BYTES] = num_bytes
        self._whole[_CHECKPOINT_STEP] = step

    def serve(self) -> None:
        """The program serves its progress itself, at the port that the launcher would take."""
        self._whole[_IS_SERVED] = 1

    @property
    def is_served(self) -> bool:
        """Whether the program serves its progress itself."""
        return bool(self._whole[_IS_SERVED])

    def read(self) -> Progress:
        """The numbers of one moment; the newest durations while a step is being written."""
        num_reports = self._whole[_NUM_REPORTS]
        first = max(1, num_reports - WINDOW_STEPS)
        return Progress(
            step=self._whole[_STEP],
            durations_s=tuple(self._real[_SLOTS + at % _NUM_SLOTS] for at in range(first, num_reports)),
            loss=self._real[_LOSS] if self._whole[_HAS_LOSS] else None,
            num_parameters=self._whole[_PARAMETERS],
            gradient_bytes=self._whole[_GRADIENT_BYTES],
            compute_s=self._real[_COMPUTE] or None,
            checkpoint_step=self._whole[_CHECKPOINT_STEP],
            checkpoint_bytes=self._whole[_CHECKPOINT_BYTES],
            checkpoint_where=bytes(self._where).rstrip(b"\0").decode(),
        )

    def _completed(self, step: int) -> None:
        now_ns, num_reports = self._clock_ns(), self._whole[_NUM_REPORTS]
        num_steps = step - self._whole[_STEP]
        self._real[_SLOTS + num_reports % _NUM_SLOTS] = (now_ns - self._whole[_TIME_NS]) / num_steps / 1e9
        self._whole[_TIME_NS] = now_ns
        self._whole[_STEP] = step
        self._whole[_NUM_REPORTS] = num_reports + 1


own: StepRecord | None = None
"""This process's, where the launcher observes it; never a child's."""


def observe(path: str) -> StepRecord:
    """Write into the file at `path` from now on; children that are forked do not."""
    global own
    descriptor = os.open(path, os.O_RDWR)
    own = StepRecord(descriptor)
    os.close(descriptor)
    os.register_at_fork(after_in_child=_forget)
    return own


def report(*, step: int | None = None, loss: SupportsFloat | None = None) -> None:
    """Tell Hulk how far this rank's training is; rank 0's words are the job's, in status.observed and on /metrics.

    `loss`: a number, or a tensor of one (which waits for its device, so not in every step). `step`: the last completed
    one, for programs without torch's optimizers, or that count on from a checkpoint; absent = hulk-launch counts what
    the optimizers do. Outside of `hulk-launch` nothing happens.
    """
    if own is not None:
        own.told(step, None if loss is None else float(loss))


def saved(step: int, num_bytes: int, where: str) -> None:
    """Tell Hulk that a checkpoint of all ranks is complete, and its URL; rank 0's words are the job's."""
    if own is not None:
        own.saved(step, num_bytes, where)


def _forget() -> None:
    global own
    own = None
