"""A script over the planned mesh: where this rank is in it, and a model that FSDP2 shards over it."""

import sys

import torch
import torch.distributed as dist
from hulk_runtime import errors
from hulk_runtime.collective import backend, planned_sums  # noqa: F401  # registers `hulk`
from hulk_runtime.collective.ddp import DistributedDataParallel
from hulk_runtime.collective.device_mesh import device_mesh
from torch.distributed.fsdp import fully_shard


def train() -> None:
    """Three steps of each replica and shard on numbers of its own, which tensor ranks share."""
    mesh = device_mesh()
    print(f"mesh {mesh.mesh_dim_names} {mesh.mesh.tolist()}")
    print("groups", *(mesh.get_local_rank(name) for name in ("dp_replicate", "dp_shard", "tp")))
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
    fully_shard(net, mesh=mesh["dp_replicate", "dp_shard"])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank() // 2)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
    print(f"norm {sum(float(values.full_tensor().norm()) for values in net.parameters()):.9g}")


def hsdp() -> None:
    """Replicas in two regions sum their shards over the planned flows, each group its own."""
    mesh = device_mesh("dp_replicate", "dp_shard")
    torch.manual_seed(1)
    net = torch.nn.Linear(64, 64)
    fully_shard(net, mesh=mesh)
    torch.manual_seed(dist.get_rank())
    for _ in range(3):
        net.zero_grad()
        net(torch.randn(8, 64)).square().mean().backward()
    print(f"gradient {sum(float(values.grad.full_tensor().norm()) for values in net.parameters()):.5g}")
    print(f"flows {planned_sums.num_connected()}")


def main(kind: str, name: str = "gloo") -> None:
    """One line of each kind."""
    dist.init_process_group(name)
    if kind == "another":
        device_mesh(dp_shard=8)
    if kind == "ddp":
        DistributedDataParallel(torch.nn.Linear(4, 4))
    else:
        (hsdp if kind == "hsdp" else train)()
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except errors.HulkError as error:
        sys.exit(errors.report(error))
