"""The bundled GPT for pipelines: as a list of layers, and as a function from a stage to its module.

    gpt = initialized(model)
    ranges = cut(num_layers(model), ["0", "1", "2", "3"])
    Pipeline(schedule, grid, layers(gpt_layers(gpt), ranges), ties(ranges))        a list of layers
    Pipeline(schedule, grid, gpt_stages(model, ranges), ties(ranges))              a function

Layer 0 is both embeddings, then the blocks, the last is the norm and the head. The head's table is that of the token
embedding: where a pipeline is cut between them there are two, which start alike and get the sum of both gradients.

Inside a node several ranks may have parts of every block's matrices (Shoeybi et al., arXiv 1909.08053), through
torch.distributed.tensor: heads and inner values of the MLP are divided, embeddings and norms are whole on all.

Shape suffixes: B sequences, S positions, V vocabulary, H hidden.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from hulk_runtime.errors import ConfigurationError
from hulk_runtime.examples.gpt_model import Block, Gpt, initialized
from hulk_runtime.pipeline.shared_parameters import Tie
from hulk_runtime.pipeline.stages import Layers, Part
from hulk_runtime.pipeline.stages import Model as StageMaker
from hulk_runtime.plan.wire import Model

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


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
            of = [DividedBlock(layer, mesh) if isinstance(layer, Block) else layer for layer in of]
        return Layers(of, ranges[part.stage])

    return make


def saved_apart(name: str, values: torch.Tensor) -> Mapping[str, torch.Tensor]:
    """The names of `DividedBlock`, so that a checkpoint is the same whether blocks are divided or not."""
    if ".qkv." not in name:
        return {name: values}
    return {name.replace(".qkv.", f".{part}."): rows for part, rows in zip("qkv", values.chunk(3), strict=True)}


class DividedBlock(nn.Module):
    """A block of which every rank of a mesh computes some heads and some inner values of the MLP."""

    def __init__(self, block: Block, mesh: "DeviceMesh") -> None:
        super().__init__()
        num_parts, wide = mesh.size(), block.expand.out_features
        if block.num_heads % num_parts or wide % num_parts:
            raise ConfigurationError(f"{block.num_heads} heads and {wide} inner values for tensor degree {num_parts}")
        self.num_heads = block.num_heads // num_parts
        self.norm_attention, self.norm_mlp = block.norm_attention, block.norm_mlp
        self.q, self.k, self.v = _rows_apart(block.qkv)
        self.attended, self.expand, self.contract = block.attended, block.expand, block.contract
        _divide(self, mesh)

    def forward(self, x_BSH: torch.Tensor) -> torch.Tensor:
        """(B, S, H) to (B, S, H), whole on all ranks."""
        x_BSH = x_BSH + self.attended(self._attend(self.norm_attention(x_BSH)))
        inner: torch.Tensor = self.contract(functional.gelu(self.expand(self.norm_mlp(x_BSH))))
        return x_BSH + inner

    def _attend(self, x_BSH: torch.Tensor) -> torch.Tensor:
        b, s, _ = x_BSH.shape
        q, k, v = (part(x_BSH).view(b, s, self.num_heads, -1).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed: torch.Tensor = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(b, s, -1)


def _rows_apart(qkv: nn.Linear) -> list[nn.Linear]:
    """Three layers of the rows of one: heads can be divided only where each of the three is."""
    found = []
    for weight_HH, bias_H in zip(qkv.weight.detach().chunk(3), qkv.bias.detach().chunk(3), strict=True):
        layer = nn.Linear(len(bias_H), len(bias_H), device="meta")
        layer.weight, layer.bias = nn.Parameter(weight_HH.clone()), nn.Parameter(bias_H.clone())
        found.append(layer)
    return found


def _divide(block: DividedBlock, mesh: "DeviceMesh") -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

    to_parts, from_parts = ("q", "k", "v", "expand"), ("attended", "contract")
    plan: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in to_parts}
    plan.update({name: RowwiseParallel() for name in from_parts})
    parallelize_module(block, mesh, plan)
