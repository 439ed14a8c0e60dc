"""The paper's own formulation: a graph convolution classifies machines to models, and layers follow.

Of Hulk (arXiv 2302.13741) only the abstract and the data were available; this is what they say, filled in with the
plainest choices: Kipf and Welling's convolution (arXiv 1609.02907) over pools of machines, whose edges weigh more the
shorter their latency is, two layers, and a class for each model by its size, the largest first:

    H1 = relu(A X W0 + X S0 + b0),  Z = A H1 W1 + H1 S1 + b1,  A = rows of exp(-latency / 20 ms), normalised

A pool goes to the class with the highest answer among the jobs there are. Where a job then has no layout, the pool for
which its answer is highest is taken from a job that keeps another one. It was trained on the best divisions that the
local search found in synthetic clusters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hulk_placement.cost.closed_form.arrays import Floats, Ints
from hulk_placement.gnn.graphs import LIMIT
from hulk_placement.gnn.weights import Single, packaged
from hulk_placement.split.division import Divisions, move, nothing, speed_by_pool
from hulk_placement.split.estimate import IMPOSSIBLE

MAX_JOBS = 6
"""Classes; more jobs than that take turns."""

LATENCY_S = 0.02
NUM_FIGURES = 6
WEIGHTS = "classify"

WITHOUT_LAYOUT = IMPOSSIBLE / 2
"""Values above are of jobs that have no layout."""


@dataclass(frozen=True)
class Classifier:
    """The weights by name."""

    weights: Mapping[str, Single]

    @classmethod
    def trained(cls) -> Classifier:
        """The one whose weights are part of the package."""
        return cls(packaged(WEIGHTS))

    def logits(self, figures_P6: Floats, joined_PP: Floats) -> Floats:
        """An answer for each pool and class, (P, MAX_JOBS)."""
        w = self.weights
        hidden = np.maximum(joined_PP @ figures_P6 @ w["near0"] + figures_P6 @ w["self0"] + w["bias0"], 0.0)
        return np.asarray(joined_PP @ hidden @ w["near1"] + hidden @ w["self1"] + w["bias1"])


def classes(divisions: Divisions) -> list[int]:
    """Jobs by the size of their model, the largest first."""
    sizes = [job.workload.model.num_parameters * job.workload.global_batch for job in divisions.jobs]
    return sorted(range(len(sizes)), key=lambda job: (-sizes[job], job))


def graph_of(divisions: Divisions) -> tuple[Floats, Floats]:
    """Figures of pools (P, 6) and how they are joined (P, P): latency only, as in the paper's data."""
    job, pools = divisions.jobs[0], divisions.pools
    setting = job.setting(job.space.options[0])
    region_P = job.ground.region_M
    memory_P = np.minimum(setting.memory_K[setting.kind_M[job.first_P]], 1e15)
    speed_P = speed_by_pool(job)
    latency_PP = setting.latency_RR[np.ix_(region_P, region_P)]
    joined_PP = np.exp(-(latency_PP + latency_PP.T) / 2 / LATENCY_S)
    share_P = speed_P * pools.total_P / (speed_P * pools.total_P).sum()
    figures = (
        np.log10(np.maximum(speed_P / speed_P.mean(), 1e-4)),
        np.log10(pools.total_P),
        np.log10(memory_P / 2**30),
        np.log10(np.maximum(share_P, 1e-4)),
        np.log10(np.maximum(latency_PP.mean(axis=1), 1e-4)),
        np.full(len(region_P), len(divisions.jobs) / MAX_JOBS),
    )
    return np.clip(np.stack(figures, axis=-1), -LIMIT, LIMIT), joined_PP / joined_PP.sum(axis=1, keepdims=True)


def classified(divisions: Divisions, classifier: Classifier) -> Ints:
    """The division by the classes, mended where a job has nothing or no layout."""
    pools, order, num_jobs = divisions.pools, classes(divisions), len(divisions.jobs)
    logits_PC = classifier.logits(*graph_of(divisions))
    answers_PJ = np.zeros((len(pools.total_P), num_jobs))
    for rank, job in enumerate(order):
        answers_PJ[:, job] = logits_PC[:, rank % MAX_JOBS] - rank // MAX_JOBS
    answers_PJ[pools.most_JP.T == 0] = -np.inf
    counts = nothing(pools, num_jobs)
    for pool in range(len(pools.total_P)):
        move(pools, counts, pool, -1, int(np.argmax(answers_PJ[pool])), int(pools.total_P[pool]))
    for job in order:
        _mend(divisions, counts, job, answers_PJ[:, job])
    return counts


def _mend(divisions: Divisions, counts: Ints, job: int, answers_P: Floats) -> None:
    """Take pools for a job until it has a layout: free ones, whole ones of jobs that have several, else halves."""
    pools, nobody = divisions.pools, len(counts) - 1
    for pool in np.argsort(-answers_P, kind="stable").tolist():
        if divisions.jobs[job].value(counts[job]) < WITHOUT_LAYOUT or not np.isfinite(answers_P[pool]):
            return
        for row in [nobody, *np.argsort(-counts[:-1, pool], kind="stable").tolist()]:
            quantum = int(pools.quantum_JP[job, pool])
            if row == job or counts[row, pool] < quantum:
                continue
            has_others = row == nobody or (counts[row] > 0).sum() > 1
            half = max(quantum, int(counts[row, pool]) // 2 // quantum * quantum)
            move(pools, counts, pool, row, job, int(counts[row, pool]) if has_others else half)
            break
