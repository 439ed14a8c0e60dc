"""Gradients of the first steps -> their mean over the replicas, before the optimizer uses them.

From a random start replicas that train apart go different ways, which no mean brings together: the first steps are
those of every replica. DistributedDataParallel sums over all replicas by itself then; for any other model this does,
after the backward pass.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from hulk_runtime.diloco.fragment import local
from hulk_runtime.diloco.sums import Feedback, Sums


class Gradients:
    """Of some parameters. `share` is what this replica's count in the mean."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter], sums: Sums, share: float) -> None:
        self._parameters, self._sums, self._share = parameters, sums, share

    def before_step(
        self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """As torch calls a hook; where `step` has a closure, gradients are there after each call of that."""
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self.mean()
            return None
        return (args[0], self._around(closure)), {}

    def _around(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def computed() -> Any:
            found = closure()
            self.mean()
            return found

        return computed

    @torch.no_grad()
    def mean(self) -> None:
        """In place. A parameter without a gradient here gets one where another replica has it."""
        grads = [parameter.grad for parameter in self._parameters]
        wide = torch.float64 if any(one.dtype is torch.float64 for one in self._parameters) else torch.float32
        parts = [
            torch.zeros_like(local(parameter)) if grad is None else local(grad)
            for parameter, grad in zip(self._parameters, grads, strict=True)
        ]
        present = torch.tensor([float(grad is not None) for grad in grads], dtype=wide, device=parts[0].device)
        vector_N = torch.cat([*(part.flatten().to(wide) * self._share for part in parts), present])
        summed_N, _ = self._sums.begin(vector_N, Feedback(), -1).wait()
        means = torch.split(summed_N[: -len(parts)], [part.numel() for part in parts])
        for parameter, part, mean_N, count in zip(
            self._parameters, parts, means, summed_N[-len(parts) :].tolist(), strict=True
        ):
            if count:
                if parameter.grad is None:
                    parameter.grad = _like(parameter, part)
                local(parameter.grad).copy_(mean_N.view(part.shape))


def _like(parameter: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """A gradient as its parameter is sharded."""
    if not isinstance(parameter, DTensor):
        return part
    return DTensor.from_local(
        part,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
