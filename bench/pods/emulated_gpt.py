"""Runs in the pods of a job: Hulk's example GPT, as fast as the accelerator that its node is said to have.

The pod's processor computes everything. Then it waits for the time at which the accelerator would have been done, so
that machines differ, are as fast in every step, and, as on a GPU, sending takes nothing from computing. RATES are
sequences per second, forward and backward, by node as JSON; NODE_NAME is this one's. A pass whose processor was slower
than the accelerator takes longer, which shows in what the job says that it computes.
"""

import json
import os
import time

import torch
from hulk_runtime import entry
from hulk_runtime.examples import text
from hulk_runtime.examples.byte_gpt import ByteTask
from hulk_runtime.examples.gpt_model import Gpt
from hulk_runtime.plan.wire import Plan
from torch import nn

FORWARD = 1 / 3
"""Of a pass: backward multiplies twice as many matrices."""

LEARNING_RATE = 1e-3


class Accelerator:
    """When it is done with the parts of a pass, from the moment at which the pass began."""

    def __init__(self, sequences_per_s: float) -> None:
        self._sequences_per_s = sequences_per_s
        self._begun_s = self._pass_s = 0.0

    def begin(self, num_sequences: int) -> None:
        """A pass of so many sequences begins."""
        self._begun_s, self._pass_s = time.monotonic(), num_sequences / self._sequences_per_s

    def wait(self, share: float) -> None:
        """Until this share of the pass is done."""
        time.sleep(max(0.0, self._begun_s + share * self._pass_s - time.monotonic()))


def emulate(module: Gpt, accelerator: Accelerator) -> None:
    """Slow a model down: its forward pass as a whole, its backward pass before the gradients of each matrix."""
    matrices = [part for part in module.modules() if isinstance(part, nn.Linear)]
    num_values = sum(matrix.weight.numel() for matrix in matrices)

    def before(_module: Gpt, inputs: tuple[torch.Tensor, ...]) -> None:
        accelerator.begin(len(inputs[0]))

    def after(_module: Gpt, _inputs: object, logits: torch.Tensor) -> None:
        accelerator.wait(FORWARD)

    def on_gradient_of(output: torch.Tensor, done: float) -> None:
        if output.requires_grad:
            output.register_hook(lambda _: accelerator.wait(done))  # type: ignore[no-untyped-call]

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)
    num_left = 0
    for matrix in matrices:
        done = 1 - (1 - FORWARD) * num_left / num_values
        matrix.register_forward_hook(lambda _matrix, _inputs, output, done=done: on_gradient_of(output, done))
        num_left += matrix.weight.numel()


def make_task(plan: Plan, device: torch.device) -> ByteTask:
    """The example's task on this node's accelerator."""
    task = ByteTask(plan, device, LEARNING_RATE, text.standard_library_source())
    assert isinstance(task.module, Gpt)
    emulate(task.module, Accelerator(json.loads(os.environ["RATES"])[os.environ["NODE_NAME"]]))
    return task


if __name__ == "__main__":
    entry.leave(entry.run(make_task))
