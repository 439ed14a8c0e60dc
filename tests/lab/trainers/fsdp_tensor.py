"""FSDP2 over replicas and tensor parallelism inside a worker, as torchtitan composes them."""

import os
import socket

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group("gloo")
tensor = int(os.environ["LOCAL_WORLD_SIZE"])
shape = (dist.get_world_size() // tensor, 1, tensor)
mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp_replicate", "dp_shard", "tp"))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 8))
parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
fully_shard(model, mesh=mesh["dp_replicate", "dp_shard"])
optimizer = torch.optim.SGD(model.parameters(), 0.1)
torch.manual_seed(mesh["dp_replicate"].get_local_rank())  # the same data for a worker's ranks
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
weights = sum(float(parameter.full_tensor().sum()) for parameter in model.parameters())
print(
    f"world={dist.get_world_size()} rank={dist.get_rank()} host={socket.gethostname()} weights={weights:.9f}\n",
    end="",  # ranks of one pod share its output: a line is whole only where it is one write
    flush=True,
)
dist.barrier()
dist.destroy_process_group()
