"""What replicas that train apart wait for one another: a round of fragments whose sums run while training goes on.

In a round of H steps each of P fragments comes together once (Streaming DiLoCo, Douillard et al., arXiv 2501.18512,
section 2.2): the sum of fragment p begins after step (p + 1) H / P, and is merged d steps later, when it must have
ended. Sums go one after another over the same links, as `cost.wan` has them: of a sum that takes t alone and its
busiest link for o, with ready time r,

    end = max(r + t, end of the sum before + o).

Training waits at a merge until the sum has ended. So every moment of a round is the latest of some moments of the round
before, each plus some seconds: a linear map in the max-plus algebra, whose eigenvalue is the seconds of a round
(Baccelli et al., Synchronization and Linearity, 1992, section 3.2.4). It is found by Karp's cycle mean, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hulk_placement.cost.fragments import begins

Floats = npt.NDArray[np.float64]
"""Of a moment: the seconds by which it follows each moment at the end of the round before; -inf: not bound to it."""

COMPUTED, SENT = 0, 1
"""Moments at a round's end: all steps are over; the sum that began last has left the links. Then sums under way."""


def waited_seconds(step_s: float, num_steps: int, delay: int, sums: Sequence[tuple[float, float]]) -> float:
    """Seconds of a round in which training waits, in the mean over many rounds.

    `step_s`: of one step; `sums`: of each fragment the seconds of its all-reduce alone, and those for which its busiest
    link is taken. Without a delay training waits for all of each sum. Two fragments whose sums take 3 s, in rounds of 4
    steps of 1 s: merged one step late each is waited for 2 s. From two steps on links are never idle, and a round
    takes the 6 s that they need.

    >>> [waited_seconds(1.0, 4, delay, [(3.0, 3.0), (3.0, 3.0)]) for delay in range(4)]
    [6.0, 4.0, 2.0, 2.0]
    """
    if not delay or not all(math.isfinite(seconds) for seconds, _ in sums):
        return sum(seconds for seconds, _ in sums)
    round_s = _cycle_mean(_round(step_s, num_steps, delay, sums))
    return max(0.0, round_s - num_steps * step_s)


def _round(step_s: float, num_steps: int, delay: int, sums: Sequence[tuple[float, float]]) -> Floats:
    """A round as a matrix: moments at its end by moments at its begin."""
    begun = begins(num_steps, len(sums))
    late = [number for number, step in enumerate(begun) if step + delay > num_steps]
    moments = np.where(np.eye(2 + len(late), dtype=bool), 0.0, -np.inf)
    now, sent = moments[COMPUTED], moments[SENT]
    ends = dict(zip(late, moments[2:], strict=True))
    merged = {(step + delay - 1) % num_steps + 1: number for number, step in enumerate(begun)}
    starts = {step: number for number, step in enumerate(begun)}
    before = 0
    for step in sorted({*merged, *starts, num_steps}):
        now, before = now + (step - before) * step_s, step
        if step in starts:
            seconds, taken_s = sums[starts[step]]
            sent = np.maximum(now + seconds, sent + taken_s)
            ends[starts[step]] = sent
        if step in merged:
            now = np.maximum(now, ends[merged[step]])
    return np.array([now, sent, *(ends[number] for number in late)])


def _cycle_mean(weight_NN: Floats) -> float:  # N moments
    """The greatest mean weight of a cycle (Karp 1978, A characterization of the minimum cycle mean in a digraph).

    >>> _cycle_mean(np.array([[1.0, 5.0], [3.0, -np.inf]]))
    4.0
    """
    num = len(weight_NN)
    walks = np.zeros((num + 1, num))
    for length in range(num):
        walks[length + 1] = (weight_NN + walks[length]).max(axis=1)
    with np.errstate(invalid="ignore"):
        means = (walks[num] - walks[:num]) / (num - np.arange(num))[:, None]
    return float(np.where(np.isnan(means), np.inf, means).min(axis=0).max())
