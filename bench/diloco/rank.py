"""One rank of one training: `python -m bench.diloco.rank ORDER`, JSON; rank 0 prints what the table shows as JSON."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import hulk
import torch
import torch.distributed as dist
from hulk_runtime.examples import text
from hulk_runtime.examples.byte_gpt import ByteTask
from torch.nn.parallel import DistributedDataParallel

from bench.diloco.llama import LlamaTask
from bench.diloco.modes import TRAINED, Mode, Trained

HELD_OUT_BYTES = 400_000
ORDER_STRIDE = 10**6
"""Another order of the data is that of steps this much later."""
RISES, FALLS_TO = 0.05, 0.1
"""The learning rate rises over that part of the steps, then falls as a cosine to that part of itself."""


class Training:
    """A model with DistributedDataParallel around it, and the same data for every mode."""

    def __init__(self, trained: Trained, mode: Mode, seed: int, num_steps: int) -> None:
        source = text.standard_library_source()
        device = torch.device("cpu")
        make = LlamaTask if trained.is_llama else ByteTask
        self.task = make(trained.plan(), device, trained.learning_rate, source[:-HELD_OUT_BYTES])
        self._judge = make(trained.plan(), device, 0.0, source[-HELD_OUT_BYTES:])
        self._autocast = torch.autocast("cpu", torch.bfloat16, enabled=trained.precision == "bf16")
        self._num_held_out = trained.num_held_out
        torch.manual_seed(seed)
        self.model = DistributedDataParallel(self.task.module, gradient_as_bucket_view=True)
        self._rate = trained.learning_rate
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self._rate, weight_decay=0.01)
        self._seed, self._mode, self._num_steps = seed, mode, num_steps
        first = dist.get_rank() * trained.share
        self._sequences = range(first, first + trained.share)

    def step(self, number: int, is_local: bool) -> None:
        """One update, with all others or not."""
        factor = self._mode.inner if is_local else 1.0
        self.optimizer.param_groups[0]["lr"] = self._rate * factor * schedule(number / self._num_steps)
        at = number + ORDER_STRIDE * self._seed
        self.optimizer.zero_grad()
        with self._autocast:
            logits = self.model(*self.task.inputs(at, self._sequences))
            loss = self.task.loss_of(at, (logits,), self._sequences)
        torch.autograd.backward(loss)
        self.optimizer.step()

    @torch.no_grad()
    def held_out(self, shared: dict[str, torch.Tensor]) -> float:
        """In nats per byte, of what all replicas have in common."""
        self._judge.module.load_state_dict(self.task.module.state_dict() | shared)
        parts = [range(first, first + 1) for first in range(len(self._sequences) * dist.get_world_size())]
        steps = range(-(-self._num_held_out // len(parts)))
        losses = [float(self._judge.loss(step, range(len(parts)))) for step in steps]
        return sum(losses) / len(losses)


def schedule(done: float) -> float:
    """Of the learning rate after a part of the steps."""
    if done < RISES:
        return done / RISES
    falls = 0.5 * (1 + math.cos(math.pi * (done - RISES) / (1 - RISES)))
    return FALLS_TO + (1 - FALLS_TO) * falls


def train(training: Training, mode: Mode, looks: list[int]) -> dict[str, float]:
    """The loss after so many steps; the last are those of the schedule."""
    warm = round(mode.warm * looks[-1]) if mode.sync_every else looks[-1]
    losses: dict[str, float] = {}

    def look(step: int, shared: dict[str, torch.Tensor]) -> None:
        if step in looks and not dist.get_rank():
            losses[str(step)] = training.held_out(shared)

    for step in range(1, warm + 1):
        training.step(step, is_local=False)
        look(step, {})
    with _apart(training, mode) as diloco:
        for step in range(warm + 1, looks[-1] + 1):
            training.step(step, is_local=True)
            if step < looks[-1]:
                look(step, _shared(diloco))
    look(looks[-1], {})
    return losses


@contextlib.contextmanager
def _apart(training: Training, mode: Mode) -> Iterator[hulk.DiLoCo | None]:
    if not mode.sync_every:
        yield None
        return
    outer = hulk.Outer(mode.outer_learning_rate, mode.outer_momentum)
    with hulk.DiLoCo(
        training.model,
        training.optimizer,
        sync_every=mode.sync_every,
        fragments=mode.fragments,
        delay=mode.delay,
        outer=outer,
        compression=mode.compression,
    ) as diloco:
        yield diloco


def _shared(diloco: hulk.DiLoCo | None) -> dict[str, Any]:
    if diloco is None:
        return {}
    return {name: one for part in diloco.state_dict()["fragments"] for name, one in part["global"].items()}


def main() -> None:
    """By the environment of torch's launchers."""
    order = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    began_s = time.perf_counter()
    training = Training(TRAINED[order["trained"]], mode := Mode(**order["mode"]), order["seed"], order["looks"][-1])
    losses = train(training, mode, order["looks"])
    num_values = sum(one.numel() for one in training.model.parameters())
    if os.environ["RANK"] == "0":
        print(
            json.dumps({"losses": losses, "num_values": num_values, "seconds": time.perf_counter() - began_s}),
            flush=True,
        )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
