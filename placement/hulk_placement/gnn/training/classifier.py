"""The classifier of the paper's formulation in PyTorch Geometric, trained on the best divisions that searches found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.nn import DenseGraphConv

from hulk_placement.cost.closed_form.arrays import Floats, Ints
from hulk_placement.gnn.classify import MAX_JOBS, NUM_FIGURES, classes, graph_of
from hulk_placement.split.division import Divisions

WIDTH = 32
EPOCHS = 40
LEARNING_RATE = 5e-3
HELD_OUT = 10
"""Of so many examples one is not trained on."""


@dataclass(frozen=True, slots=True)
class Example:
    """One problem: its graph, the class of each pool (-1: none's), its weight (accelerators)."""

    figures_P6: Floats
    joined_PP: Floats
    class_P: Ints
    weight_P: Floats


class Convolution(torch.nn.Module):
    """Two graph convolutions; see `gnn.classify`."""

    def __init__(self) -> None:
        super().__init__()
        self.first = DenseGraphConv(NUM_FIGURES, WIDTH)
        self.second = DenseGraphConv(WIDTH, MAX_JOBS)

    def forward(self, figures: torch.Tensor, joined: torch.Tensor) -> torch.Tensor:
        answers: torch.Tensor = self.second(torch.relu(self.first(figures[None], joined[None])), joined[None])[0]
        return answers

    def exported(self) -> dict[str, NDArray[np.float32]]:
        """The weights by the names that `gnn.classify` knows."""
        found = {}
        for k, layer in enumerate((self.first, self.second)):
            found[f"near{k}"] = layer.lin_rel.weight.detach().numpy().T.copy()
            found[f"self{k}"] = layer.lin_root.weight.detach().numpy().T.copy()
            found[f"bias{k}"] = layer.lin_rel.bias.detach().numpy().copy()
        return found


def example_of(divisions: Divisions) -> Example:
    """The best division found as classes: of each pool the job that has most of it."""
    counts = divisions.best()[0]
    rank = {job: number for number, job in enumerate(classes(divisions))}
    owner_P = counts.argmax(axis=0)
    class_P = np.array([rank.get(int(job), -1) for job in owner_P])
    figures, joined = graph_of(divisions)
    return Example(figures, joined, np.where(class_P < MAX_JOBS, class_P, -1), divisions.pools.total_P.astype(float))


def classifier_of(examples: Sequence[Example], seed: int) -> tuple[Convolution, float]:
    """A trained classifier, and the share of the accelerators of held-out examples whose class it says."""
    torch.manual_seed(seed)
    network = Convolution()
    held_out = examples[::HELD_OUT]
    trained = [e for number, e in enumerate(examples) if number % HELD_OUT and (e.class_P >= 0).any()]
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE)
    for _ in range(EPOCHS):
        for example in trained:
            wanted = torch.tensor(example.class_P)
            loss = torch.nn.functional.cross_entropy(_answers(network, example), wanted, ignore_index=-1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    right = [(_answers(network, e).argmax(dim=1).numpy() == e.class_P) @ e.weight_P for e in held_out]
    return network, round(float(sum(right) / sum(e.weight_P.sum() for e in held_out)), 4)


def _answers(network: Convolution, example: Example) -> torch.Tensor:
    answers: torch.Tensor = network(
        torch.tensor(example.figures_P6, dtype=torch.float32), torch.tensor(example.joined_PP, dtype=torch.float32)
    )
    return answers
