"""One rank that trains lists of layers that are not as plain as others, and saves what came of each."""

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from hulk_runtime.errors import PlanError
from hulk_runtime.pipeline.executor import Pipeline
from hulk_runtime.pipeline.grid import Grid
from hulk_runtime.pipeline.micro_batches import Tensors
from hulk_runtime.pipeline.shared_parameters import Tie
from hulk_runtime.pipeline.stages import cut, layers
from hulk_runtime.plan import pipeline_schedule
from pipeline_cases import given, keep
from torch import nn

NUM_SAMPLES, HIDDEN = 8, 4


class InBfloat16(nn.Module):
    """A product of bfloat16 numbers, of which a norm has made float32 ones."""

    def __init__(self) -> None:
        super().__init__()
        self.product = nn.Linear(HIDDEN, HIDDEN).bfloat16()
        self.norm = nn.LayerNorm(HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(self.norm(x).bfloat16()).float()


def fixed_norm() -> nn.BatchNorm1d:
    """It no longer looks at the batch."""
    norm = nn.BatchNorm1d(HIDDEN)
    norm.running_mean = torch.full((HIDDEN,), 0.5)
    return norm.eval()


def model_of(kind: str) -> list[nn.Module]:
    torch.manual_seed(0)
    if kind == "types":
        return [InBfloat16(), InBfloat16()]
    if kind == "fixed":
        return [nn.Sequential(nn.Linear(HIDDEN, HIDDEN), fixed_norm()), nn.Linear(HIDDEN, HIDDEN)]
    first, *middle = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
    return [first, first, *middle] if kind == "twice" else [first, *middle, first]


def batch() -> Tensors:
    generator = torch.Generator().manual_seed(1)
    data, targets = (torch.randn(NUM_SAMPLES, HIDDEN, generator=generator) for _ in range(2))
    return Tensors(data, targets, nn.functional.mse_loss)


def noted_alone(pipeline, shares):
    """What all norms note of batches, before they look at the zeros that they get alone, and after that."""
    found = []
    for time in ("before", "after"):
        if time == "after":
            pipeline.alone(batch(), shares)
        found.append([b.clone() for module in pipeline.modules.values() for b in module.train().buffers()])
    return found


def train(case, made):
    schedule = pipeline_schedule.read(case["schedule"])
    stages = list(dict.fromkeys(block.stage for block in schedule.blocks))
    ties = [Tie((("0", f"0.{name}"), ("3", f"3.{name}"))) for name in ("weight", "bias")] if len(stages) == 4 else []
    num_shards = case.get("shards", 1)
    grid = Grid(2 // num_shards, 2, num_shards=num_shards)
    pipeline = Pipeline(schedule, grid, layers(made, cut(len(made), stages)), ties)
    shares, found = pipeline.even_shares(NUM_SAMPLES), {}
    if schedule.is_training:
        found["loss"] = pipeline.step(batch(), shares).loss
        found["gradients"] = {name: whole(parameter.grad).clone() for name, parameter in pipeline.named_parameters()}
        found["noted"] = noted_alone(pipeline, shares)
    for do in (pipeline.infer, pipeline.step)[not schedule.is_training :][:1]:
        try:
            do(batch(), shares)
        except PlanError as error:
            found["refused"] = str(error)
    pipeline.close()
    return found


def whole(values):
    return values.full_tensor() if hasattr(values, "full_tensor") else values


def main():
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo", timeout=timedelta(seconds=float(os.environ.get("SILENCE_S", "120"))))
    keep(folder, {name: train(case, model_of(case["kind"])) for name, case in given(folder).items()})


if __name__ == "__main__":
    main()
