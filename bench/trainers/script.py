"""Nothing but torch: `script.py ddp|hsdp|fsdp NUM_LAYERS COMPUTE_S`; rank 0 prints steps' seconds, then the weights.

With fsdp each region trains a replica of its own: what a step of hsdp takes besides its sums between regions. Layers of
1 MiB. An emulated accelerator computes: its time passes while the processors are free.
"""

import os
import sys
import time
import zlib
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

WIDTH, NUM_WARMING, NUM_TIMED, LEARNING_RATE = 512, 2, 4, 0.1


class Accelerator(torch.autograd.Function):
    """Takes its time in forward, and twice as long in backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, forward_s: float) -> torch.Tensor:
        ctx.forward_s = forward_s
        time.sleep(forward_s)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        time.sleep(2 * ctx.forward_s)
        return gradient, None


class Layer(torch.nn.Linear):
    """A linear one on the emulated accelerator; keeps lengths at first, so that gradients do not vanish."""

    def __init__(self, forward_s: float) -> None:
        super().__init__(WIDTH, WIDTH, bias=False)
        torch.nn.init.orthogonal_(self.weight)
        self.forward_s = forward_s

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(Accelerator.apply(x, self.forward_s))


def main() -> None:
    """Train, and see that all ranks have the same weights."""
    kind, num_layers, compute_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    plain = torch.nn.Sequential(*(Layer(compute_s / 3 / num_layers) for _ in range(num_layers)))
    model = DistributedDataParallel(plain) if kind == "ddp" else _sharded(plain, kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    torch.manual_seed(dist.get_rank())
    x = torch.randn(8, WIDTH)
    dist.barrier()
    _say("ready")
    for step in range(NUM_WARMING + NUM_TIMED):
        started = time.monotonic()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        say_step(step, time.monotonic() - started)
    if kind == "fsdp":
        dist.barrier()
        dist.destroy_process_group()
    else:
        say_weights(model.parameters())


def say_step(number: int, seconds: float) -> None:
    """From 0; the first are not counted."""
    if number >= NUM_WARMING:
        _say(f"step {seconds:.4f}")


def say_weights(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Their norm, the same on all ranks; the process group's end."""
    weights = [w.full_tensor() if isinstance(w, DTensor) else w for w in (p.detach() for p in parameters)]
    digests: list[int] = [0] * dist.get_world_size()
    dist.all_gather_object(digests, zlib.crc32(b"".join(w.numpy().tobytes() for w in weights)))
    assert len(set(digests)) == 1, digests
    _say(f"norm {sum(float(w.square().sum()) for w in weights):.7g}")
    dist.barrier()
    dist.destroy_process_group()


def _sharded(layers: torch.nn.Sequential, kind: str) -> torch.nn.Module:
    """A replica in each region, a shard on each of its ranks; of fsdp, replicas that know nothing of each other."""
    num_regions = len(set(os.environ["REGIONS"].split(",")))
    shape = (num_regions, dist.get_world_size() // num_regions)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp_replicate", "dp_shard"))
    mesh = mesh if kind == "hsdp" else mesh["dp_shard"]
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(layers, mesh=mesh)
    return layers


def _say(line: str) -> None:
    if dist.get_rank() == 0:
        print(line, flush=True)


if __name__ == "__main__":
    main()
