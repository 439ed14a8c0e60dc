"""DistributedDataParallel in many ways: its gradients beside the mean of those that the ranks computed alone."""

import contextlib
import copy

import torch
import torch.distributed as dist
from hulk_runtime.collective.ddp import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

KINDS = ("plain", "unused", "accumulated", "static", "checkpointed", "bfloat16", "double", "group")
STEPS = 3
DTYPES = {"bfloat16": torch.bfloat16, "double": torch.float64}
LIMITS = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float64: 1e-12}


class Net(torch.nn.Module):
    """A way through two layers; of kind "unused" the third takes part in every other step only."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.second, self.third = (torch.nn.Linear(48, 48) for _ in range(3))

    def forward(self, values: torch.Tensor, step: int) -> torch.Tensor:
        """Mean of squares."""
        is_checkpointed = self.kind == "checkpointed"
        hidden = checkpoint(self.first, values, use_reentrant=False) if is_checkpointed else self.first(values).tanh()
        out = self.second(hidden)
        if self.kind != "unused" or step % 2 == 0:
            out = out + self.third(hidden)
        return out.square().mean()


def train(kind: str, group: "dist.ProcessGroup | None") -> None:
    """Some steps; one line when all went well."""
    torch.manual_seed(1)
    model = Net(kind).to(DTYPES.get(kind, torch.float32))
    alone = copy.deepcopy(model)
    ways = {
        "unused": {"find_unused_parameters": True},
        "static": {"static_graph": True},
        "group": {"process_group": group},
    }
    ddp = DistributedDataParallel(model, **ways.get(kind, {}))
    torch.manual_seed(100 + dist.get_rank())
    for step in range(STEPS):
        ddp.zero_grad()
        alone.zero_grad()
        parts = torch.randn(2 if kind == "accumulated" else 1, 16, 48, dtype=next(model.parameters()).dtype)
        for number, values in enumerate(parts):
            with ddp.no_sync() if number + 1 < len(parts) else contextlib.nullcontext():
                ddp(values, step).backward()
            alone(values, step).backward()
        compare(kind, model, alone, group)
    hooks = getattr(ddp, "_comm_hooks", [])
    print(f"{kind}: {STEPS} steps as by hand, hook {hooks[0][0].__name__ if hooks else 'none'}", flush=True)


def compare(kind: str, model: torch.nn.Module, alone: torch.nn.Module, group: "dist.ProcessGroup | None") -> None:
    """The gradients of every parameter."""
    for ours, mine in zip(model.parameters(), alone.parameters(), strict=True):
        mean = (torch.zeros_like(ours) if mine.grad is None else mine.grad).double()
        dist.all_reduce(mean, group=group)
        mean /= dist.get_world_size(group)
        grad = torch.zeros_like(ours) if ours.grad is None else ours.grad
        off = float((grad.double() - mean).abs().max() / mean.abs().max().clamp(min=1e-12))
        assert off <= LIMITS[ours.dtype], f"{kind}: gradients are off by {off:.3g} of their largest"


dist.init_process_group("gloo")
groups = [dist.new_group([0, 1]), dist.new_group([2])]
for name in KINDS:
    train(name, groups[dist.get_rank() // 2] if name == "group" else dist.group.WORLD)
dist.barrier()
dist.destroy_process_group()
