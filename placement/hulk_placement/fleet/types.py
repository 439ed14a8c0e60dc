"""What the fleet's policy decides from, and its decision: frozen data, without a cluster behind it.

Words: a job's *mapping* is machine -> number of its workers there; *work* is counted in samples: one step does
`work_per_step` of them where the global batch is fixed, else workers × `work_per_worker_step`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from hulk_placement.fleet.utility import Utility
from hulk_placement.workload import Workload

Mapped = Mapping[str, int]
"""Machine -> number of one job's workers there, none of them 0."""


@dataclass(frozen=True, slots=True)
class Ring:
    """What the paper's step time needs of a job: tau = (d (w-1)/w)(2/b + 1/G) + t_f M + t_b + gamma."""

    gradient_bytes: float
    """d, bytes of gradients that the ring sums."""
    forward_s: float
    """t_f, seconds of forward pass per sample."""
    samples: int
    """M, samples of a worker's mini-batch."""
    backward_s: float
    """t_b, seconds of the backward pass."""
    latency_s: float = 0.0
    """gamma, seconds per step that the ring waits whatever it sends."""
    bandwidth_bytes_per_s: float = math.inf
    """b, what the job reserves on each link that its ring crosses."""
    reduce_bytes_per_s: float = math.inf
    """G, how fast an accelerator adds gradients up."""

    def __post_init__(self) -> None:
        positive = self.bandwidth_bytes_per_s > 0 and self.reduce_bytes_per_s > 0
        amounts = (self.gradient_bytes, self.forward_s, self.samples, self.backward_s, self.latency_s)
        if not positive or not all(0 <= amount < math.inf for amount in amounts):
            raise ValueError(
                f"ring: bandwidth {self.bandwidth_bytes_per_s} B/s and adding {self.reduce_bytes_per_s} B/s must be "
                f"> 0, the rest of {amounts} finite and >= 0"
            )


@dataclass(frozen=True, slots=True)
class Job:
    """A job that wants workers; ValueError where its numbers contradict each other.

    `candidates` says how many of its workers each machine admits by cpu, memory and slots, those that it has there
    among them; None: every machine, as many as its accelerators allow. `memory_bytes_per_worker` 0: not known, any
    accelerator will do. `restart_s` is what stopping and starting again costs: checkpoint, image, rendezvous.
    `moved_s` is when it last started or moved, `served_s` the accelerator-seconds that it has held so far.
    A job that is not `preemptible` keeps the mapping that it runs on, beyond a quota too. Rings go over links
    of which nothing is known only with `allow_unknown_links`.
    """

    key: str
    utility: Utility
    total_work: float
    namespace: str = "default"
    priority: int = 0
    min_workers: int = 1
    max_workers: int = 1
    accelerators_per_worker: int = 1
    memory_bytes_per_worker: int = 0
    candidates: Mapped | None = None
    arrived_s: float = 0.0
    work_done: float = 0.0
    work_per_worker_step: float = 1.0
    work_per_step: float | None = None
    restart_s: float = 0.0
    preemptible: bool = True
    allow_unknown_links: bool = False
    moved_s: float = -math.inf
    served_s: float = 0.0
    watts_per_worker: float = 0.0
    ring: Ring | None = None
    workload: Workload | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.min_workers <= self.max_workers or self.accelerators_per_worker < 0:
            raise ValueError(
                f"job {self.key}: {self.min_workers} to {self.max_workers} workers of {self.accelerators_per_worker} "
                "accelerators must be at least 1, min not above max, accelerators >= 0"
            )
        if not self.total_work > 0 or not 0 <= self.work_done < math.inf or not self.step_work(1) > 0:
            raise ValueError(
                f"job {self.key}: {self.work_done} of {self.total_work} samples done, {self.step_work(1):g} by one "
                "worker's step: the first must be >= 0 and finite, the others > 0"
            )
        if self.restart_s < 0 or self.watts_per_worker < 0 or self.memory_bytes_per_worker < 0:
            raise ValueError(
                f"job {self.key}: restart {self.restart_s} s, {self.watts_per_worker} W and "
                f"{self.memory_bytes_per_worker} bytes per worker must be >= 0"
            )

    @property
    def left(self) -> float:
        """Samples that are not done yet."""
        return max(0.0, self.total_work - self.work_done)

    def step_work(self, count: int) -> float:
        """Samples that one step of so many workers does."""
        return count * self.work_per_worker_step if self.work_per_step is None else self.work_per_step


class StepTimes(Protocol):
    """What one step of a job takes on a mapping."""

    def step_s(self, job: Job, mapping: Mapped) -> float:
        """Seconds of one step, > 0; ValueError where the job says too little to tell."""
        ...


class MoveKind(StrEnum):
    """What happens to a job by a decision."""

    START = "start"
    GROW = "grow"
    SHRINK = "shrink"
    MOVE = "move"
    """As many workers on other machines."""
    PREEMPT = "preempt"
    """Stopped, though its work is not done."""


@dataclass(frozen=True, slots=True)
class Move:
    """One job whose mapping changes; empty: no workers."""

    job: str
    kind: MoveKind
    before: Mapped
    after: Mapped


@dataclass(frozen=True, slots=True)
class Settings:
    """How to decide.

    `policy` is one of `policies.POLICIES`. `quotas` caps the accelerators of a namespace's jobs together, of which jobs
    that are not asked about hold `taken`; `shares` is
    the weight of a namespace's jobs beside others' where they compete, 1 when not named: `gadget` and `exact` multiply
    gains by it, `drf` divides what a job holds. `until_s` is when whatever is
    not reached yet counts for nothing (a simulation's end), inf where there is none. `machine_bytes_per_s` is what a
    machine's network card carries each way, where it is known. A job moves or resizes only where that gains more than
    (1 + `hysteresis`) times what its restart costs, and not within `settle_s` of its last move.
    """

    policy: str = "gadget"
    slot_s: float = 60.0
    lookahead_slots: int = 200
    hysteresis: float = 0.2
    settle_s: float = 0.0
    seed: int = 0
    quotas: Mapping[str, int] = field(default_factory=dict)
    taken: Mapping[str, int] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    until_s: float = math.inf
    machine_bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    strict_fifo: bool = False
    """fifo: nobody overtakes a job that cannot start, not even one that never can."""
    fixed_workers: Mapping[str, int] = field(default_factory=dict)
    """fifo, las: the workers that a job asks for, where it is not max_workers."""
    local_search: bool = True
    restart_costs: bool = True
    """Weigh what a restart costs; without, only to see what weighing it is worth."""
    explain: bool = True
    """Say reasons, expected starts and the bound; a simulation of many decisions can do without."""

    def __post_init__(self) -> None:
        if not 0 < self.slot_s < math.inf or self.lookahead_slots < 1 or self.hysteresis < 0 or self.settle_s < 0:
            raise ValueError(
                f"slot {self.slot_s} s must be > 0, look-ahead {self.lookahead_slots} slots >= 1, "
                f"hysteresis {self.hysteresis} and settling {self.settle_s} s >= 0"
            )
        for what, figures in (("quota", self.quotas), ("share", self.shares)):
            for namespace, figure in figures.items():
                if figure < 0 or (what == "share" and figure == 0):
                    raise ValueError(
                        f"namespace {namespace}: {what} {figure} must be {'>' if what == 'share' else '>='} 0"
                    )


@dataclass(frozen=True, slots=True)
class Allocation:
    """A decision: who has which workers from now on, and what to say to the others.

    `workers` has every job that runs. `reasons` has a sentence for each job that waits, moves or is stopped;
    `position` its place in the queue, from 1, and `expected_start_s` when its turn is expected, where that can be told.
    `bound` is the relaxation's upper bound of the gain per second that `achieved` is part of.
    """

    workers: Mapping[str, Mapped]
    moves: Sequence[Move] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    position: Mapping[str, int] = field(default_factory=dict)
    expected_start_s: Mapping[str, float] = field(default_factory=dict)
    bound: float = 0.0
    achieved: float = 0.0
    shares: Mapping[str, float] = field(default_factory=dict)
    """Of the accelerators that are given out, each namespace's part."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Seconds of a job's steps on the mapping that they were observed on."""

    mapping: Mapped
    step_s: float

    def __post_init__(self) -> None:
        if not self.mapping or not 0 < self.step_s < math.inf:
            raise ValueError(f"observed step of {self.step_s} s on {len(self.mapping)} machines must be > 0 and finite")
