"""Rank's side of DDP step times: equal layers in torch's DistributedDataParallel, with gloo or with Hulk's hook.

    {"kind": "gloo", "num_layers": l, "cap_mb": c or None, "order": [ranks]}
    {"kind": "wan", "num_layers": l, "cap_mb": c, "order": [ranks], "method": {...}}   as in `methods`

A layer's gradients are 1 MiB. `cap_mb` None leaves the buckets to torch: 1 MiB, then up to 25.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from hulk_runtime.collective.ddp import all_reduce_hook
from hulk_runtime.collective.staging import AllReduce
from torch.nn.parallel import DistributedDataParallel

from bench.allreduce.methods import Wan
from bench.allreduce.place import Place

WIDTH = 512
BATCH = 8


class Steps:
    """A model and its gradients' way."""

    def __init__(self, place: Place, spec: Mapping[str, Any]) -> None:
        torch.manual_seed(1)
        layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(spec["num_layers"])]
        group = dist.new_group(spec["order"], backend="gloo", sort_ranks=False)
        cap = {} if spec["cap_mb"] is None else {"bucket_cap_mb": spec["cap_mb"]}
        self._model = DistributedDataParallel(torch.nn.Sequential(*layers), process_group=group, **cap)
        self._input_BN = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(place.rank))
        self._wan = Wan(place, spec["method"]) if spec["kind"] == "wan" else None
        if self._wan is not None:
            self._model.register_comm_hook(AllReduce(self._wan.collective, torch.device("cpu")), all_reduce_hook)
        for _ in range(2):  # buckets are rebuilt after the first step
            self.step()

    def step(self) -> float:
        """Forward and backward; the moment at which the gradients were there."""
        self._model.zero_grad()
        self._model(self._input_BN).square().mean().backward()
        return time.monotonic()

    def crc(self) -> int:
        """Of all gradients."""
        found = 0
        for parameter in self._model.parameters():
            assert parameter.grad is not None
            found = zlib.crc32(parameter.grad.numpy().tobytes(), found)
        return found

    def close(self) -> None:
        if self._wan is not None:
            self._wan.close()
