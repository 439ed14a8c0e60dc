"""Models as lists of layers, and what is given to them: text with its successors, or two branches' inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from hulk_runtime.examples.gpt_model import initialized
from hulk_runtime.pipeline.micro_batches import Values
from hulk_runtime.pipeline.stages import Layers, Part
from hulk_runtime.pipeline.stages import Model as StageMaker
from hulk_runtime.plan.wire import Model
from torch import nn

from bench.shapes.accelerator import Accelerator
from bench.shapes.model import At, Front, Head, Join, divided_blocks
from bench.shapes.ways import Ranges

LayersOf = Callable[[Part], list[nn.Module]]


def gpt_layers(model: Model, accelerator: Accelerator) -> LayersOf:
    """The embeddings, the blocks, the head."""

    def make(part: Part) -> list[nn.Module]:
        gpt = initialized(model)
        blocks = divided_blocks(gpt, model, part, accelerator)
        return [Front(gpt, part), *blocks, Head(gpt, model, part, accelerator)]

    return make


def tower_layers(model: Model, num_tower: int, accelerator: Accelerator, one_by_one: bool) -> LayersOf:
    """Two towers of so many blocks, with embeddings, one after the other, and the rest of the blocks for their sum.

    `one_by_one`: a stage hands on the values of both, since it may have layers of either.
    """

    def make(part: Part) -> list[nn.Module]:
        gpt = initialized(model)
        blocks = divided_blocks(gpt, model, part, accelerator)
        towers = [[Front(gpt, part), *blocks[:num_tower]], [Front(gpt, part), *blocks[num_tower : 2 * num_tower]]]
        first, second = ([At(n if one_by_one else 0, layer) for layer in tower] for n, tower in enumerate(towers))
        return [*first, *second, Join(), *blocks[2 * num_tower :]]

    return make


def stages_of(layers_of: LayersOf, ranges: Ranges) -> StageMaker:
    """The function from a stage to its module."""
    return lambda part: Layers(layers_of(part), ranges[part.stage])


def tokens(model: Model, num_samples: int, seed: int) -> torch.Tensor:
    """Drawn; one more position than a sample has."""
    shape = (num_samples, model.sequence_length + 1)
    return torch.randint(model.vocabulary, shape, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True, slots=True)
class Text:
    """Every token's target is the next one. `modules`: of the stages, of which one may have the head."""

    tokens: torch.Tensor
    modules: Mapping[str, nn.Module]

    def inputs(self, stage: str, samples: range) -> Values:
        """All but the last position."""
        return (self.tokens[samples.start : samples.stop, :-1],)

    def loss(self, stage: str, outputs: Values, samples: range) -> torch.Tensor:
        """Of the head."""
        (head,) = (module for module in self.modules[stage].modules() if isinstance(module, Head))
        return head.loss(outputs[0], self.tokens[samples.start : samples.stop, 1:])


@dataclass(frozen=True, slots=True)
class Pairs:
    """What each branch gets; `branches` are the stages with which they begin, where that is not one stage."""

    tokens: tuple[torch.Tensor, torch.Tensor]
    branches: tuple[str, ...]

    def inputs(self, stage: str, samples: range) -> Values:
        """A stage's, of both branches or of its own."""
        values = tuple(each[samples.start : samples.stop, :-1] for each in self.tokens)
        return (values[self.branches.index(stage)],) if self.branches else values

    def loss(self, stage: str, outputs: Values, samples: range) -> torch.Tensor:
        """There is none."""
        raise ValueError(f"stage {stage}: inference has no loss")
