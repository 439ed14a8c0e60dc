"""What a collective's tensors are in the one vector that the planned all-reduce sums, and how the result comes back.

Floating-point values are summed as they are. Integers, and what ranks gather or one of them sends, go byte by byte in
float32, which holds sums of bytes exactly, in whichever order they are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import torch

INTEGERS: Final = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
MAX_RANKS: Final = (1 << 24) // 255
"""float32 holds all whole numbers up to 2^24."""


class Carried(Protocol):
    """`vector_N` is summed, of a type that plans sum; any thread may write it. `tensors`: whose result it is."""

    vector_N: torch.Tensor
    tensors: Sequence[torch.Tensor]

    def give(self) -> None:
        """From the summed vector to the tensors."""


class Values:
    """Floating-point values of tensors of one type. `num_ranks`: of a mean; 1 of a sum.

    Nothing is rounded on its way but to the tensors' own type: what a script sums may be no gradient.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], num_ranks: int) -> None:
        self.tensors = tensors
        first = tensors[0]
        self._is_own = len(tensors) == 1 and first.is_contiguous() and not first.is_inference()
        with torch.inference_mode(False):
            self.vector_N = first.detach().view(-1) if self._is_own else _joined(tensors)
            if num_ranks > 1:
                self.vector_N.div_(num_ranks)

    def give(self) -> None:
        """Nothing, where the vector is the tensor's own memory."""
        if not self._is_own:
            _give(torch.split(self.vector_N, [tensor.numel() for tensor in self.tensors]), self.tensors)


class Integers:
    """Sums of integers of one type, modulo its range like torch's, over at most MAX_RANKS ranks."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = tensors
        with torch.inference_mode(False):
            self.vector_N = _bytes(tensors)

    def give(self) -> None:
        """Bytes and their carries, the least first."""
        dtype = self.tensors[0].dtype
        shifts = 8 * torch.arange(dtype.itemsize, device=self.vector_N.device)
        sums = (self.vector_N.view(-1, dtype.itemsize).to(torch.int64) << shifts).sum(1).to(dtype)
        _give(torch.split(sums, [tensor.numel() for tensor in self.tensors]), self.tensors)


class Gathered:
    """What each rank has, of any type and all of one size: others' places are zeros in what a rank sends.

    `tensors`: each rank's place, all in `whole` where that is given, which is then the result of a GPU's work.
    """

    def __init__(
        self, tensors: Sequence[torch.Tensor], own: torch.Tensor, rank: int, whole: torch.Tensor | None = None
    ) -> None:
        self._places, self._dtype = tensors, own.dtype
        self.tensors = tensors if whole is None or not whole.is_cuda else [whole]
        with torch.inference_mode(False):
            mine = _bytes([own])
            self.vector_N = mine.new_zeros(len(tensors) * len(mine))
            self.vector_N[rank * len(mine) : (rank + 1) * len(mine)] = mine

    def give(self) -> None:
        """Each rank's."""
        _give(self.vector_N.to(torch.uint8).view(self._dtype).chunk(len(self._places)), self._places)


class Sent:
    """What one rank has, of any type: zeros in what the others send. That rank's tensor is only read."""

    def __init__(self, tensor: torch.Tensor, *, is_root: bool) -> None:
        self.tensors: Sequence[torch.Tensor] = (tensor,)
        self._is_root = is_root
        with torch.inference_mode(False):
            own = _bytes(self.tensors)
            self.vector_N = own if is_root else torch.zeros_like(own)

    def give(self) -> None:
        """To all others."""
        if not self._is_root:
            _give([self.vector_N.to(torch.uint8).view(self.tensors[0].dtype)], self.tensors)


def _bytes(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return _joined(tensors).view(torch.uint8).to(torch.float32)


def _joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _give(pieces: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> None:
    """As torch's backends write: autograd does not count it as a change of a tensor that it has saved."""
    for piece_N, tensor in zip(pieces, tensors, strict=True):
        with torch.inference_mode(tensor.is_inference()):
            tensor.data.copy_(piece_N.view(tensor.shape))
