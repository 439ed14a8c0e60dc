"""The frozen values of probing: what it looks at, what it may spend, and what it decides."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hulk_operator.api import Measurement

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ProbeNode:
    """A node as probing sees it. `ready`: Kubernetes says that it is up; a cordoned node is still measured.

    `addresses`: where its agent may be, as Kubernetes knows it: the node's own and those of its agent's pod. `trusted`:
    its region label is believed, so that it may stand for its region.
    """

    name: str
    region: str
    ready: bool = True
    addresses: frozenset[str] = frozenset()
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class Attempt:
    """One bandwidth test that was ordered; its id is the Unix time in milliseconds when that happened.

    `used_bytes`: what it took as its result says; None before there is one, which is for ever where it failed.
    """

    id: int
    source: str
    target: str
    num_bytes: int  # at most
    used_bytes: float | None = None

    @property
    def time_s(self) -> float:
        """When it was ordered."""
        return self.id / 1000


@dataclass(frozen=True, slots=True)
class Budget:
    """What measuring may cost. `history` is what it did cost lately; it is the only memory of probing.

    After a restart of the operator the history is empty: tests still under way are read from the profiles, the bytes
    of the last hour are forgotten.
    """

    bytes_per_hour: int = 20_000_000_000
    max_tests: int = 8  # at once, in the whole cluster
    max_bytes: int = 256_000_000  # one test
    seconds: int = 4
    streams: int = 4
    refresh_s: float = 6 * 3600.0  # a bandwidth older than this is stale
    retry_s: float = 60.0  # after a failed test; doubles up to refresh_s
    num_inner_links: int = 3  # node pairs measured inside each region
    history: tuple[Attempt, ...] = ()

    def __post_init__(self) -> None:
        if self.max_tests < 0 or self.max_bytes < 0 or self.bytes_per_hour < 0 or self.num_inner_links < 0:
            raise ValueError(
                f"budget: {self.max_tests} tests, {self.max_bytes} bytes, {self.bytes_per_hour} bytes per hour and "
                f"{self.num_inner_links} links must be >= 0"
            )
        if not 1 <= self.seconds <= 60 or not 1 <= self.streams <= 64:
            raise ValueError(f"budget: {self.seconds} s must be 1 to 60, {self.streams} streams 1 to 64")
        if self.refresh_s <= 0 or self.retry_s <= 0:
            raise ValueError(f"budget: refresh {self.refresh_s} s and retry {self.retry_s} s must be > 0")


@dataclass(frozen=True, slots=True)
class Decision:
    """The complete list of measurements of every node that has a profile, and the tests that are new in it.

    `history`: the tests of the last day, the new ones as well, with what is known of their results.
    `waiting` says how many links are due and why they have to wait: JobRunning, LinkBusy, TestLimit, ByteBudget or
    TooManyTargets.
    """

    measurements: Mapping[str, tuple[Measurement, ...]]
    attempts: tuple[Attempt, ...] = ()
    history: tuple[Attempt, ...] = ()
    num_pending: int = 0
    waiting: Mapping[str, int] = field(default_factory=dict)
