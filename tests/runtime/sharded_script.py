"""A script that FSDP2 and tensor ranks divide, with `hulk.Checkpointer` around its loop, in float64.

`sharded_script.py REPLICAS SHARDS TENSOR STEPS [kill=RANK:STEP]`: the rank dies as it begins to write the state after
that step.
"""

import hashlib
import os
import signal
import sys

import hulk
import torch
import torch.distributed as dist
from hulk_runtime import errors
from hulk_runtime.job import step_record
from hulk_runtime.sharded_checkpoints import storage
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

BATCH = 24
WIDTH = 16


class Block(torch.nn.Module):
    """What tensor ranks divide."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(WIDTH, 32), torch.nn.Linear(32, WIDTH)

    def forward(self, x_NF: torch.Tensor) -> torch.Tensor:
        return x_NF + self.down(torch.tanh(self.up(x_NF)))


class Net(torch.nn.Module):
    """Two blocks, and a head that no number of shards divides evenly."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.Sequential(Block(), Block())
        self.head = torch.nn.Linear(WIDTH, 7)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x_NF: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x_NF)) * self.scale


def made(replicas: int, shards: int, tensor: int) -> tuple[torch.nn.Module, int]:
    """The model in its layout, and this rank's place among those with data of their own."""
    torch.manual_seed(1)
    net = Net().double()
    if not dist.is_initialized():
        return net, 0
    mesh = init_device_mesh("cpu", (replicas, shards, tensor), mesh_dim_names=("dp_replicate", "dp_shard", "tp"))
    if tensor > 1:
        for block in net.blocks:
            parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    for block in net.blocks:
        fully_shard(block, mesh=mesh["dp_replicate", "dp_shard"])
    fully_shard(net, mesh=mesh["dp_replicate", "dp_shard"])
    return net, dist.get_rank() // tensor


def digest(net: torch.nn.Module) -> str:
    """Of all values in bits."""
    found = hashlib.sha256()
    for name, value in sorted(net.state_dict().items()):
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        found.update(name.encode() + whole.contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def moments(net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Of AdamW's states in bits."""
    found = hashlib.sha256()
    for name, parameter in sorted(net.named_parameters()):
        for key, value in sorted(optimizer.state[parameter].items()):
            whole = value.full_tensor() if isinstance(value, DTensor) else value
            found.update(f"{name} {key}".encode() + whole.double().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def loss_of(net: torch.nn.Module, step: int, place: int, num_places: int) -> torch.Tensor:
    """Of this rank's rows of the step's batch."""
    made = torch.Generator().manual_seed(step)
    x_NF = torch.randn(BATCH, WIDTH, generator=made, dtype=torch.float64)
    rows = slice(place * BATCH // num_places, (place + 1) * BATCH // num_places)
    return (net(x_NF[rows]) - x_NF[rows, :7].sin()).square().mean()


def main(replicas: int, shards: int, tensor: int, num_steps: int, events: dict[str, str]) -> None:
    """One line per step, digests where it begins and ends, and what the operator learns of the last checkpoint."""
    descriptor = os.memfd_create("steps")
    os.ftruncate(descriptor, step_record.NUM_BYTES)
    record = step_record.own = step_record.StepRecord(descriptor)
    if replicas * shards * tensor > 1:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if dist.is_initialized() else 0
    net, place = made(replicas, shards, tensor)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, foreach=False)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.95**step)
    with hulk.Checkpointer(net, optimizer, scheduler=scheduler) as checkpointer:
        first = checkpointer.resume()
        print(
            f"first {first} {digest(net)} {moments(net, optimizer) if first else ''} {scheduler.last_epoch}", flush=True
        )
        for step in range(first, num_steps):
            optimizer.zero_grad()
            loss = loss_of(net, step, place, replicas * shards)
            loss.backward()
            optimizer.step()
            scheduler.step()
            mean = loss.detach().clone()
            if dist.is_initialized():
                dist.all_reduce(mean)
                mean /= dist.get_world_size()
            print(f"step={step + 1} loss={float(mean)!r}", flush=True)
            happen(events, rank, step + 1)
            checkpointer.step(step + 1)
            print(f"begun {step + 1}", flush=True)
    print(f"last {digest(net)} {moments(net, optimizer)}", flush=True)
    print(f"saved {record.read().checkpoint_step} {record.read().checkpoint_where}", flush=True)
    if dist.is_initialized():
        dist.barrier(dist.new_group())  # as a script makes one after its first checkpoint
        dist.destroy_process_group()


def alone(num_steps: int) -> dict[int, float]:
    """The loss of each step where one process trains without a pause."""
    net, _ = made(1, 1, 1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, foreach=False)
    found = {}
    for step in range(num_steps):
        optimizer.param_groups[0]["lr"] = 0.01 * 0.95**step
        optimizer.zero_grad()
        loss = loss_of(net, step, 0, 1)
        loss.backward()
        optimizer.step()
        found[step + 1] = float(loss.detach())
    return found


def happen(events: dict[str, str], rank: int, step: int) -> None:
    """What a test wants at this step."""
    if events.get("kill") == f"{rank}:{step}":
        storage.Writer.write_data = lambda *_: os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    try:
        main(*map(int, sys.argv[1:5]), dict(each.split("=") for each in sys.argv[5:]))  # type: ignore[call-arg]
    except errors.HulkError as error:
        sys.exit(errors.report(error))
