"""What forward passes leave in memory goes with the backward pass, outputs before."""

import gc
import weakref

import torch
from hulk_placement.schedule.shapes import SHAPES, split_weights
from hulk_runtime.pipeline.dataflow import Flows
from hulk_runtime.pipeline.forward_backward import Passes
from hulk_runtime.pipeline.micro_batches import Tensors, divide
from hulk_runtime.plan import pipeline_schedule
from pipeline_schedules import all_forward, written
from torch import nn

NUM_SAMPLES = 4


class Remembering(nn.Module):
    """A layer that remembers what it keeps for its backward pass, weakly."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.kept: list[weakref.ref[torch.Tensor]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.layer(x).exp()
        self.kept.append(weakref.ref(inner))
        return inner.sin()

    @property
    def num_kept(self) -> int:
        gc.collect()
        return sum(reference() is not None for reference in self.kept)


def passes_of(split: bool) -> tuple[Flows, Remembering, Passes]:
    one = SHAPES["v"](3, 1.0, 2.0)
    flows = Flows(pipeline_schedule.read(written(split_weights(one) if split else one, 2, all_forward)))
    module = Remembering()
    of = Tensors(torch.ones(NUM_SAMPLES, 3), torch.ones(NUM_SAMPLES, 3), nn.functional.mse_loss)
    return flows, module, Passes(flows, {"1": module}, of, divide([[2, 2]], 0, 1))


def test_a_backward_pass_lets_go_of_its_micro_batch():
    flows, module, passes = passes_of(split=False)
    middle = 1
    outputs = [passes.forward((middle, m), (torch.ones(2, 3),)) for m in range(2)]
    assert module.num_kept == 2
    references = [weakref.ref(values[0]) for values in outputs]
    outputs.clear()
    assert [reference() for reference in references] == [None, None]
    backward = flows.part_of(middle, "backward")
    for m in range(2):
        (gradient,) = passes.backward((backward, m), [(torch.ones(2, 3),)])
        assert gradient.shape == (2, 3)
        assert module.num_kept == 1 - m


def test_weights_later_keep_it_until_then():
    flows, module, passes = passes_of(split=True)
    passes.forward((1, 0), (torch.ones(2, 3),))
    passes.backward((flows.part_of(1, "backward"), 0), [(torch.ones(2, 3),)])
    assert module.num_kept == 1
    assert module.layer.weight.grad is None
    passes.weight((flows.part_of(1, "weight"), 0))
    assert module.num_kept == 0
    assert module.layer.weight.grad is not None
