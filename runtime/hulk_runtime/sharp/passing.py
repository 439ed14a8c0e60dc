"""What goes from one unit of a trial to another: tensors that move, and autograd's graph between two passes."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from hulk_runtime.sharp.device import Device
from hulk_runtime.sharp.randomness import Stream


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


def whole_storage(tensor: torch.Tensor) -> torch.Tensor:
    """All of the memory that the tensor is a view of."""
    storage = tensor.untyped_storage()
    flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return flat.set_(storage, 0, (storage.nbytes() // tensor.element_size(),), (1,))
