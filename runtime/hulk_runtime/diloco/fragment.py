"""Parameters that come together at once: the anchor where all replicas began, and what each has moved from there.

With D(m) the outer gradient of replica m, w(m) its weight, and a the mixing (Streaming DiLoCo, arXiv 2501.18512,
algorithm 2):

    D(m) = anchor - own parameters                 when the sum begins
    anchor = outer step(anchor, sum w(m) D(m))     when it has ended, `delay` steps later
    own = a own + (1 - a) anchor

Of a sharded parameter this is about the rank's own shard. Anchors are fp32 where parameters are of fewer bits, so that
outer steps add up that are smaller than a parameter's last digit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.distributed.tensor import DTensor

from hulk_runtime.diloco.outer_step import Factory, FlatStep, Outer, OuterStep, TorchStep
from hulk_runtime.diloco.sums import Feedback, Sum


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A sum that began after a step, of this replica's outer gradient. None: it waits for the replicas to meet."""

    begun: int
    gradient_N: torch.Tensor
    sum: Sum | None


class Fragment:
    """One fragment's state. Sums are begun in `context`, in the same order on all replicas."""

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter], outer: Outer | Factory) -> None:
        self.parameters = dict(parameters)
        locals_ = [local(parameter) for parameter in self.parameters.values()]
        wide = torch.float64 if any(one.dtype is torch.float64 for one in locals_) else torch.float32
        self._sizes = [one.numel() for one in locals_]
        self.anchor_N = torch.cat([one.flatten().to(wide) for one in locals_])
        shapes = [one.shape for one in locals_]
        pieces = [piece.view(shape) for piece, shape in zip(self.split(self.anchor_N), shapes, strict=True)]
        self.outer: OuterStep = FlatStep(self.anchor_N, outer) if isinstance(outer, Outer) else TorchStep(pieces, outer)
        self.feedback: Feedback = Feedback()
        self.begun = 0
        """The step after which the last sum began."""
        self.under_way: UnderWay | None = None

    def split(self, values_N: torch.Tensor) -> Sequence[torch.Tensor]:
        """A vector of the fragment as those of its parameters."""
        return torch.split(values_N, self._sizes)

    def begin_here(self) -> None:
        """The anchor is where the model is now."""
        self.anchor_N.copy_(self._own())

    def outer_gradient(self) -> torch.Tensor:
        """What this replica has moved since all began, downwards."""
        return self.anchor_N - self._own()

    def _own(self) -> torch.Tensor:
        own = [local(parameter).flatten() for parameter in self.parameters.values()]
        return torch.cat([one.to(self.anchor_N.dtype) for one in own])

    def take(self, mean_N: torch.Tensor, mixing: float) -> None:
        """The outer step, and its merge with what the replica has become meanwhile."""
        self.outer.take(mean_N)
        self.merge(mixing)

    def merge(self, mixing: float) -> None:
        """Own parameters become what all have in common, but for a part."""
        for parameter, anchor_N in zip(self.parameters.values(), self.split(self.anchor_N), strict=True):
            own, anchor = local(parameter), anchor_N.view(local(parameter).shape)
            if mixing:
                own.copy_(own.to(anchor.dtype).mul_(mixing).add_(anchor, alpha=1 - mixing))
            else:
                own.copy_(anchor)


def local(parameter: torch.Tensor) -> torch.Tensor:
    """What of a parameter is on this rank, to be written to."""
    own = parameter.detach()
    return own.to_local() if isinstance(own, DTensor) else own
