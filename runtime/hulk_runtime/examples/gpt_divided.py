"""The bundled GPT for replicas of several ranks: its blocks divided among tensor ranks, and gathered one by one."""

from typing import TYPE_CHECKING

from hulk_runtime.examples.gpt_model import Gpt
from hulk_runtime.examples.gpt_stages import DividedBlock
from hulk_runtime.training.sharded_model import DividedModel

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def divided(gpt: Gpt, mesh: "DeviceMesh | None") -> DividedModel:
    """Both embeddings and the last norm, which tensor ranks all have, are in no layer: the head needs a table of them.

    The three matrices of attention that one is of the undivided model are three here: each rank has whole heads.
    """
    whole = {name: _parts(name) if mesh else (name,) for name, _ in gpt.named_parameters()}
    if mesh is not None:
        for number, block in enumerate(gpt.blocks):
            gpt.blocks[number] = DividedBlock(block, mesh)  # type: ignore[arg-type]  # of Gpt's own blocks
    return DividedModel(gpt, list(gpt.blocks), whole)


def _parts(name: str) -> tuple[str, ...]:
    """The parameters that one of the undivided model is.

    >>> _parts("blocks.0.qkv.bias"), _parts("norm.weight")
    (('blocks.0.q.bias', 'blocks.0.k.bias', 'blocks.0.v.bias'), ('norm.weight',))
    """
    return tuple(name.replace(".qkv.", f".{part}.") for part in "qkv") if ".qkv." in name else (name,)
