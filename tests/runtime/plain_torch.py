"""Nothing but torch: DDP, two replicas of two shards, and what torch says of its groups. `plain_torch.py BACKEND`."""

import os
import signal
import sys
import zlib

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def trained(net: torch.nn.Module) -> list[torch.Tensor]:
    """Four steps, each rank on numbers of its own; the whole parameters."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(4):
        optimizer.zero_grad()
        net(torch.randn(16, 64)).square().mean().backward()
        optimizer.step()
    return [values.full_tensor() if hasattr(values, "full_tensor") else values for values in net.parameters()]


def net() -> torch.nn.Module:
    """The same on every rank."""
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 8))


def show(kind: str, parameters: list[torch.Tensor]) -> None:
    """Norm, sum and bits of a model."""
    vector = torch.cat([values.detach().flatten() for values in parameters])
    print(f"{kind} {vector.norm():.9g} {vector.abs().sum():.9g} {zlib.crc32(vector.numpy().tobytes())}", flush=True)


if __name__ == "__main__":
    dist.init_process_group(*sys.argv[1:2])
    show("ddp", trained(DistributedDataParallel(net())))
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp_replicate", "dp_shard"))
    sharded = net()
    fully_shard(sharded, mesh=mesh)
    show("hsdp", trained(sharded))
    print(f"backend {dist.get_backend()} of {type(dist.group.WORLD).__mro__[1].__name__}", flush=True)
    if os.environ.get("LEAVES") == os.environ["RANK"]:
        os._exit(3)
    if os.environ.get("STOPS") == os.environ["RANK"]:
        os.kill(os.getpid(), signal.SIGSTOP)
    if os.environ.get("LAST") == "sum":
        dist.all_reduce(torch.zeros(1))
    dist.barrier()
    dist.destroy_process_group()
