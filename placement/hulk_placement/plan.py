"""A plan: who trains which share, in which ring order, and how long a step is predicted to take."""

from __future__ import annotations

from dataclasses import dataclass

from hulk_placement.collective.classes import CollectivePlan
from hulk_placement.topology import Pair


@dataclass(frozen=True, slots=True)
class WorkerSlot:
    """One worker (pod): the machine it runs on and the accelerators it holds there, one rank each."""

    machine: str
    region: str
    num_accelerators: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one step is predicted to take, in seconds, and what it needs.

    `communication_s` is what a step waits for it; with local SGD a step's part of what an outer one waits.
    `rank_compute_s` has one entry per rank; `bottleneck` is the (source, target) pair of machines whose link holds the
    all-reduce back, None without communication. `calibrated` says that every machine's speed was measured.
    """

    step_s: float
    compute_s: float
    communication_s: float
    bottleneck: Pair | None
    rank_compute_s: tuple[float, ...]
    memory_bytes: int
    calibrated: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """Degrees of data, pipeline and tensor parallelism; their product is the number of ranks."""

    data: int
    pipeline: int = 1
    tensor: int = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """Workers in rank order, which is ring order: gloo's data flows from rank r to rank r - 1.

    `algorithm` "ring" is gloo's all-reduce, "wan" is Hulk's own by the flows of `collective`. With `inner_steps` the
    replicas come together only after so many steps (local SGD). A worker's accelerators are consecutive ranks. `shares`
    are sequences per rank and sum to the global batch. `num_buckets` gradient buckets are reduced at the same time.
    `optimality_gap` bounds (step - best possible) / step by the same evaluator; 0 means proven optimal; see
    `gap_num_workers`. `iterations` is the work done, `why` the reasons in sentences.
    """

    key: str
    attempt: int
    workers: tuple[WorkerSlot, ...]
    shares: tuple[int, ...]
    micro_batch: int
    num_buckets: int
    prediction: Prediction
    layout: Layout
    algorithm: str = "ring"
    collective: CollectivePlan | None = None
    inner_steps: int | None = None
    optimality_gap: float = 0.0
    iterations: int = 0
    why: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        num_ranks = sum(worker.num_accelerators for worker in self.workers)
        if not self.workers or num_ranks != len(self.shares):
            raise ValueError(f"{self.key}: {len(self.shares)} shares for {num_ranks} ranks")
        if min(self.shares) < 1 or self.micro_batch < 1 or self.num_buckets < 1:
            raise ValueError(
                f"{self.key}: smallest share {min(self.shares)}, micro-batch {self.micro_batch} and "
                f"{self.num_buckets} buckets must be >= 1"
            )

        if (self.algorithm == "wan") != (self.collective is not None) or self.algorithm not in ("ring", "wan"):
            flows = "none" if self.collective is None else len(self.collective.classes)
            raise ValueError(f"{self.key}: algorithm {self.algorithm} with {flows} classes of flows")
        if self.inner_steps is not None and self.inner_steps < 1:
            raise ValueError(f"{self.key}: {self.inner_steps} inner steps must be >= 1")

    @property
    def gap_num_workers(self) -> int | None:
        """How many workers the plans have that the gap speaks of; None: any number.

        Without measured speeds only plans of as many workers can be compared: they differ in communication alone.
        """
        return None if self.prediction.calibrated else len(self.workers)

    @property
    def rank_machines(self) -> tuple[str, ...]:
        """The machine of every rank."""
        return tuple(worker.machine for worker in self.workers for _ in range(worker.num_accelerators))

    def accelerators(self) -> dict[str, int]:
        """Accelerators the plan holds, by machine."""
        held: dict[str, int] = {}
        for worker in self.workers:
            held[worker.machine] = held.get(worker.machine, 0) + worker.num_accelerators
        return held
