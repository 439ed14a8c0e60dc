"""A plan: who trains which share, in which ring order, and how long a step is predicted to take."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from hulk_placement.collective.plan import CollectivePlan
from hulk_placement.topology import Pair

NOT_PROVEN = "not proven: speeds are assumed until the preflight"
"""In place of any bound, of a plan whose machines' speeds were not measured."""


@dataclass(frozen=True, slots=True)
class WorkerSlot:
    """One worker (pod): the machine it runs on and the accelerators it holds there, one rank each."""

    machine: str
    region: str
    num_accelerators: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one step is predicted to take, in seconds, and what it needs.

    `step_s` is `compute_s` of the cell that computes longest, `bubble_s` in which pipelines fill, drain and wait for
    transfers, and `communication_s` that a step then still waits for the replicas to come together; with local SGD a
    step's part of what an outer one waits. `tied_s` of that are for parameters that stages share. `overhead_s` is what
    a step takes besides: the optimizer, and what ends a step. `memory_bytes`: of the accelerator that holds most.
    `price`: of the accelerators for a step and of what it sends between regions.
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
    bubble_s: float = 0.0
    tied_s: float = 0.0
    price: float = 0.0
    overhead_s: float = 0.0

    @property
    def utilisation(self) -> float:
        """The part of a step in which replicas do not wait for one another; of one that takes no time, all."""
        return 1 - self.communication_s / self.step_s if self.step_s else 1.0


@dataclass(frozen=True, slots=True)
class Layout:
    """Degrees of data, pipeline, tensor and sharded parallelism; their product is the number of ranks.

    `data` replicas, each of which divides its parameters among `shard` ranks that have sequences of their own.
    """

    data: int
    pipeline: int = 1
    tensor: int = 1
    shard: int = 1

    def __post_init__(self) -> None:
        if min(self.data, self.pipeline, self.tensor, self.shard) < 1:
            raise ValueError(f"layout {self.words}: every degree must be >= 1")

    @property
    def words(self) -> str:
        """The degrees, data x pipeline x tensor, and the shards where there are any.

        >>> Layout(2, 3).words, Layout(2, shard=4).words
        ('2 x 3 x 1', '2 x 1 x 1 of 4 shards')
        """
        degrees = f"{self.data} x {self.pipeline} x {self.tensor}"
        return degrees + (f" of {self.shard} shards" if self.shard > 1 else "")

    @property
    def width(self) -> int:
        """Ranks of a cell, one stage of one replica: they run (shard, tensor)."""
        return self.shard * self.tensor

    @property
    def num_ranks(self) -> int:
        """One rank an accelerator."""
        return self.data * self.pipeline * self.width


NOT_PREDICTED = Prediction(0.0, 0.0, 0.0, None, (), 0, calibrated=False)
"""Of a plan that is being made."""

ALGORITHMS = ("ring", "wan", "hierarchical", "nccl", "parameter-server")
SCHEDULES = ("1f1b", "gpipe", "explicit")

Block = tuple[str, int]
"""One micro-batch's forward ("F") or backward ("B") pass on one stage, and the micro-batch's number."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Workers in rank order: ranks run (replica, stage, shard, tensor), a worker's accelerators are consecutive ranks.

    `stages` has the first layer of each stage; one stage holds the whole model. `shares` are sequences per replica and
    sum to the global batch; they go through its pipeline in micro-batches of `micro_batch`, each rank of a shard group
    with its own, by `schedule`; of an "explicit" one `blocks` has the order, by stage.
    `overlap`: stages compute while they send, and gradients are reduced while others still compute. `recompute`: a
    stage keeps its layers' inputs only, and computes the forward pass again in the backward one.

    `rings` has for each stage its replicas in ring order, () where all have the order of ranks; data flows from each to
    the one before it. `algorithm` says how they reduce: "ring" is gloo's all-reduce, "wan" Hulk's own by the flows of
    `collective`, "hierarchical" gloo inside regions and between them, "nccl" NCCL's ring, "parameter-server" all to the
    first and back. With `inner_steps` the replicas come together only after so many steps (local SGD): `fragments` of
    the layers in turn, each merged `delay_steps` after its sum began. `num_buckets` buckets of gradients are reduced,
    by gloo two at a time.
    `optimality_gap` bounds (step - best possible) / step by the same evaluator, or where a step's price is to be least
    the same of prices; 0 means proven optimal; see `gap_num_workers`. `iterations` is the work done, `why` the reasons
    in sentences.
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
    fragments: int = 1
    delay_steps: int = 0
    stages: tuple[int, ...] = (0,)
    schedule: str = "1f1b"
    rings: tuple[tuple[int, ...], ...] = ()
    overlap: bool = True
    recompute: bool = False
    blocks: tuple[tuple[Block, ...], ...] = ()
    optimality_gap: float = 0.0
    iterations: int = 0
    why: tuple[str, ...] = ()
    rank_machines: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The machine of every rank."""

    def __post_init__(self) -> None:
        ranks = tuple(worker.machine for worker in self.workers for _ in range(worker.num_accelerators))
        object.__setattr__(self, "rank_machines", ranks)
        num_ranks, layout = len(ranks), self.layout
        if not self.workers or num_ranks != layout.num_ranks or len(self.shares) != layout.data:
            raise ValueError(
                f"{self.key}: {len(self.shares)} shares and {num_ranks} ranks for a layout of {layout.words}"
            )
        self._check_stages()
        self._check_rings()
        if min(self.shares) < 1 or self.micro_batch < 1 or self.num_buckets < 1:
            raise ValueError(
                f"{self.key}: smallest share {min(self.shares)}, micro-batch {self.micro_batch} and "
                f"{self.num_buckets} buckets must be >= 1"
            )

        if (self.algorithm == "wan") != (self.collective is not None) or self.algorithm not in ALGORITHMS:
            flows = "none" if self.collective is None else len(self.collective.classes)
            raise ValueError(f"{self.key}: algorithm {self.algorithm} with {flows} classes of flows")
        if self.inner_steps is not None and self.inner_steps < 1:
            raise ValueError(f"{self.key}: {self.inner_steps} inner steps must be >= 1")
        num_steps = self.inner_steps or 1
        if not (1 <= self.fragments <= num_steps and 0 <= self.delay_steps < num_steps):
            raise ValueError(
                f"{self.key}: {self.fragments} fragments, merged {self.delay_steps} steps late, in rounds of "
                f"{num_steps} steps"
            )

    def _check_stages(self) -> None:
        if (
            len(self.stages) != self.layout.pipeline
            or self.stages[0] != 0
            or list(self.stages) != sorted(set(self.stages))
        ):
            raise ValueError(
                f"{self.key}: first layers {', '.join(map(str, self.stages))} of {self.layout.pipeline} stages must "
                "begin with 0 and rise"
            )
        if self.schedule not in SCHEDULES:
            raise ValueError(f"{self.key}: schedule {self.schedule!r} must be one of {', '.join(SCHEDULES)}")
        if len(self.blocks) != (self.layout.pipeline if self.schedule == "explicit" else 0):
            raise ValueError(
                f"{self.key}: schedule {self.schedule} with the order of blocks on {len(self.blocks)} of "
                f"{self.layout.pipeline} stages"
            )

    def _check_rings(self) -> None:
        replicas = list(range(self.layout.data))
        if self.rings and (len(self.rings) != len(self.stages) or any(sorted(ring) != replicas for ring in self.rings)):
            raise ValueError(
                f"{self.key}: {len(self.rings)} rings must hold each of {len(replicas)} replicas once a stage"
            )

    @property
    def gap_num_workers(self) -> int | None:
        """How many workers the plans have that the gap speaks of; None: any number.

        Without measured speeds only plans of as many workers can be compared: they differ in communication alone.
        """
        return None if self.prediction.calibrated else len(self.workers)

    @property
    def cell_batch(self) -> int:
        """Sequences of a micro-batch of all shards of a cell together."""
        return self.micro_batch * self.layout.shard

    def machine(self, replica: int, stage: int, rank: int = 0) -> str:
        """The machine of one stage of one replica, by its first rank or another one."""
        return self.rank_machines[(replica * self.layout.pipeline + stage) * self.layout.width + rank]

    def cell(self, replica: int, stage: int) -> tuple[str, ...]:
        """The machines of one stage of one replica: of its shards, which may be on several."""
        first = (replica * self.layout.pipeline + stage) * self.layout.width
        return tuple(dict.fromkeys(self.rank_machines[first : first + self.layout.width]))

    @property
    def summing(self) -> tuple[str, ...]:
        """The machines of the replicas' first ranks: they sum gradients, and beside them those of the other ranks."""
        return self.rank_machines[:: self.layout.width]

    def ring(self, stage: int) -> tuple[int, ...]:
        """The replicas of a stage in ring order."""
        return self.rings[stage] if self.rings else tuple(range(self.layout.data))

    def accelerators(self) -> dict[str, int]:
        """Accelerators the plan holds, by machine."""
        held: dict[str, int] = {}
        for worker in self.workers:
            held[worker.machine] = held.get(worker.machine, 0) + worker.num_accelerators
        return held


def used_pairs(plan: Plan) -> list[Pair]:
    """The directed machine pairs that data of a step go over: between stages, and along the rings, as far as they say.

    Of Hulk's own all-reduce these are not all; what it sends between regions goes over the regions' links.
    """
    found: dict[Pair, None] = {}
    for replica in range(plan.layout.data):
        machines = [plan.machine(replica, stage) for stage in range(plan.layout.pipeline)]
        for a, b in pairwise(machines):
            found |= {(a, b): None, (b, a): None}
    for stage in range(plan.layout.pipeline):
        around = [plan.machine(replica, stage) for replica in plan.ring(stage)]
        found |= {(around[place], around[place - 1]): None for place in range(len(around))}
    return [pair for pair in found if pair[0] != pair[1]]
