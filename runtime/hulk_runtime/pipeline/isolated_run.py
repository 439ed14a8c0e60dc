"""The blocks of one device in their order, with zeros for what other devices would send: to see what they take."""

from collections.abc import Mapping

import torch

from hulk_runtime.pipeline.dataflow import Flows
from hulk_runtime.pipeline.forward_backward import Passes
from hulk_runtime.pipeline.micro_batches import Values
from hulk_runtime.pipeline.stages import Shapes
from hulk_runtime.plan.pipeline_schedule import Turn


def run_isolated(flows: Flows, passes: Passes, shapes: Mapping[int, Shapes], device: int, where: torch.device) -> None:
    """Compute all turns of a device; values and gradients that would come from elsewhere are zeros."""

    def zeros(number: int, turn: Turn, differentiable: bool) -> Values:
        num = len(passes.samples(turn))
        of = [shape for shape in shapes[number] if shape.dtype.is_floating_point or not differentiable]
        return tuple(shape.empty(num, where).zero_() for shape in of)

    for turn in flows.schedule.orders[device].turns:
        block = flows.schedule.blocks[turn[0]]
        match block.kind:
            case "forward":
                passes.forward(turn, tuple(v for n in flows.producers[turn[0]] for v in zeros(n, turn, False)))
            case "backward":
                passes.backward(turn, [zeros(block.forward, turn, True) for _ in flows.consumers[block.forward]])
            case "weight":
                passes.weight(turn)
