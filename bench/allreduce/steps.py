"""Rank's side of DDP step times: equal layers in torch's DistributedDataParallel, with gloo or with Hulk's hook.

    {"kind": "gloo", "num_layers": l, "cap_mb": c or None, "order": [ranks]}
    {"kind": "wan", "num_layers": l, "cap_mb": c, "order": [ranks], "method": {...}}   as in `methods`

A layer's gradients are 1 MiB. `cap_mb` None leaves the buckets to torch: 1 MiB, then up to 25. Every rank has its own
input, drawn from its number, so each can compute the mean of all ranks' gradients by itself: no way of summing them is
compared with itself alone.
"""

from __future__ import annotations

import statistics
import time
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from hulk_runtime.collective.gradient_sums import GradientSums, all_reduce_hook
from hulk_runtime.collective.staging import AllReduce
from torch.nn.parallel import DistributedDataParallel

from bench.allreduce.methods import Wan
from bench.allreduce.place import Place

WIDTH = 512
BATCH = 8
MAX_ERROR = 1e-5
"""Of the largest gradient of a layer: some float32 roundings."""
NUM_COMPUTED = 5


class Steps:
    """A model and its gradients' way."""

    def __init__(self, place: Place, spec: Mapping[str, Any]) -> None:
        self._num_ranks, self._num_layers = len(place.addresses), spec["num_layers"]
        self._group = dist.new_group(spec["order"], backend="gloo", sort_ranks=False)
        cap = {} if spec["cap_mb"] is None else {"bucket_cap_mb": spec["cap_mb"]}
        # The ranks have the same parameters: they need not be sent.
        self._model = DistributedDataParallel(
            _model(self._num_layers), process_group=self._group, init_sync=False, **cap
        )
        self._input_BN = _input_BN(place.rank)
        self._wan = Wan(place, spec["method"]) if spec["kind"] == "wan" else None
        if self._wan is not None:
            sums = GradientSums(AllReduce(self._wan.collective, torch.device("cpu")), self._model)
            self._model.register_comm_hook(sums, all_reduce_hook)
        for _ in range(2):  # buckets are rebuilt after the first step
            self.step()

    def step(self) -> float:
        """Forward and backward; the moment at which the gradients were there."""
        _backward(self._model, self._input_BN)
        return time.monotonic()

    @property
    def is_right(self) -> bool:
        """Whether each layer's gradients are the mean of all ranks'."""
        wanted = mean_gradients(self._num_layers, self._num_ranks)
        return are_right(_gradients(self._model), wanted)

    def crc(self) -> int:
        """Of all gradients."""
        found = 0
        for gradient in _gradients(self._model):
            found = zlib.crc32(gradient.numpy().tobytes(), found)
        return found

    def close(self) -> None:
        if self._wan is not None:
            self._wan.close()
        del self._model
        dist.destroy_process_group(self._group)


def are_right(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> bool:
    """Whether no value is off by more than rounding; not a number is never right."""
    return all(
        bool((mine - right).abs().max() <= MAX_ERROR * right.abs().max())
        for mine, right in zip(found, wanted, strict=True)
    )


@lru_cache(maxsize=1)
def mean_gradients(num_layers: int, num_ranks: int) -> tuple[torch.Tensor, ...]:
    """What every rank must have in the end, computed here from all ranks' inputs, without a word to anybody."""
    model = _model(num_layers)
    model.zero_grad()
    for rank in range(num_ranks):
        (model(_input_BN(rank)).square().mean() / num_ranks).backward()
    return tuple(_gradients(model))


def compute_s(num_layers: int) -> float:
    """Median seconds of a forward and backward pass without any sum."""
    model, input_BN, took_s = _model(num_layers), _input_BN(0), []  # noqa: N806 - a shape suffix
    for _ in range(1 + NUM_COMPUTED):
        began_s = time.monotonic()
        _backward(model, input_BN)
        took_s.append(time.monotonic() - began_s)
    return statistics.median(took_s[1:])


def _model(num_layers: int) -> torch.nn.Module:
    """The same parameters on every rank."""
    torch.manual_seed(1)
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(num_layers)))


def _input_BN(rank: int) -> torch.Tensor:  # noqa: N802 - a shape suffix
    return torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(rank))


def _backward(model: torch.nn.Module, input_BN: torch.Tensor) -> None:  # noqa: N803 - a shape suffix
    model.zero_grad()
    model(input_BN).square().mean().backward()


def _gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    found = []
    for parameter in model.parameters():
        assert parameter.grad is not None
        found.append(parameter.grad)
    return found
