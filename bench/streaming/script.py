"""A plain loop: `script.py alone|every|apart NUM_LAYERS WIDTH COMPUTE_S NUM_WARMING NUM_TIMED`, as in a pod of the job.

An emulated accelerator computes: its time passes while the processors are free, and within a step it makes up for what
they woke the program too late. Rank 0 prints `begin` when the timed steps begin, and then their mean seconds and the
bytes that it sent in each. `alone`: nothing is summed; `apart`: by hulk.DiLoCo, as the plan says.
"""

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import hulk
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Clock:
    """Until when the accelerator is busy, of those who ask it to compute one after the other."""

    def __init__(self) -> None:
        self.until_s = 0.0

    def start(self) -> None:
        """It is idle now."""
        self.until_s = time.monotonic()

    def compute(self, seconds: float) -> None:
        """Until it has."""
        self.until_s += seconds
        time.sleep(max(0.0, self.until_s - time.monotonic()))


CLOCK = Clock()


class Accelerator(torch.autograd.Function):
    """Takes its time in forward, and twice as long in backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, forward_s: float) -> torch.Tensor:
        ctx.forward_s = forward_s
        CLOCK.compute(forward_s)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        CLOCK.compute(2 * ctx.forward_s)
        return gradient, None


class Layer(torch.nn.Linear):
    """A linear one on the emulated accelerator."""

    def __init__(self, width: int, forward_s: float) -> None:
        super().__init__(width, width, bias=False)
        self.forward_s = forward_s

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(Accelerator.apply(x, self.forward_s))


def main() -> None:
    """Warm up, then time."""
    kind, num_layers, width, compute_s, num_warming, num_timed = sys.argv[1], *map(float, sys.argv[2:])
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    layers = [Layer(int(width), compute_s / 3 / num_layers) for _ in range(int(num_layers))]
    plain: torch.nn.Module = torch.nn.Sequential(*layers)
    model = DistributedDataParallel(plain) if kind == "every" else plain
    optimizer = torch.optim.SGD(plain.parameters(), lr=1e-3)
    torch.manual_seed(dist.get_rank())
    x = torch.randn(8, int(width), requires_grad=True)  # or the first layer has nothing to do backward

    def step() -> None:
        CLOCK.start()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    with hulk.DiLoCo(plain, optimizer) if kind == "apart" else contextlib.nullcontext():
        for _ in range(int(num_warming)):
            step()
        _say("begin")
        started, sent = time.monotonic(), _sent_bytes()
        for _ in range(int(num_timed)):
            step()
        _say(f"step {(time.monotonic() - started) / num_timed:.5f}")
        _say(f"sent {(_sent_bytes() - sent) / num_timed:.0f}")
    dist.barrier()
    dist.destroy_process_group()


def _sent_bytes() -> int:
    """Of this node's interface, headers included."""
    name = os.environ["GLOO_SOCKET_IFNAME"]
    rows = (line.split(":") for line in Path("/proc/self/net/dev").read_text().splitlines() if ":" in line)
    return next(int(figures.split()[8]) for found, figures in rows if found.strip() == name)


def _say(line: str) -> None:
    if dist.get_rank() == 0:
        print(line, flush=True)


if __name__ == "__main__":
    main()
