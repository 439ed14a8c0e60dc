"""Small models for sweeps in tests: functions of their parameters that a worker imports."""

import math

import torch
from hulk_runtime.sharp import Model
from torch import nn


def make(width: int = 8, rate: float = 0.1, diverges: bool = False) -> Model:
    """Fits a random linear map; with `diverges` the loss is no number from the third mini-batch on."""

    def batches(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(step)
        inputs = torch.randn(4, 8, generator=generator)
        return inputs * (math.nan if diverges and step > 2 else 1.0), inputs.sum(1, keepdim=True)

    return Model(
        layers=[nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1)],
        loss=nn.functional.mse_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=rate),
        batches=batches,
    )
