"""Rank's side of DDP step times: a stack of equal layers in torch's DistributedDataParallel, with gloo or with a hook.

    {"kind": "gloo", "num_layers": l, "cap_mb": c or None, "order": [ranks]}
    {"kind": "wan", "num_layers": l, "cap_mb": c, "order": [ranks], "method": {...}}   as in `methods`

A layer's gradients are 1 MiB. `cap_mb` None leaves the buckets to torch: 1 MiB, then up to 25.
(torch looks at the annotations of a hook, so that they are not postponed in this file.)
"""

import time
import zlib
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from hulk_runtime.collective.group import Collective
from hulk_runtime.errors import PeerLostError
from torch._C._distributed_c10d import GradBucket
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
            self._model.register_comm_hook(self._wan.collective, hook)
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


def hook(collective: Collective, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The mean of a bucket over all ranks, begun now."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    values = bucket.buffer()
    values.div_(dist.get_world_size())

    def end(error: PeerLostError | None) -> None:
        if error is None:
            future.set_result(values)
        else:
            future.set_exception(error)  # type: ignore[arg-type] # torch's annotation says T, its text an exception

    collective.all_reduce(values).on_end(end)
    return future
