"""Forward and backward passes of blocks: values in, values out, and what is kept in between.

A block's inputs are cut off the graph of whoever made them, so that every block has a graph of its own: backward of one
ends at its inputs. Its outputs end in a scalar (`Gate`) whose backward pass gives them the gradients that have arrived
by then: the outputs themselves need not be kept, so their memory goes when nobody needs it. Gradients given to
torch.autograd.backward would do as well, but its check of their shapes imports sympy: 5 CPU seconds in the first step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import torch
from torch import nn

from hulk_runtime.pipeline.dataflow import Flows
from hulk_runtime.pipeline.micro_batches import Batch, Division, Values, as_values
from hulk_runtime.pipeline.split_backward import Halves
from hulk_runtime.plan.pipeline_schedule import Turn


@dataclass(frozen=True, slots=True)
class _Kept:
    """Of a forward pass: its inputs that have gradients, and the scalar from which the backward pass begins."""

    inputs: Values
    root: torch.Tensor
    gate: "Gate | None"
    """None where the scalar is the loss."""


class Passes:
    """All passes of one step on one device."""

    def __init__(self, flows: Flows, modules: Mapping[str, nn.Module], batch: Batch, division: Division) -> None:
        self._flows = flows
        self._modules = modules
        self._batch = batch
        self._division = division
        self._kept: dict[Turn, _Kept] = {}
        self._halves: dict[Turn, Halves] = {}
        self.losses: list[tuple[int, torch.Tensor]] = []
        """A block, and what its loss adds to that of the global batch."""
        self.results: dict[Turn, Values] = {}
        """Of inference."""

    def samples(self, turn: Turn) -> range:
        """Those that a block computes in a micro-batch."""
        return self._division.pieces[turn[1]][self._flows.component_of(turn[0])]

    def forward(self, turn: Turn, values: Values) -> Values:
        """What a forward block gives to those after it; `values` are what it gets from those before it."""
        block = self._flows.schedule.blocks[turn[0]]
        samples = self.samples(turn)
        is_last, is_training = not self._flows.consumers[turn[0]], self._flows.schedule.is_training
        if not self._flows.producers[turn[0]]:
            values = self._batch.inputs(block.stage, samples)
        elif is_training:
            values = tuple(v.detach().requires_grad_() if v.is_floating_point() else v for v in values)
        with torch.set_grad_enabled(is_training):
            outputs = as_values(self._modules[block.stage](*values))
            if is_training and is_last:
                weight = self._division.weight(turn[1], self._flows.component_of(turn[0]))
                outputs = (self._batch.loss(block.stage, outputs, samples) * weight,)
        if is_training:
            differentiable = tuple(v for v in values if v.requires_grad) if self._flows.producers[turn[0]] else ()
            gate = None if is_last else Gate.behind(outputs)
            self._kept[turn] = _Kept(differentiable, gate.scalar if gate else outputs[0], gate)
        if is_last and is_training:
            self.losses.append((turn[0], outputs[0].detach()))
        elif is_last:
            self.results[turn] = outputs
        return () if is_last else outputs

    def backward(self, turn: Turn, gradients: Sequence[Values]) -> Values:
        """The gradients of the inputs; `gradients` are those of the outputs, from each block that takes them."""
        block = self._flows.schedule.blocks[turn[0]]
        kept = self._kept.pop((block.forward, turn[1]))
        if kept.gate:
            kept.gate.open(_totals(gradients))
        found = self._backward((block.forward, turn[1]), kept.inputs, kept.root)
        return tuple(torch.zeros_like(v) if g is None else g for v, g in zip(kept.inputs, found, strict=True))

    def _backward(self, forward: Turn, inputs: Values, root: torch.Tensor) -> list[torch.Tensor | None]:
        """All of it, or the half that leads to inputs where a block of weights comes later."""
        if self._flows.part_of(forward[0], "weight") is not None:
            module = self._modules[self._flows.schedule.blocks[forward[0]].stage]
            weights = [parameter for parameter in module.parameters() if parameter.requires_grad]
            self._halves[forward] = Halves(root, inputs, weights)
            return self._halves[forward].to_inputs()
        if root.requires_grad:
            torch.autograd.backward(root)
        return [value.grad for value in inputs]

    def weight(self, turn: Turn) -> None:
        """The gradients of the weights, which the backward block has left."""
        self._halves.pop((self._flows.schedule.blocks[turn[0]].forward, turn[1])).to_weights()


@dataclass(slots=True)
class Gate:
    """Where gradients of outputs will come in: a scalar behind those that have some, by place among all that could."""

    places: tuple[int, ...]
    scalar: torch.Tensor = field(init=False)
    gradients: Values = ()

    @classmethod
    def behind(cls, outputs: Values) -> "Gate":
        """Only floating-point numbers can have gradients."""
        floating = [value for value in outputs if value.is_floating_point()]
        gate = cls(tuple(n for n, value in enumerate(floating) if value.requires_grad))
        gate.scalar = _Gate.apply(gate, *(floating[n] for n in gate.places))
        return gate

    def open(self, gradients: Values) -> None:
        """Before the backward pass; `gradients` are those of all outputs that could have some."""
        self.gradients = tuple(gradients[n] for n in self.places)


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Gate, *outputs: torch.Tensor) -> torch.Tensor:
        ctx.gate = gate
        return torch.zeros((), dtype=outputs[0].dtype, device=outputs[0].device) if outputs else torch.zeros(())

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return None, *ctx.gate.gradients


def _totals(gradients: Sequence[Values]) -> Values:
    """The sum over those who take the same outputs."""
    return tuple(reduce(torch.add, each) for each in zip(*gradients, strict=True))
