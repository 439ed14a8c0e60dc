"""torch alone: what torchrun, or nothing, starts."""

import os
import socket

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
torch.manual_seed(dist.get_rank())  # other data, the same model
for step in range(1, 1 + int(os.environ.get("STEPS", "4"))):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    if step == 2:
        print("two steps\n", end="", flush=True)
weights = sum(float(parameter.sum()) for parameter in model.parameters())
print(
    f"world={dist.get_world_size()} rank={dist.get_rank()} host={socket.gethostname()} weights={weights:.9f}\n",
    end="",  # ranks of one pod share its output: a line is whole only where it is one write
    flush=True,
)
dist.destroy_process_group()
