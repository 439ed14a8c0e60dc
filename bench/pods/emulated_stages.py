"""Runs in the pods of a job of stages: Hulk's example GPT, as fast as the accelerator that its node is said to have.

As in emulated_gpt.py the pod's processor computes everything and then waits until the accelerator would have been done;
here a stage's forward and backward pass of each micro-batch. A stage takes the part of the model's time that its
matrices are of all. At its end a rank says whether it ran its blocks in the plan's order in every step.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
from hulk_runtime import entry
from hulk_runtime.examples import text
from hulk_runtime.examples.byte_gpt import ByteTask
from hulk_runtime.job import environment
from hulk_runtime.plan import wire
from hulk_runtime.plan.wire import Plan
from hulk_runtime.training.layered_model import LayeredModel
from torch import nn

FORWARD = 1 / 3
"""Of a pass: backward multiplies twice as many matrices."""

LEARNING_RATE = 1e-3


class Accelerator:
    """When it is done with what began at a moment."""

    def __init__(self, sequences_per_s: float) -> None:
        self._sequences_per_s = sequences_per_s
        self._begun_s = self._num = 0.0

    def begin(self, num_sequences: int) -> None:
        """A block of so many sequences begins."""
        self._begun_s, self._num = time.monotonic(), num_sequences

    def wait(self, share: float) -> None:
        """Until it is done with this share of a whole model's pass."""
        time.sleep(max(0.0, self._begun_s + share * self._num / self._sequences_per_s - time.monotonic()))


class EmulatedLayer(nn.Module):
    """A layer that takes a share of the model's time: its outputs and the gradients of its inputs come no sooner."""

    def __init__(self, layer: nn.Module, share: float, accelerator: Accelerator) -> None:
        super().__init__()
        self.layer = layer
        self._share, self._accelerator = share, accelerator

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._accelerator.begin(len(x))
        if x.requires_grad:
            x = Passed.apply(x, self._accelerator, self._share * (1 - FORWARD), False)
        out: torch.Tensor = self.layer(x)
        self._accelerator.wait(self._share * FORWARD)
        if out.requires_grad:
            out = Passed.apply(out, self._accelerator, 0.0, True)
        return out


class Passed(torch.autograd.Function):
    """Hands on; on the way back a layer's backward pass begins, or has to be over."""

    @staticmethod
    def forward(ctx, x, accelerator, share, begins):  # type: ignore[no-untyped-def]
        ctx.told = accelerator, share, begins
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        accelerator, share, begins = ctx.told
        accelerator.begin(len(gradient)) if begins else accelerator.wait(share)
        return gradient, None, None, None


class EmulatedTask(ByteTask):
    """The example's task on this node's accelerator."""

    def whole(self) -> LayeredModel:
        found = super().whole()
        accelerator = Accelerator(json.loads(os.environ["RATES"])[os.environ["NODE_NAME"]])
        sizes = [sum(p.numel() for p in layer.parameters() if p.dim() > 1) for layer in found.layers]
        sizes[0] = 0  # tables are looked up
        layers = [
            EmulatedLayer(layer, size / sum(sizes), accelerator) if size else layer
            for layer, size in zip(found.layers, sizes, strict=True)
        ]
        own = [
            [(n, name if layers[n] is found.layers[n] else f"layer.{name}") for n, name in tie] for tie in found.ties
        ]
        ties = [(one, other) for one, other in own]
        return LayeredModel(found.module, layers, ties)


def make_task(plan: Plan, device: torch.device) -> EmulatedTask:
    """The task that the job trains."""
    return EmulatedTask(plan, device, LEARNING_RATE, text.standard_library_source())


def executed(here: environment.Environment) -> str:
    """Whether every step's blocks ran in the plan's order."""
    told = wire.load(here.plan_path).pipeline
    assert told is not None, "a plan without stages"
    lines = Path(here.pipeline_log, f"rank-{here.rank}.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in lines]
    wanted = [[told.schedule.blocks[block].name, m] for block, m in told.schedule.orders[steps[0]["device"]].turns]
    others = [step["step"] for step in steps if [turn[:2] for turn in step["turns"]] != wanted]
    if others:
        return f"in another order than planned in steps {others}"
    return f"executed as planned: {len(steps)} steps of {len(wanted)} blocks"


if __name__ == "__main__":
    code = entry.run(make_task)
    if not code:
        print(executed(environment.read(os.environ)), flush=True)
    sys.stdout.flush()
    entry.leave(code)
