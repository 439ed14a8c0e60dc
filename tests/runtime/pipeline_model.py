"""A small model of any schedule, in float64: what ranks run, and what one process runs beside them.

Shape suffixes: B samples, S positions, H hidden.
"""

import zlib
from collections.abc import Iterable, Mapping

import torch
from hulk_runtime.diloco.outer_step import Nesterov
from hulk_runtime.pipeline.dataflow import Flows
from hulk_runtime.pipeline.micro_batches import Tensors
from hulk_runtime.pipeline.sharding import ShardedEmbedding, copied, summed
from hulk_runtime.pipeline.stages import Model, Part
from hulk_runtime.plan.pipeline_schedule import Schedule
from torch import nn

NUM_TOKENS = 11
LENGTH = 3
HIDDEN = 6
WIDE = 8
NUM_STEPS = 3
RATE = 0.1


class Stage(nn.Module):
    """Two layers with a residual; the first stage has the embedding."""

    def __init__(self, is_first: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(NUM_TOKENS, HIDDEN) if is_first else None
        self.norm = nn.LayerNorm(HIDDEN)
        self.wide = nn.Linear(HIDDEN, WIDE)
        self.narrow = nn.Linear(WIDE, HIDDEN)

    def forward(self, x_BSH: torch.Tensor) -> torch.Tensor:
        if self.embedding is not None:
            x_BSH = self.embedding(x_BSH)
        return x_BSH + self.narrow(torch.tanh(self.wide(self.norm(x_BSH))))


class Join(nn.Module):
    """The sum of its inputs through two layers, of which each shard has some hidden values."""

    def __init__(self, part: Part, wide_WH: torch.Tensor, narrow_HW: torch.Tensor) -> None:
        super().__init__()
        own = slice(*(WIDE * n // part.num_shards for n in (part.shard, part.shard + 1)))
        self.wide = nn.Parameter(wide_WH[own].clone())
        self.narrow = nn.Parameter(narrow_HW[:, own].clone())
        self._group = part.group

    def forward(self, *x_BSH: torch.Tensor) -> torch.Tensor:
        joined_BSH = sum(x_BSH)
        inner = torch.tanh(copied(joined_BSH, self._group) @ self.wide.T)
        return joined_BSH + summed(inner @ self.narrow.T, self._group)


def model_of(schedule: Schedule) -> Model:
    """The same parameters for the same stage wherever it is made."""
    flows = Flows(schedule)
    first = {block.stage for n, block in enumerate(schedule.blocks) if not flows.producers[n]}

    def make(part: Part) -> nn.Module:
        torch.manual_seed(zlib.crc32(part.stage.encode()))
        if not part.stage.startswith("all"):
            return Stage(part.stage in first).double()
        if part.stage in first:
            table_VH = torch.randn(NUM_TOKENS, HIDDEN, dtype=torch.float64)
            return ShardedEmbedding(table_VH, part.shard, part.num_shards, part.group)
        wide_WH = torch.randn(WIDE, HIDDEN, dtype=torch.float64) / 3
        return Join(part, wide_WH, torch.randn(HIDDEN, WIDE, dtype=torch.float64) / 3)

    return make


def batch(step: int, num_samples: int) -> Tensors:
    """Of a step."""
    generator = torch.Generator().manual_seed(step)
    tokens_BS = torch.randint(NUM_TOKENS, (num_samples, LENGTH), generator=generator)
    targets_BSH = torch.randn(num_samples, LENGTH, HIDDEN, generator=generator, dtype=torch.float64)
    return Tensors(tokens_BS, targets_BSH, nn.functional.mse_loss)


class Momentum:
    """Nesterov's, of every parameter; torch.optim would import the compiler, which takes seconds."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._parameters = [(parameter, Nesterov(parameter, 0.9)) for parameter in parameters]

    @property
    def velocities(self) -> list[torch.Tensor]:
        return [optimizer.states[0] for _, optimizer in self._parameters]

    @torch.no_grad()
    def step(self) -> None:
        for parameter, optimizer in self._parameters:
            optimizer.update(parameter, parameter.grad, 0, RATE)


class OneProcess:
    """The whole model: the blocks of one pass, one after the other, on the whole batch."""

    def __init__(self, schedule: Schedule) -> None:
        self._flows = Flows(schedule)
        self._model = model_of(schedule)
        stages = {schedule.blocks[n].stage for n in self._flows.components[0]}
        self.modules = {stage: self._model(Part(stage)) for stage in stages}

    def forward(self, of: Tensors) -> torch.Tensor:
        blocks = self._flows.schedule.blocks
        outputs: dict[int, torch.Tensor] = {}
        while len(outputs) < len(self._flows.components[0]):
            for n in self._flows.components[0]:
                if n not in outputs and outputs.keys() >= set(self._flows.producers[n]):
                    values = [outputs[p] for p in self._flows.producers[n]] or [of.data]
                    outputs[n] = self.modules[blocks[n].stage](*values)
        (last,) = (n for n in outputs if not self._flows.consumers[n])
        return outputs[last]

    def train(self, num_samples: int) -> tuple[list[float], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Losses, the last step's gradients, and parameters after it."""
        optimizer = Momentum([p for m in self.modules.values() for p in m.parameters()])
        losses = []
        for step in range(NUM_STEPS):
            for module in self.modules.values():
                module.zero_grad()
            of = batch(step, num_samples)
            loss = of.mean_loss(self.forward(of), of.targets)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return losses, named(self.modules, gradients=True), named(self.modules, gradients=False)


def named(modules: Mapping[str, nn.Module], gradients: bool) -> dict[str, torch.Tensor]:
    """Parameters, or their gradients, by stage and name."""
    return {
        f"{stage}/{name}": (parameter.grad if gradients else parameter).detach().clone()
        for stage, module in modules.items()
        for name, parameter in module.named_parameters()
    }
