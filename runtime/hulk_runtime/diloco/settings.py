"""How often replicas come together, and how: as a script says, or else as its job."""

import math
from dataclasses import dataclass
from typing import Final

from hulk_runtime.collective import planned_sums
from hulk_runtime.collective.reduction.compression import CODECS
from hulk_runtime.diloco.outer_step import Outer
from hulk_runtime.plan.wire import Plan
from hulk_runtime.whole_numbers import whole_number

SYNC_EVERY: Final = 50
LATE_MIXING: Final = 0.5
"""Of the paper's: as much of what a replica has become meanwhile as of what all have in common."""
COMPRESSIONS: Final = ("none", *CODECS)


@dataclass(frozen=True, slots=True)
class Settings:
    """`sync_every` optimizer steps are a round, in which each of `num_fragments` fragments comes together once.

    Its sum may take `delay` steps. `mixing` is the part of a replica's own parameters that is left after that. In the
    first `warmup` steps gradients are summed in every step.
    """

    sync_every: int = SYNC_EVERY
    num_fragments: int = 1
    delay: int = 0
    mixing: float = 0.0
    compression: str = "none"
    warmup: int = 0

    def __post_init__(self) -> None:
        if self.sync_every < 1:
            raise ValueError(f"sync_every {self.sync_every} must be >= 1")
        if not 1 <= self.num_fragments <= self.sync_every:
            raise ValueError(f"{self.num_fragments} fragments: at least 1, at most sync_every, {self.sync_every}")
        if not 0 <= self.delay < self.sync_every:
            raise ValueError(f"delay {self.delay} must be >= 0 and below sync_every, {self.sync_every}")
        if not (math.isfinite(self.mixing) and 0 <= self.mixing < 1):
            raise ValueError(f"mixing {self.mixing} must be in [0, 1): of 1 replicas would never come together")
        if self.warmup < 0:
            raise ValueError(f"warmup of {self.warmup} steps must be >= 0")
        if self.compression not in COMPRESSIONS:
            raise ValueError(f"compression {self.compression!r} must be one of {', '.join(COMPRESSIONS)}")

    @classmethod
    def chosen(
        cls,
        sync_every: int | None,
        num_fragments: int | None,
        delay: int | None,
        mixing: float | None,
        compression: str | None,
        warmup: int | None,
    ) -> "Settings":
        """What is None is as the job says, as far as a script's own rounds have room for it."""
        job = Job.here()
        counts = {"sync_every": sync_every, "fragments": num_fragments, "delay": delay, "warmup": warmup}
        given = {name: whole_number(name, count) for name, count in counts.items() if count is not None}
        steps = given.get("sync_every", job.sync_every)
        late = given.get("delay", max(0, min(job.delay, steps - 1)))
        return cls(
            steps,
            given.get("fragments", max(1, min(job.num_fragments, steps))),
            late,
            (LATE_MIXING if late else 0.0) if mixing is None else mixing,
            job.compression if compression is None else compression,
            given.get("warmup", job.warmup),
        )

    def begins(self, fragment: int, step: int) -> bool:
        """Whether a fragment's sum begins after a step, from 1.

        The fragments of a round begin at even distances, the last one at its end: of 3 in rounds of 9 steps fragment 0
        after steps 3, 12, 21..., fragment 2 after 9, 18, 27..., all as much later as the warmup is long.
        """
        offset = self.warmup + (fragment + 1) * self.sync_every // self.num_fragments
        return step > self.warmup and (step - offset) % self.sync_every == 0


@dataclass(frozen=True, slots=True)
class Job:
    """What a job's plan says of its local steps."""

    sync_every: int = SYNC_EVERY
    num_fragments: int = 1
    delay: int = 0
    compression: str = "none"
    warmup: int = 0
    outer: Outer | None = None

    @classmethod
    def here(cls) -> "Job":
        """Of the plan that this process's environment names; a run by hand has none."""
        plan = planned_sums.plan()
        return cls() if plan is None else cls.of(plan)

    @classmethod
    def of(cls, plan: Plan) -> "Job":
        """Of a plan; of replicas that come together in every step it says the compression alone."""
        compression = plan.collective.compression if plan.collective is not None else "none"
        if plan.sync is None or plan.sync.mode != "local":
            return cls(compression=compression)
        sync = plan.sync
        return cls(sync.inner_steps, sync.fragments, sync.delay_steps, compression, sync.warmup_steps, outer_of(plan))


def outer_of(plan: Plan) -> Outer:
    """The outer step of a plan in mode local."""
    assert plan.sync is not None
    return Outer(plan.sync.outer_learning_rate, plan.sync.outer_momentum)
