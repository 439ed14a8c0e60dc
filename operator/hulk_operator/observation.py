"""What workers say of themselves: of an attempt under way, and of a preflight before it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


class ObserveError(Exception):
    """A worker did not answer as it should; the message says how."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a worker may tell of: so many ranks, and the value of the series `metric`, which the job names."""

    num_ranks: int = 1
    metric: str = ""


@dataclass(frozen=True, slots=True)
class ObservedLink:
    """A job's own view of the link source -> target (node names): its sockets' round-trip time and delivery rate."""

    source: str
    target: str
    rtt_s: float | None
    bandwidth_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class ObservedAllReduce:
    """The all-reduces between regions of one size class: how many, what they take, and what the plan said of that."""

    max_bytes: int
    num: int
    observed_s: float
    predicted_s: float | None
    bound_s: float | None


@dataclass(frozen=True, slots=True)
class ObservedRegionLink:
    """The link source -> target (regions): its rate in the plan, and what it carried while more waited to be sent."""

    source: str
    target: str
    planned_bytes_per_s: float
    observed_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class ObservedStage:
    """Seconds of a step in which a pipeline stage computes, waits for transfers or for other stages, sums gradients."""

    stage: int
    compute_s: float
    transfer_s: float
    bubble_s: float
    sum_s: float


@dataclass(frozen=True, slots=True)
class ObservedTrial:
    """A trial of a sweep whose trials share devices. `step_s` is the device time of its mini-batch; None: not said."""

    state: str
    step: int = 0
    metric: float | None = None
    step_s: float | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """What the rank that speaks for the job said at one moment. None: it did not say; `step` is the last completed."""

    attempt: int | None = None
    step: int | None = None
    step_s: float | None = None  # median of its last 20 steps
    step_last_s: float | None = None
    loss: float | None = None
    compute_s: dict[int, float] = field(default_factory=dict)  # by rank
    sent_bytes: int | None = None
    checkpoint_step: int | None = None
    checkpoint_bytes: int | None = None
    checkpoint_where: str = ""  # empty: where the job's spec says
    checkpoint_refused: int | None = None  # objects in their folder that are not as the job wrote them
    links: tuple[ObservedLink, ...] = ()
    all_reduces: tuple[ObservedAllReduce, ...] = ()
    region_links: tuple[ObservedRegionLink, ...] = ()
    stages: tuple[ObservedStage, ...] = ()
    trials: Mapping[str, ObservedTrial] = field(default_factory=dict)  # by name
    epoch: int | None = None  # how often the gang went on without a region; said by the lowest rank that takes part
    absent: frozenset[int] = frozenset()  # ranks that take no part in it
    metric: float | None = None  # of the series without labels that the job names
    own_attempt: int | None = None  # every worker says what it runs, and the last step that it completed itself
    own_step: int | None = None
    num_parameters: int | None = None  # that the optimizers of a program which knows nothing of Hulk update
    gradient_bytes: int | None = None

    @property
    def max_compute_s(self) -> float | None:
        """The slowest rank's compute, which is what a synchronous step waits for."""
        return max(self.compute_s.values(), default=None)


@dataclass(frozen=True, slots=True)
class Preflight:
    """Seconds of local forward and backward per step before the first step of an attempt: each rank's median.

    `slowest_s`: what the slowest rank of a step takes, at the median; 0 when that was not said.
    """

    attempt: int
    compute_s: tuple[float, ...]
    slowest_s: float = 0.0
