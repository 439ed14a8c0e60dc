"""The classifier of the paper's formulation in PyTorch Geometric, trained on divisions that a search led to.

Of the many divisions that are as good, those are learned that changes of equal pieces lead to: pieces along the walk
and jobs in the order that the classifier sees them in, so that what it sees says which of the divisions is meant.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from hulk_placement.cost.closed_form.arrays import Floats
from hulk_placement.split import local
from hulk_placement.split.division import Divisions
from numpy.typing import NDArray
from torch_geometric.nn import DenseGraphConv

from bench.divisions.blocks import NUM_FIGURES, Graph, equal_pieces, graph_of, parts_of
from bench.divisions.classify import NUM_LAYERS, WITHOUT_LAYOUT, balanced
from bench.gnn.training import samples

WIDTH = 32
EPOCHS = 20
LEARNING_RATE = 5e-3
WARM_UP = 0.1
HELD_OUT = 10
"""Of so many examples one is not trained on."""


@dataclass(frozen=True, slots=True)
class Example:
    """One problem: its graph, and the part of each block that each job has in a good division, (J, N)."""

    graph: Graph
    part_JN: Floats

    def right(self, answers_JN: Floats) -> float:
        """Accelerators that belong to the job that these answers give them to."""
        job_N = balanced(answers_JN, self.graph.share_N).argmax(axis=0)
        chosen = np.take_along_axis(self.part_JN, job_N[None], axis=0)[0]
        return float(chosen @ self.graph.num_N)

    @property
    def total(self) -> float:
        """Accelerators of all jobs."""
        return float((self.part_JN @ self.graph.num_N).sum())


@dataclass(frozen=True, slots=True)
class Share:
    """Parts of the accelerators of held-out examples of which the class is right."""

    share_right: float
    share_of_one_class: float
    """Where always the same class is said, the one that is right most often."""
    num_trained: int
    num_held_out: int


class Convolution(torch.nn.Module):
    """Graph convolutions over the blocks of a problem, by themselves for each job; see `gnn.classify`."""

    def __init__(self) -> None:
        super().__init__()
        widths = [NUM_FIGURES, *[WIDTH] * (NUM_LAYERS - 1), 1]
        self.layers = torch.nn.ModuleList(DenseGraphConv(*widths[k : k + 2]) for k in range(NUM_LAYERS))

    def forward(self, figures: torch.Tensor, joined: torch.Tensor) -> torch.Tensor:
        hidden, joined = figures, joined.expand(len(figures), -1, -1)
        for k, layer in enumerate(self.layers):
            hidden = layer(torch.relu(hidden) if k else hidden, joined)
        return hidden[..., 0]

    def exported(self) -> dict[str, NDArray[np.float32]]:
        """The weights by the names that `gnn.classify` knows."""
        found, state = {}, {name: array.numpy().copy() for name, array in self.state_dict().items()}
        for k in range(NUM_LAYERS):
            found[f"near{k}"] = state[f"layers.{k}.lin_rel.weight"].T
            found[f"self{k}"] = state[f"layers.{k}.lin_root.weight"].T
            found[f"bias{k}"] = state[f"layers.{k}.lin_rel.bias"]
        return found


def example_of(divisions: Divisions, seed: int) -> Example | None:
    """A problem, and where a search from equal pieces on leads; None where a job has no layout there."""
    begun = divisions.num_divisions, divisions.num_evaluations

    def progress() -> float:
        return max(divisions.num_divisions - begun[0], divisions.num_evaluations - begun[1]) / samples.SEARCHED

    counts = local.anneal(divisions, [equal_pieces(divisions)], progress, random.Random(seed))
    if divisions.values(counts).max() > WITHOUT_LAYOUT:
        return None
    graph = graph_of(divisions)
    return Example(graph, parts_of(divisions, graph, counts))


def classifier_of(examples: Sequence[Example], seed: int) -> tuple[Convolution, Share]:
    """A trained classifier, and how often it is right about held-out examples."""
    torch.manual_seed(seed)
    rng, network = np.random.default_rng(seed), Convolution()
    held_out, trained = examples[::HELD_OUT], [e for k, e in enumerate(examples) if k % HELD_OUT]
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=EPOCHS * len(trained), pct_start=WARM_UP, anneal_strategy="linear"
    )
    for _ in range(EPOCHS):
        for number in rng.permutation(len(trained)).tolist():
            loss = _loss(network, trained[number])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            cycle.step()
    return network, _share(network, held_out, len(trained))


def _answers(network: Convolution, graph: Graph) -> torch.Tensor:
    answers: torch.Tensor = network(*(torch.tensor(array, dtype=torch.float32) for array in graph[:2]))
    return answers


def _loss(network: Convolution, example: Example) -> torch.Tensor:
    """Cross entropy of the jobs, each block by its part of the speed."""
    log_JN = torch.log_softmax(_answers(network, example.graph), dim=0)
    weight_JN = example.part_JN * example.graph.share_N
    return -(log_JN * torch.tensor(weight_JN, dtype=torch.float32)).sum()


def _share(network: Convolution, held_out: Sequence[Example], num_trained: int) -> Share:
    total = sum(example.total for example in held_out)
    with torch.no_grad():
        right = sum(example.right(_answers(network, example.graph).numpy()) for example in held_out)
    num_classes = max(len(example.part_JN) for example in held_out)
    by_class = np.zeros(num_classes)
    for example in held_out:
        by_class[: len(example.part_JN)] += example.part_JN @ example.graph.num_N
    return Share(round(right / total, 4), round(float(by_class.max() / total), 4), num_trained, len(held_out))
