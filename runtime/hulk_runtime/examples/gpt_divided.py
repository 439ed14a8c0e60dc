"""The bundled GPT for replicas of several ranks: its blocks divided among tensor ranks, and gathered one by one.

Tensor ranks have parts of every block's matrices (Shoeybi et al., arXiv 1909.08053), through torch.distributed.tensor:
heads and inner values of the MLP are divided, embeddings and norms are whole on all.

Shape suffixes: B sequences, S positions, H hidden.
"""

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from hulk_runtime.errors import ConfigurationError
from hulk_runtime.examples.gpt_model import Block, Gpt
from hulk_runtime.training.sharded_model import DividedModel

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def divided(gpt: Gpt, mesh: "DeviceMesh | None") -> DividedModel:
    """Both embeddings and the last norm, of which tensor ranks have all, are in no layer: the head needs a table."""
    whole = {name: parts_of(name) if mesh else (name,) for name, _ in gpt.named_parameters()}
    if mesh is not None:
        for number, block in enumerate(gpt.blocks):
            gpt.blocks[number] = divided_layer(block, mesh)
    return DividedModel(gpt, list(gpt.blocks), whole)


def divided_layer(layer: nn.Module, mesh: "DeviceMesh") -> nn.Module:
    """What a tensor rank has of a layer; all of what is no block."""
    return DividedBlock(layer, mesh) if isinstance(layer, Block) else layer


def parts_of(name: str) -> tuple[str, ...]:
    """The parameters that one of the undivided model is: each rank has whole heads of each of attention's matrices.

    >>> parts_of("blocks.0.qkv.bias"), parts_of("norm.weight")
    (('blocks.0.q.bias', 'blocks.0.k.bias', 'blocks.0.v.bias'), ('norm.weight',))
    """
    return tuple(name.replace(".qkv.", f".{part}.") for part in "qkv") if ".qkv." in name else (name,)


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
