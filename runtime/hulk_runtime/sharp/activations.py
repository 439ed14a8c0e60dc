"""What goes from one unit of a trial to another: tensors that move, and autograd's graph between two passes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from hulk_runtime.sharp.device import Device
from hulk_runtime.sharp.rng_stream import Stream


@dataclass
class Moving:
    """A tensor that is on a device or at home; `load` and `unload` do nothing where it already is there."""

    tensor: torch.Tensor
    device: Device | None = None

    def load(self, device: Device) -> None:
        """To the device."""
        if self.device is None:
            self.tensor, self.device = device.load(self.tensor), device

    def unload(self) -> None:
        """To the host."""
        if self.device is not None:
            self.tensor, self.device = self.device.unload(self.tensor), None

    @property
    def num_bytes(self) -> int:
        """Of the tensor."""
        return self.tensor.numel() * self.tensor.element_size()


@dataclass
class Pass:
    """What is left of a forward pass for the backward pass."""

    kept: list[Moving] = field(default_factory=list)
    edge: GradientEdge | None = None
    to_input: list[torch.Tensor] = field(default_factory=list)
    again: Stream | None = None
    """The random numbers of a forward pass that is to be done again."""
    before: dict[int, Moving] = field(default_factory=dict)
    """Buffers that the forward pass has changed, by number, as they were; among `kept` too."""


class Entry(torch.autograd.Function):
    """Where a graph begins: catches the input's gradient without keeping the input."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, token: torch.Tensor, into: list[torch.Tensor]) -> torch.Tensor:
        ctx.into = into
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, None, None]:
        ctx.into.append(gradients[0])
        return None, None, None


def whole_storage(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """All of the memory that the tensor is a view of, as numbers of a type: a complex one may lie in a real one's."""
    storage = tensor.untyped_storage()
    flat = torch.empty(0, dtype=dtype, device=tensor.device)
    return flat.set_(storage, 0, (storage.nbytes() // dtype.itemsize,), (1,))


def without_rest(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor alone: a small view would keep all of the memory that it is a view of on the device."""
    num_bytes = tensor.numel() * tensor.element_size()
    return tensor.clone() if tensor.untyped_storage().nbytes() > num_bytes else tensor


def view_of(tensor: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """What makes the same view of a copy of the tensor's memory."""
    shape, stride, offset = tensor.size(), tensor.stride(), tensor.storage_offset()
    dtype, conjugated, negated = tensor.dtype, tensor.is_conj(), tensor.is_neg()

    def view(copy: torch.Tensor) -> torch.Tensor:
        found = whole_storage(copy, dtype).as_strided(shape, stride, offset)
        found = torch._neg_view(found) if negated else found
        return found.conj() if conjugated else found

    return view
