"""How replicas come together, in each row of the table, and what is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hulk_runtime.collective.reduction.compression import CODECS
from hulk_runtime.plan import wire

from bench.equal_plan import equal_plan


@dataclass(frozen=True, slots=True)
class Mode:
    """`sync_every` 0: gradients are summed in every step. `warm`: the part of all steps in which they are, first.

    `inner`: the inner learning rate beside the one of every step.
    """

    name: str
    sync_every: int = 0
    fragments: int = 1
    delay: int = 0
    compression: str = "none"
    outer_learning_rate: float = 0.7
    outer_momentum: float = 0.9
    warm: float = 0.0
    inner: float = 1.0

    def sent_bytes(self, num_values: int, num_ranks: int, num_steps: int) -> float:
        """What a rank sends to sums in a step, in the mean over all."""
        around = 2 * (num_ranks - 1) / num_ranks
        exact = 4 * num_values * around
        if not self.sync_every:
            return exact
        each = exact if self.compression == "none" else CODECS[self.compression].encoded_bytes(num_values) * around
        return self.warm * exact + (1 - self.warm) * each / min(self.sync_every, num_steps)


MODES = (
    Mode("every step"),
    Mode("DiLoCo", 50),
    Mode("DiLoCo, warm", 50, warm=0.2),
    Mode("DiLoCo, warm, outer 1, momentum 0.5", 50, outer_learning_rate=1.0, outer_momentum=0.5, warm=0.2),
    Mode("streaming, warm", 50, 4, 5, warm=0.2),
    Mode("streaming, warm, int8", 50, 4, 5, "int8", warm=0.2),
    Mode("streaming, warm, int4", 50, 4, 5, "int4", warm=0.2),
)
"""What the table shows."""

OUTER = (
    *(
        Mode(f"outer {rate:g}, momentum {momentum:g}", 50, outer_learning_rate=rate, outer_momentum=momentum)
        for rate, momentum in ((1.0, 0.0), (1.0, 0.5), (0.7, 0.8), (0.4, 0.9), (1.5, 0.5))
    ),
    *(Mode(f"inner rate x {inner:g}", 50, inner=inner) for inner in (1.5, 2.0, 3.0)),
    *(Mode(f"every step for {warm:.0%} first", 50, warm=warm) for warm in (0.05, 0.1, 0.4)),
    *(
        Mode(f"the same for 10 %, outer {rate:g}, momentum {momentum:g}", 50, 1, 0, "none", rate, momentum, 0.1)
        for rate, momentum in ((1.0, 0.0), (1.0, 0.5), (0.7, 0.8))
    ),
    *(Mode(f"streaming, {warm:.0%} first", 50, 4, 5, warm=warm) for warm in (0.05, 0.1)),
    Mode("4 fragments at once, 10% first", 50, 4, warm=0.1),
    *(
        Mode(f"{parts} at once, {late} late, outer 1, momentum {beta:g}", 50, parts, late, "none", 1.0, beta, 0.2)
        for parts, late, beta in ((1, 0, 0.0), (4, 5, 0.5))
    ),
    Mode("rounds of 10, 10 % first", 10, warm=0.1),
    Mode("rounds of 10, outer 1, momentum 0.5, 10 % first", 10, outer_learning_rate=1.0, outer_momentum=0.5, warm=0.1),
)
"""What was looked at for the defaults: where a gap to every step comes from."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A model, how much of the text a rank reads in a step, and the learning rate.

    `is_llama`: transformers' Llama of these dimensions in place of the bundled GPT.
    """

    name: str
    model: wire.Model
    share: int
    learning_rate: float
    num_ranks: int
    num_held_out: int
    precision: Literal["fp32", "bf16"] = "fp32"
    is_llama: bool = False

    @property
    def says(self) -> str:
        """What is trained, in words."""
        model = self.model
        kind = "Llama" if self.is_llama else "GPT"
        return f"{kind} of {model.layers} layers of {model.hidden}, {self.precision}"

    def plan(self) -> wire.Plan:
        """What the example's task reads of one."""
        return equal_plan("bench/diloco", self.model, self.num_ranks, self.share, precision=self.precision)


def _gpt(layers: int, hidden: int, length: int) -> wire.Model:
    return wire.Model(layers=layers, hidden=hidden, heads=hidden // 32, sequence_length=length, vocabulary=256)


TRAINED = {
    "small": Trained("small", _gpt(2, 64, 64), 2, 1e-3, 3, 128),
    "1m": Trained("1m", _gpt(4, 128, 64), 4, 1e-3, 2, 128),
    "10m": Trained("10m", _gpt(6, 384, 128), 2, 6e-4, 2, 64, "bf16"),
    "llama": Trained("llama", _gpt(4, 128, 64), 4, 1e-3, 2, 128, is_llama=True),
}
