"""Small models for SHARP's tests, and a plain training loop beside it."""

import time
from functools import partial
from pathlib import Path

import torch
from hulk_runtime.sharp import Model, Trial
from torch import nn
from torch.nn import functional

VOCABULARY = 50


class Block(nn.Module):
    """A feed-forward block with dropout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.expand, self.contract = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(self.contract(functional.gelu(self.expand(self.norm(x)))))


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randint(VOCABULARY, (4, 8), generator=generator), torch.randint(VOCABULARY, (32,), generator=generator)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def blocks(width: int, depth: int, optimizer=adamw) -> Model:
    """An embedding, blocks, a batch norm (buffers that a forward pass changes) and a head."""
    head = nn.Sequential(nn.Flatten(0, 1), nn.BatchNorm1d(width), nn.Linear(width, VOCABULARY))
    layers = [nn.Embedding(VOCABULARY, width), *[Block(width) for _ in range(depth)], head]
    return Model(layers, functional.cross_entropy, optimizer, batch)


def trial(name: str, width: int, depth: int, steps: int, optimizer=adamw) -> Trial:
    return Trial(name, partial(blocks, width, depth, optimizer), steps, seed=width + depth)


def alone(trial: Trial, *, begin: int = 0) -> tuple[tuple[float, ...], dict[str, torch.Tensor]]:
    """Losses and the state dict of an ordinary loop over the whole model."""
    torch.manual_seed(trial.seed)
    model = trial.make()
    whole = nn.Sequential(*model.layers)
    optimizer = model.optimizer(whole.parameters())
    losses = []
    for step in range(1, trial.num_steps + 1):
        inputs, targets = model.batches(step)
        optimizer.zero_grad()
        loss = model.loss(whole(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return tuple(losses[begin:]), whole.state_dict()


def failing(at_step: int, how: str) -> Model:
    """A model whose loss is no number in a step, or whose batches raise there."""
    good = blocks(16, 2)

    def batches(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        if step == at_step and how == "raises":
            raise OSError("the data are gone")
        inputs, targets = batch(step)
        return inputs, targets - (10**6 if step == at_step else 0)

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        value = functional.cross_entropy(outputs, targets % VOCABULARY)
        return value / (targets.min() >= 0)

    return Model(good.layers, loss if how == "diverges" else good.loss, good.optimizer, batches)


def slow(path: str) -> Model:
    """A model that takes ten minutes to be made; the file says that it is under way."""
    Path(path).touch()
    time.sleep(600)
    return blocks(16, 2)
