"""A plain torch.distributed script: nothing here knows of Hulk.

It runs the same by hand (`torchrun --nproc-per-node 2 plain_ddp.py`) and in a HulkJob's pods, where its ranks stand in
the planned order because the planned order is the rank order:

    one accelerator per worker      command: [python, plain_ddp.py]
    several accelerators per worker command: [torchrun, plain_ddp.py]  or  [hulk-launch, plain_ddp.py]

It fits y = x . w with DistributedDataParallel and prints the loss and who was next to whom.
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

NUM_FEATURES = 16
BATCH = 32


def train(num_steps: int) -> None:
    """Join, train, and show the ring."""
    use_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if use_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if use_gpu else "gloo")
    rank = dist.get_rank()

    torch.manual_seed(0)
    weights = torch.randn(NUM_FEATURES, 1, device=device)
    model = DistributedDataParallel(torch.nn.Linear(NUM_FEATURES, 1).to(device), bucket_cap_mb=1024)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank + 1)
    for step in range(1, num_steps + 1):
        inputs = torch.randn(BATCH, NUM_FEATURES, device=device)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs @ weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step={step} loss={loss.item():.4f} ", flush=True)

    ring: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(ring, os.environ.get("HULK_WORKER", socket.gethostname()))
    if rank == 0:
        print("ring by worker: " + " -> ".join(ring), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    train(parser.parse_args().steps)
