"""A plain DDP script; only the import of DistributedDataParallel is Hulk's. Rank HANGS lives, but trains no step."""

import os
import time
import zlib

import torch
import torch.distributed as dist
from hulk_runtime.collective.ddp import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
if os.environ.get("HANGS") == os.environ["RANK"]:
    time.sleep(600)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(16, 64)).square().mean().backward()
    optimizer.step()
vector = torch.cat([p.detach().flatten() for p in model.parameters()])
hook = getattr(model, "_comm_hooks", [])
print(f"norm {vector.norm():.9g} {vector.abs().sum():.9g} {zlib.crc32(vector.numpy().tobytes())}", flush=True)
print(f"hook {hook[0][0].__name__ if hook else 'none'}", flush=True)
dist.barrier()
dist.destroy_process_group()
