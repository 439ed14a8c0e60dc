"""Samples -> weights: Huber loss on log10(step / ideal), AdamW, one cycle of the learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from hulk_placement.cost.closed_form.arrays import Floats

from bench.gnn.training.model import Value, batch_of
from bench.gnn.training.samples import Sample, padded

BATCH = 256
LEARNING_RATE, WEIGHT_DECAY = 4e-3, 1e-4
WARM_UP = 0.1
"""Part of all steps while the rate rises; then it falls to 0."""

HUBER = 0.1


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of log10 on samples of problems that were not trained on; `spread`: of their own mean."""

    rmse: float
    spread: float
    num_trained: int
    num_held_out: int


def fit(trained: Sequence[Sample], held_out: Sequence[Sample], seed: int, num_steps: int) -> tuple[Value, Score]:
    """A network trained for so many batches, and how far it is off."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    network = Value()
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    batches = max(1, len(trained) // BATCH)
    for step in range(num_steps):
        if step % batches == 0:
            order = rng.permutation(len(trained))
        _set_rate(optimizer, step / num_steps)
        chosen = order[step % batches * BATCH :][:BATCH]
        answers, ratios = _answers(network, [trained[k] for k in chosen])
        loss = torch.nn.functional.huber_loss(answers, torch.tensor(ratios, dtype=torch.float32), delta=HUBER)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    return network, _score(network, held_out, len(trained))


def _set_rate(optimizer: torch.optim.Optimizer, done: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = LEARNING_RATE * min((done + 0.001) / WARM_UP, (1.0 - done) / (1.0 - WARM_UP))


def _answers(network: Value, samples: Sequence[Sample]) -> tuple[torch.Tensor, Floats]:
    graphs, ratios = padded(samples)
    return network(batch_of(graphs, np.arange(len(ratios)))), ratios


def _score(network: Value, held_out: Sequence[Sample], num_trained: int) -> Score:
    errors, ratios = [], np.array([sample.ratio for sample in held_out])
    with torch.no_grad():
        for first in range(0, len(held_out), BATCH):
            answers, wanted = _answers(network, held_out[first : first + BATCH])
            errors.append(answers.numpy() - wanted)
    return Score(
        rmse=round(float(np.sqrt(np.mean(np.concatenate(errors) ** 2))), 4),
        spread=round(float(np.std(ratios)), 4),
        num_trained=num_trained,
        num_held_out=len(held_out),
    )
