"""The vector of one all-reduce: sums in float32, whatever it is made of.

A float32 vector is summed in place. Of a 16-bit one the sums are made beside it, and rounded once for each rank that
they leave for and once at the end. So every rank gets the same bits: the ones that were made where the sum ended.
"""

from collections.abc import Sequence
from typing import Final

import torch

from hulk_runtime.collective.reduction import memory

DTYPES: Final = (torch.float32, torch.bfloat16, torch.float16)
"""A type's number is its place."""


class Values:
    """A contiguous one-dimensional tensor on the CPU. Raises ValueError for any other."""

    def __init__(self, tensor: torch.Tensor) -> None:
        if tensor.dtype not in DTYPES:
            raise ValueError(f"all_reduce of {tensor.dtype}: float32, bfloat16 and float16 are summed")
        if tensor.dim() != 1 or not tensor.is_contiguous() or tensor.device.type != "cpu":
            raise ValueError(
                f"all_reduce of a tensor of shape {tuple(tensor.shape)}, strides {tensor.stride()}, on "
                f"{tensor.device}: it must be contiguous, of one dimension, on the CPU"
            )
        self.tensor = tensor.detach()
        self._bytes = memory.view(self.tensor)
        self._sums: tuple[int, torch.Tensor] | None = None
        self.bytes_per_value = tensor.element_size()
        self.type = DTYPES.index(tensor.dtype)
        self._in_place = tensor.dtype is torch.float32

    def __len__(self) -> int:
        return self.tensor.numel()

    @property
    def num_bytes(self) -> int:
        """Of the whole vector."""
        return len(self) * self.bytes_per_value

    def place(self, start: int, stop: int) -> memoryview:
        """The memory of values [start, stop): a result is received right there."""
        return self._bytes[start * self.bytes_per_value : stop * self.bytes_per_value]

    def own(self, start: int, stop: int) -> torch.Tensor:
        """This rank's values as float32, to add to; of a float32 vector they are the vector's own memory."""
        if self._sums is not None:
            first, sums = self._sums
            return sums[start - first : stop - first]
        own = self.tensor[start:stop]
        return own if self._in_place else own.float()

    def take_sums(self, first: int, sums: torch.Tensor) -> None:
        """From value `first` on, this rank's own values are these from now on; float32, on the CPU."""
        self._sums = (first, sums)

    def received(self, payload: memoryview) -> torch.Tensor:
        """What another rank sent, as it sent it."""
        return torch.frombuffer(payload, dtype=self.tensor.dtype)

    def payload(self, total: torch.Tensor) -> memoryview:
        """A sum as it is sent."""
        rounded = total if self._in_place else total.to(self.tensor.dtype)
        return memory.view(rounded)

    def keep(self, start: int, stop: int, total: torch.Tensor) -> None:
        """Store the result of values [start, stop)."""
        if not self._in_place or total.data_ptr() != self.tensor[start:stop].data_ptr():
            self.tensor[start:stop].copy_(total)

    def partial(self, total: torch.Tensor) -> torch.Tensor:
        """A sum to exchange, as the others will see it, in memory of its own."""
        return total.clone() if self._in_place else total.to(self.tensor.dtype)

    @staticmethod
    def sum(parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """The parts added in their order, in float32."""
        total = parts[0].float() if parts[0].dtype is not torch.float32 else parts[0].clone()
        for part in parts[1:]:
            total.add_(part)
        return total
