"""What of a step a rank computes, in a script that knows nothing of Hulk: the step less its wait for the all-reduce.

torch's DistributedDataParallel times its first iterations. What it still waits for once its backward pass has computed
is the part of its communication that nothing hides; the rest of the step is the rank's own: forward, backward, data,
update. A rank alone waits for nobody. Of others (FSDP, a torch without these figures) it stays unknown.
"""

import gc
import sys
import weakref
from statistics import median
from typing import Any, Final

from hulk_runtime.job.step_record import StepRecord

NUM_STEPS: Final = 12
NUM_TIMED: Final = 10
"""Iterations that torch times one after the other; of later ones only some."""
MIN_SAMPLES: Final = 2
_CHANGED: Final = (AttributeError, KeyError, RuntimeError, TypeError, ValueError)
"""What figures that are torch's own affair may raise in another version of it."""


class ComputeTime:
    """Looks at each of a rank's first steps, then writes into its record what it computes in one."""

    def __init__(self, record: StepRecord, is_alone: bool) -> None:
        self._record = record
        self._is_alone = is_alone
        self._num_steps = 0
        self._models: list[_Iterations] = []
        self._waits_s: list[float] = []

    def stepped(self) -> None:
        """Call after each step; those after the first ones cost nothing."""
        if self._num_steps >= NUM_STEPS:
            return
        self._num_steps += 1
        try:
            if self._num_steps == 1 and not self._is_alone:
                self._models = [_Iterations(model) for model in _data_parallel_models()]
            self._look()
        except _CHANGED:
            self._num_steps = NUM_STEPS

    def _look(self) -> None:
        each_s = (model.wait_s() for model in self._models)
        waits_s = [0.0] if self._is_alone else [wait_s for wait_s in each_s if wait_s is not None]
        if waits_s:
            self._waits_s.append(sum(waits_s))
        if self._num_steps == NUM_STEPS and len(self._waits_s) >= MIN_SAMPLES:
            self._record.waits(median(self._waits_s))


class _Iterations:
    """A model's iterations that torch has timed. One of them behind: it looks at an iteration when the next begins."""

    def __init__(self, model: Any) -> None:
        self._model = weakref.ref(model)
        self._last = int(_figures(model)["iteration"])

    def wait_s(self) -> float | None:
        """Seconds that a step waited for its all-reduces, as many as there were since the last call; None: unknown."""
        model = self._model()
        if model is None:
            return None
        found = _figures(model)
        num, self._last = found["iteration"] - self._last, found["iteration"]
        communication_ns = found.get("backward_comm_time", 0)
        if num <= 0 or self._last >= NUM_TIMED or communication_ns <= 0:
            return None
        hidden_ns = found.get("backward_compute_comm_overlap_time", 0)
        return float(num * max(0, communication_ns - hidden_ns) / 1e9)


def _figures(model: Any) -> dict[str, Any]:
    """What torch's logger of DistributedDataParallel has of the last iteration that it timed."""
    return dict(model._get_ddp_logging_data())


def _data_parallel_models() -> list[Any]:
    """Every DistributedDataParallel there is, Hulk's as well. By types: to ask an object itself may run its code."""
    parallel: Any = sys.modules.get("torch.nn.parallel.distributed")
    if parallel is None:
        return []
    return [one for one in gc.get_objects() if issubclass(type(one), parallel.DistributedDataParallel)]
