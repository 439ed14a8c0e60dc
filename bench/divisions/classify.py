"""The paper's own formulation: a graph convolution classifies machines to models, and layers follow.

Of Hulk (arXiv 2302.13741) only the abstract and the data were available; this is what they say, filled in with the
plainest choices: Kipf and Welling's convolution (arXiv 1609.02907) over blocks of machines that are alike, whose edges
weigh more the shorter their latency is. What it says of a block and a job follows from figures of both (`blocks`):

    H1 = relu(A X W0 + X S0 + b0)    H2 = relu(A H1 W1 + H1 S1 + b1)    answers = A H2 W2 + H2 S2 + b2

    X: (blocks, figures) of a job    A: rows of share of the speed * exp(-latency / 20 ms), normalised

All answers of a job are shifted so that, by the softmax over jobs, each job gets as much of the speed; a block goes to
the job with the highest. Where a job then has no layout, it takes the pools for which its answer is highest from jobs
that keep others. It was trained on divisions that a search found in synthetic clusters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hulk_placement.cost.closed_form.arrays import Floats, Ints
from hulk_placement.gnn.weights import Single, read
from hulk_placement.split.division import Divisions, move, nothing
from hulk_placement.split.estimate import IMPOSSIBLE

from bench.divisions.blocks import LEAST, Graph, by_size, graph_of

NUM_LAYERS = 3
NUM_SHIFTS = 50
"""After which shares of the speed no longer change."""

WEIGHTS = "classify"

WITHOUT_LAYOUT = IMPOSSIBLE / 2
"""Values above are of jobs that have no layout."""


@dataclass(frozen=True)
class Classifier:
    """The weights by name."""

    weights: Mapping[str, Single]

    @classmethod
    def trained(cls) -> Classifier:
        """The one whose weights are beside this file."""
        return cls(read(Path(__file__).with_name(f"{WEIGHTS}.npz"))[0])

    def answers(self, graph: Graph) -> Floats:
        """How well each block suits each job, (J, N)."""
        w, hidden = self.weights, graph.figures_JNF
        for k in range(NUM_LAYERS):
            hidden = np.maximum(hidden, 0.0) if k else hidden
            hidden = graph.joined_NN @ hidden @ w[f"near{k}"] + hidden @ w[f"self{k}"] + w[f"bias{k}"]
        return np.asarray(hidden[..., 0])


def balanced(answers_JN: Floats, share_N: Floats) -> Floats:
    """Answers shifted by a number for each job, after which the softmax over jobs gives all jobs equal shares."""
    for _ in range(NUM_SHIFTS):
        part_JN = np.exp(answers_JN - answers_JN.max(axis=0))
        share_J = part_JN / part_JN.sum(axis=0) @ share_N
        answers_JN = answers_JN - np.log(np.maximum(len(share_J) * share_J, LEAST))[:, None]
    return answers_JN


def classified(divisions: Divisions, classifier: Classifier) -> Ints:
    """The division by the classes, mended where a job has nothing or no layout."""
    pools, order, graph = divisions.pools, by_size(divisions), graph_of(divisions)
    answers_JN = np.empty((len(order), len(graph.pool_N)))
    answers_JN[order] = balanced(classifier.answers(graph), graph.share_N)
    answers_JN[pools.most_JP[:, graph.pool_N] == 0] = -np.inf
    counts = nothing(pools, len(order))
    answers_JP = np.full(pools.most_JP.shape, -np.inf)
    for pool, num, answers_J in zip(graph.pool_N.tolist(), graph.num_N.tolist(), answers_JN.T, strict=True):
        move(pools, counts, pool, -1, int(answers_J.argmax()), num)
        answers_JP[:, pool] = np.maximum(answers_JP[:, pool], answers_J)
    for job in pools.largest_first(order):
        _mend(divisions, counts, job, answers_JP[job])
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
