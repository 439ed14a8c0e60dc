"""Replicas of two shards that train apart by DiLoCo in rounds of 4 steps with a delay, and save in between.

`sharded_diloco_script.py REPLICAS STEPS`: prints what each replica has.
"""

import hashlib
import sys

import hulk
import torch
import torch.distributed as dist
from hulk_runtime import errors
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


def digest(values: object) -> str:
    """Of all tensors in bits, shards as they are."""
    found = hashlib.sha256()

    def add(value: object) -> None:
        if isinstance(value, dict):
            for key in sorted(value, key=str):
                add(value[key])
        elif isinstance(value, list):
            for each in value:
                add(each)
        elif isinstance(value, torch.Tensor):
            whole = value.full_tensor() if isinstance(value, DTensor) else value
            found.update(whole.detach().double().contiguous().numpy().tobytes())
        else:
            found.update(repr(value).encode())

    add(values)
    return found.hexdigest()[:16]


def main(replicas: int, num_steps: int) -> None:
    """Lines of the state at the begin and at the end."""
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    mesh = init_device_mesh("cpu", (replicas, 2), mesh_dim_names=("dp_replicate", "dp_shard"))
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).double()
    fully_shard(net, mesh=mesh["dp_shard"])
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05, foreach=False)
    diloco = hulk.DiLoCo(net, optimizer, sync_every=4, delay=2)
    with hulk.Checkpointer(net, optimizer, diloco=diloco) as checkpointer:
        first = checkpointer.resume()
        if first:
            print("first", first, digest([net.state_dict(), optimizer.state_dict()["state"], diloco.state_dict()]))
        replica = dist.get_rank() // 2
        with diloco:
            for step in range(first, num_steps):
                optimizer.zero_grad()
                made = torch.Generator().manual_seed(100 * step + replica)
                net(torch.randn(4, 6, generator=made, dtype=torch.float64)).square().mean().backward()
                optimizer.step()
                checkpointer.step(step + 1)
                state = digest([net.state_dict(), optimizer.state_dict()["state"], diloco.state_dict()])
                print("step", step + 1, state, flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main(*map(int, sys.argv[1:]))
    except errors.HulkError as error:
        sys.exit(errors.report(error))
