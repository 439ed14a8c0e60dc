"""Backward in two: gradients of inputs first, of weights later, as zero-bubble schedules need (Qi et al., ICLR 2024).

The graph of a stage has nodes through which gradients go on to its inputs, and others that lead to weights alone. Where
the latter branch off, the first half keeps the gradient that arrives; the second half goes on from there, so that
nothing is computed twice.

    y = relu(x W1) W2     first half:   gradient of y -> (kept at the 2nd product) -> relu -> (kept at the 1st) -> x
                          second half:  2nd product -> W2,   1st product -> W1

A weight that is used twice in the stage, as a tied one may be, could be reached from one such place through another:
then the second half runs the whole graph once more, which is slower and as right.

The first second half imports sympy, which torch needs to look at gradients that it is given: 5 CPU seconds.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from hulk_runtime.pipeline.micro_batches import Values


@dataclass(slots=True)
class _Branch:
    """A node on the way to inputs, the weights that branch off there, and the gradients that arrived."""

    node: Node
    weights: list[torch.Tensor]
    arrived: tuple[torch.Tensor | None, ...] = ()


@dataclass(slots=True)
class Halves:
    """The backward pass of one block of one micro-batch; it begins from the scalar `root`."""

    root: torch.Tensor
    inputs: Values
    weights: Sequence[torch.Tensor]
    _branches: list[_Branch] = field(default_factory=list)
    _is_whole: bool = False

    def to_inputs(self) -> list[torch.Tensor | None]:
        """The gradients of the inputs."""
        if not self.inputs or not self.root.requires_grad:
            self._is_whole = True
            return [None] * len(self.inputs)
        self._branches = _branches(self)
        num_uses = Counter(id(weight) for branch in self._branches for weight in branch.weights)
        self._is_whole = max(num_uses.values(), default=0) > 1 or set(num_uses) < set(map(id, self.weights))
        hooks = [branch.node.register_prehook(_keep(branch)) for branch in self._branches if not self._is_whole]
        found = torch.autograd.grad(self.root, self.inputs, retain_graph=True, allow_unused=True)
        for hook in hooks:
            hook.remove()
        return list(found)

    def to_weights(self) -> None:
        """The gradients of the weights, added to what these have."""
        if not self.root.requires_grad or not self.weights:
            return
        if self._is_whole:
            _add(self.weights, torch.autograd.grad(self.root, self.weights, allow_unused=True))
        for branch in self._branches:
            there = [(n, gradient) for n, gradient in enumerate(branch.arrived) if gradient is not None]
            if there and not self._is_whole:
                edges = [GradientEdge(branch.node, n) for n, _ in there]
                found = torch.autograd.grad(edges, branch.weights, [g for _, g in there], allow_unused=True)
                _add(branch.weights, found)


def _keep(branch: _Branch):  # type: ignore[no-untyped-def]  # torch has no name for what a hook is
    def hook(arrived: tuple[torch.Tensor | None, ...]) -> None:
        branch.arrived = arrived

    return hook


def _branches(halves: Halves) -> list[_Branch]:
    """Where ways to weights leave those to inputs."""
    to_inputs = {get_gradient_edge(value).node for value in halves.inputs}
    leaf = {get_gradient_edge(weight).node: weight for weight in halves.weights}
    alone: dict[Node, list[torch.Tensor]] = {}
    found = []
    for node in _reached([get_gradient_edge(halves.root).node]):
        behind = [child for child, _ in node.next_functions if child is not None]
        if node not in to_inputs and any(child in to_inputs for child in behind):
            to_inputs.add(node)
        led = {id(w): w for child in behind if child not in to_inputs for w in alone.get(child, ())}
        if node in leaf:
            led[id(leaf[node])] = leaf[node]
        if node not in to_inputs:
            alone[node] = list(led.values())
        elif led:
            found.append(_Branch(node, list(led.values())))
    return found


def _reached(roots: Iterable[Node]) -> list[Node]:
    """All nodes that gradients reach from the roots, each behind those that it leads to."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [(root, False) for root in roots]
    while stack:
        node, is_left = stack.pop()
        if is_left:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((child, False) for child, _ in node.next_functions if child is not None)
    return order


def _add(weights: Sequence[torch.Tensor], gradients: Iterable[torch.Tensor | None]) -> None:
    for weight, gradient in zip(weights, gradients, strict=True):
        if gradient is not None:
            weight.grad = gradient if weight.grad is None else weight.grad + gradient
