"""The bundled GPT for pipelines: as a list of layers, and as a function from a stage to its module.

    gpt = initialized(model)
    ranges = cut(num_layers(model), ["0", "1", "2", "3"])
    Pipeline(schedule, grid, layers(gpt_layers(gpt), ranges), ties(ranges))        a list of layers
    Pipeline(schedule, grid, gpt_stages(model, ranges), ties(ranges))              a function

Layer 0 is both embeddings, then the blocks, the last is the norm and the head. The head's table is that of the token
embedding: where a pipeline is cut between them there are two, which start alike and get the sum of both gradients.

Shape suffixes: B sequences, S positions, V vocabulary, H hidden.
"""

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

from hulk_runtime.examples.gpt_divided import divided_layer
from hulk_runtime.examples.gpt_model import Gpt, initialized
from hulk_runtime.pipeline.shared_parameters import Tie
from hulk_runtime.pipeline.stages import Layers, Part
from hulk_runtime.pipeline.stages import Model as StageMaker
from hulk_runtime.plan.wire import Model


class Front(nn.Module):
    """The embeddings of tokens and of positions."""

    def __init__(self, gpt: Gpt) -> None:
        super().__init__()
        self.token = gpt.token
        self.position = gpt.position

    def forward(self, tokens_BS: torch.Tensor) -> torch.Tensor:
        """Token numbers (B, S) to (B, S, H)."""
        found_BSH: torch.Tensor = self.token(tokens_BS) + self.position.weight[: tokens_BS.shape[1]]
        return found_BSH


class Back(nn.Module):
    """The last norm and the head, with a table of its own that starts as the token embedding's."""

    def __init__(self, gpt: Gpt) -> None:
        super().__init__()
        self.norm = gpt.norm
        self.weight = nn.Parameter(gpt.token.weight.detach().clone())

    def forward(self, x_BSH: torch.Tensor) -> torch.Tensor:
        """(B, S, H) to logits (B, S, V)."""
        return functional.linear(self.norm(x_BSH), self.weight)


def num_layers(model: Model) -> int:
    """Of the list: the blocks, what is before them and what is behind."""
    return model.layers + 2


def gpt_layers(gpt: Gpt) -> list[nn.Module]:
    """The list of layers."""
    return [Front(gpt), *gpt.blocks, Back(gpt)]


def ties(ranges: Mapping[str, range]) -> list[Tie]:
    """The token embedding is also the head's table."""
    last = max(numbers.stop for numbers in ranges.values()) - 1
    (front,) = (stage for stage, numbers in ranges.items() if 0 in numbers)
    (back,) = (stage for stage, numbers in ranges.items() if last in numbers)
    return [Tie(((front, "0.token.weight"), (back, f"{last}.weight")))]


def gpt_stages(model: Model, ranges: Mapping[str, range], dtype: torch.dtype = torch.float32) -> StageMaker:
    """The function from a stage to its module, with its part of every block where a node divides them."""

    def make(part: Part) -> nn.Module:
        of = gpt_layers(initialized(model).to(dtype))
        mesh = part.mesh
        if mesh is not None:
            of = [divided_layer(layer, mesh) for layer in of]
        return Layers(of, ranges[part.stage])

    return make
