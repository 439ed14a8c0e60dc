"""The bundled GPT for replicas of several ranks: its blocks divided among tensor ranks, and gathered one by one."""

from typing import TYPE_CHECKING

from torch import nn

from hulk_runtime.examples.gpt_model import Block, Gpt
from hulk_runtime.examples.gpt_stages import DividedBlock
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
