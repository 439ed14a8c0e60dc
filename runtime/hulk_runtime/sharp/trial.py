"""What SHARP trains: trials, each a model that is a list of layers, and what has become of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import nn

State = Literal["running", "succeeded", "failed", "stopped"]
Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Model:
    """Layers in their order, each from one tensor to one tensor, and how they are trained.

    `loss` is of the last layer's output and the targets. `optimizer` is called once per shard with its parameters: its
    update of a parameter must need no other parameter (no norm over all gradients). `batches` gives the inputs and
    targets of a step, counted from 1, on the host, always the same for the same step, and never larger than those of
    step 1.
    """

    layers: Sequence[nn.Module]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    batches: Callable[[int], Batch]
    metric: str = "loss"
    """The name under which the loss is reported."""


@dataclass(frozen=True)
class Trial:
    """One model to train for `num_steps` mini-batches.

    `make` is called after `torch.manual_seed(seed)`; dropout goes on from there with a state of the trial's own.
    """

    name: str
    make: Callable[[], Model]
    num_steps: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.name or self.num_steps < 1:
            raise ValueError(f"trial {self.name!r} of {self.num_steps} steps: needs a name and at least 1 step")


@dataclass(frozen=True)
class Step:
    """One completed mini-batch of a trial, as it is reported. `elapsed_s` counts from the start of the run.

    `device_s` is the time of its units alone on a device, as measured: what planning other runs needs.
    """

    trial: str
    step: int
    metric: str
    value: float
    elapsed_s: float
    device_s: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a trial. `losses` are of the steps of this run, the last of them `step`."""

    trial: str
    state: State
    step: int
    metric: str
    losses: tuple[float, ...]
    reason: str = ""
    parameters: dict[str, torch.Tensor] = field(default_factory=dict)
    """By the number of the layer and the name in it, `0.weight`; buffers too."""

    @property
    def value(self) -> float | None:
        """The metric after the last step; None before the first."""
        return self.losses[-1] if self.losses else None
