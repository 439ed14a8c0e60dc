"""Measures what the plan could not know yet: the seconds each rank's machine needs for its share of a step.

The ranks compute a few steps alone but at the same time, rank 0 offers the medians to the operator, which writes its
prediction from them before step 1 and then says go. Nothing is trained here.
"""

import time
from statistics import median

import torch

from hulk_runtime.groups import Group
from hulk_runtime.steps import Stepper

MIN_PASSES = 3
MAX_PASSES = 9
ENOUGH_S = 6.0


def measure(stepper: Stepper) -> float:
    """Median seconds of a step alone: 3 to 9 passes in about 6 s, after one that is not counted."""
    stepper.alone()
    deadline = time.monotonic() + ENOUGH_S
    passes: list[float] = []
    while len(passes) < MIN_PASSES or (len(passes) < MAX_PASSES and time.monotonic() < deadline):
        passes.append(stepper.alone())
    return median(passes)


def gather(group: Group, compute_s: float) -> list[float]:
    """Every rank's seconds, on all ranks."""
    rows = group.gather(torch.tensor([compute_s], dtype=torch.float64))
    return [float(seconds) for seconds in rows.flatten()]
