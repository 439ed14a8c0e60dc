"""How the replicas of a job bring their gradients together: the user's wish, before the planner has chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass

MODES = ("auto", "ring", "wan", "local")
COMPRESSIONS = ("none", "bf16", "int8", "int4")
STREAMED = ("none", "int8", "int4")
"""How outer gradients may be sent where the planner chooses, those that lose least first."""
WARMUP_PART = 5
"""Of all steps one in so many is before replicas train apart, if not said (docs/benchmarks/compression.md)."""
AT_ONCE, LATE = (1.0, 0.5), (0.7, 0.9)
"""Outer learning rate and momentum, if not said: of fragments that are merged at once, or late (the same page)."""
ON_REGION_LOSS = ("restart", "continue")
ENCRYPTIONS = ("wan", "none")


@dataclass(frozen=True, slots=True)
class Rounds:
    """Of mode "local" what the plan passes on: DiLoCo's outer step, and how programs that can bring layers together.

    `fragments` of the layers come together in turn in each round, each merged `delay_steps` after its sum began. In the
    first `warmup_steps` steps gradients are summed in every step. None of these is for the planner to choose, by the
    links; with `any_precision` also whether outer gradients are sent as int8 or int4. None of the outer step is by the
    delay.
    """

    outer_learning_rate: float | None = None
    outer_momentum: float | None = None
    fragments: int | None = 1
    delay_steps: int | None = 0
    warmup_steps: int = 0
    any_precision: bool = False

    def __post_init__(self) -> None:
        if self.outer_learning_rate is not None and not 0 < self.outer_learning_rate < math.inf:
            raise ValueError(f"sync: outer learning rate {self.outer_learning_rate} must be > 0")
        if self.outer_momentum is not None and not 0 <= self.outer_momentum < 1:
            raise ValueError(f"sync: outer momentum {self.outer_momentum} must be in [0, 1)")
        if self.least_fragments < 1 or self.least_delay < 0 or self.warmup_steps < 0:
            raise ValueError(
                f"sync: {self.fragments} fragments must be >= 1, {self.delay_steps} delay steps and "
                f"{self.warmup_steps} warmup steps >= 0"
            )

    def planned(self, fragments: int, delay_steps: int) -> Rounds:
        """With nothing left open."""
        rate, momentum = LATE if delay_steps else AT_ONCE
        return Rounds(
            rate if self.outer_learning_rate is None else self.outer_learning_rate,
            momentum if self.outer_momentum is None else self.outer_momentum,
            fragments,
            delay_steps,
            self.warmup_steps,
        )

    @property
    def least_fragments(self) -> int:
        """Those that are given, else the fewest there can be."""
        return 1 if self.fragments is None else self.fragments

    @property
    def least_delay(self) -> int:
        """The steps that are given, else none."""
        return 0 if self.delay_steps is None else self.delay_steps

    @property
    def may_overlap(self) -> bool:
        """Whether training may go on while replicas come together."""
        return self.delay_steps != 0


DILOCO = Rounds()
"""As the paper has it, all layers at once."""


@dataclass(frozen=True, slots=True)
class Sync:
    """What a job asks of its synchronisation.

    `mode`: "ring" is the stock backend's all-reduce, "wan" is Hulk's own, "local" takes `inner_steps` optimizer steps
    between two synchronisations, "auto" leaves the choice to the planner. `compression` is of WAN hops only.
    `on_region_loss` "continue": the workers that are left go on without a region that was cut off.
    `fixed_shares`: Hulk's own keeps the plan's shares whatever the links do. `encryption` is of Hulk's own as well, and
    of what crosses regions alone. `rounds` is of "local".
    """

    mode: str = "auto"
    inner_steps: int = 50
    compression: str = "none"
    on_region_loss: str = "restart"
    fixed_shares: bool = False
    encryption: str = "wan"
    rounds: Rounds = DILOCO

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"sync: mode {self.mode!r} must be one of {', '.join(MODES)}")
        if self.compression not in COMPRESSIONS:
            raise ValueError(f"sync: compression {self.compression!r} must be one of {', '.join(COMPRESSIONS)}")
        if self.on_region_loss not in ON_REGION_LOSS:
            raise ValueError(f"sync: on region loss {self.on_region_loss!r} must be one of {', '.join(ON_REGION_LOSS)}")
        if self.encryption not in ENCRYPTIONS:
            raise ValueError(f"sync: encryption {self.encryption!r} must be one of {', '.join(ENCRYPTIONS)}")
        if self.inner_steps < 1:
            raise ValueError(f"sync: {self.inner_steps} inner steps must be >= 1")
        if self.rounds.least_fragments > self.inner_steps or self.rounds.least_delay >= self.inner_steps:
            raise ValueError(
                f"sync: {self.rounds.fragments} fragments, merged {self.rounds.delay_steps} steps late, in rounds of "
                f"{self.inner_steps} steps"
            )
        if self.mode == "ring" and (self.compression != "none" or self.on_region_loss != "restart"):
            raise ValueError(
                f"sync: compression {self.compression!r} and on region loss {self.on_region_loss!r} "
                "need another mode than 'ring'"
            )

    @property
    def is_local(self) -> bool:
        """Whether replicas take optimizer steps of their own (local SGD)."""
        return self.mode == "local"

    @property
    def planned_inner_steps(self) -> int | None:
        """The `inner_steps` of a plan for this job; None where replicas come together after every step."""
        return self.inner_steps if self.is_local else None

    @property
    def precisions(self) -> tuple[str, ...]:
        """The compressions among which the planner chooses, those that lose least first."""
        is_open = self.is_local and self.rounds.any_precision and self.compression == "none"
        return STREAMED if is_open else (self.compression,)

    @property
    def may_use_wan(self) -> bool:
        """Whether a plan for this job may run Hulk's own collective."""
        return self.mode != "ring"
