"""What is to be planned and what a plan is: frozen values, and the checks that make a plan one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run a trial: so many devices of one worker for so long.

    `parallelism` is the name of the way, such as `shared` (one device at a time) or `split` (a part on each of several
    devices). `workers`: where it can run; empty: anywhere with that many devices.
    """

    parallelism: str
    num_devices: int
    seconds: float
    workers: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.num_devices < 1 or not 0 < self.seconds < float("inf"):
            raise ValueError(
                f"option {self.parallelism}: {self.num_devices} devices for {self.seconds} s, both must be > 0"
            )


@dataclass(frozen=True, slots=True)
class Trial:
    """What is to be run once, in one of several ways. `stays`: the worker that it may not leave."""

    name: str
    options: tuple[Option, ...]
    stays: str = ""

    def __post_init__(self) -> None:
        if not self.options:
            raise ValueError(f"trial {self.name}: there is no way to run it")


@dataclass(frozen=True, slots=True)
class Worker:
    """Devices that one trial can have together. `free_s`: when each of them is free, 0 for now."""

    name: str
    num_devices: int
    free_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.num_devices < 1:
            raise ValueError(f"worker {self.name}: {self.num_devices} devices, must be at least 1")
        if self.free_s and len(self.free_s) != self.num_devices:
            raise ValueError(f"worker {self.name}: {len(self.free_s)} times for {self.num_devices} devices")


@dataclass(frozen=True, slots=True)
class Problem:
    """Trials and workers, names told apart."""

    trials: tuple[Trial, ...]
    workers: tuple[Worker, ...]

    def __post_init__(self) -> None:
        for what, found in (("trial", self.trials), ("worker", self.workers)):
            names = [one.name for one in found]
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"{what} {twice[0]} is there twice")
        for trial in self.trials:
            if not any(self.places(trial, option) for option in trial.options):
                most = max((worker.num_devices for worker in self.workers), default=0)
                asked = ", ".join(f"{option.parallelism} needs {option.num_devices}" for option in trial.options)
                where = f" on worker {trial.stays}, where it stays" if trial.stays else ""
                raise ValueError(f"trial {trial.name} fits nowhere{where}: {asked} devices, workers have up to {most}")

    def places(self, trial: Trial, option: Option) -> tuple[Worker, ...]:
        """Where a trial can run in that way."""
        return tuple(
            worker
            for worker in self.workers
            if option.num_devices <= worker.num_devices
            and (not option.workers or worker.name in option.workers)
            and trial.stays in ("", worker.name)
        )

    def bound_s(self) -> float:
        """No plan ends sooner: some trial takes as long as its fastest way, and all together need their device-time.

        >>> two = Worker("a", 2)
        >>> trials = tuple(Trial(n, (Option("shared", 1, 3.0),)) for n in "xyz")
        >>> Problem(trials, (two,)).bound_s()
        4.5
        """
        longest = max((min(o.seconds for o in t.options if self.places(t, o)) for t in self.trials), default=0.0)
        work = sum(min(o.seconds * o.num_devices for o in t.options if self.places(t, o)) for t in self.trials)
        free_s = [s for worker in self.workers for s in worker.free_s or (0.0,) * worker.num_devices]
        return max(longest, _shared_s(work, free_s)) if self.trials else 0.0


def _shared_s(work: float, free_s: Sequence[float]) -> float:
    """When devices that are free from then on have done so much; one that is free only later takes no part.

    >>> _shared_s(4.0, [0.0, 2.0, 30.0])
    3.0
    """
    rows = sorted(free_s)
    ends = ((work + sum(rows[:num])) / num for num in range(1, len(rows) + 1))
    return next(end for end, later in zip(ends, [*rows[1:], math.inf], strict=True) if end <= later)


@dataclass(frozen=True, slots=True)
class Placed:
    """One trial's place in a plan."""

    trial: str
    option: Option
    worker: str
    devices: tuple[int, ...]
    start_s: float

    @property
    def end_s(self) -> float:
        """When it is done."""
        return self.start_s + self.option.seconds


@dataclass(frozen=True, slots=True)
class Plan:
    """Every trial's place. `bound_s`: no plan ends sooner; `proven`: none is shorter by a thousandth."""

    placed: tuple[Placed, ...]
    bound_s: float
    proven: bool

    @property
    def makespan_s(self) -> float:
        """When the last trial is done."""
        return max((one.end_s for one in self.placed), default=0.0)

    def by_worker(self) -> Mapping[str, tuple[Placed, ...]]:
        """What each worker runs, in the order of the starts."""
        found: dict[str, list[Placed]] = {}
        for one in sorted(self.placed, key=lambda one: (one.start_s, one.devices, one.trial)):
            found.setdefault(one.worker, []).append(one)
        return {worker: tuple(row) for worker, row in found.items()}


def check(plan: Plan, problem: Problem, slack_s: float = 1e-6) -> None:
    """AssertionError unless the plan runs every trial once, in one of its ways, and no device twice at a time."""
    assert sorted(one.trial for one in plan.placed) == sorted(trial.name for trial in problem.trials)
    trials = {trial.name: trial for trial in problem.trials}
    workers = {worker.name: worker for worker in problem.workers}
    taken: dict[tuple[str, int], list[Placed]] = {}
    for one in plan.placed:
        assert one.option in trials[one.trial].options
        assert workers[one.worker] in problem.places(trials[one.trial], one.option)
        assert len(set(one.devices)) == one.option.num_devices
        for device in one.devices:
            assert 0 <= device < workers[one.worker].num_devices
            free_s = workers[one.worker].free_s
            assert one.start_s + slack_s >= (free_s[device] if free_s else 0.0), one
            taken.setdefault((one.worker, device), []).append(one)
    for row in taken.values():
        for before, after in pairwise(sorted(row, key=lambda one: one.start_s)):
            assert before.end_s <= after.start_s + slack_s, (before, after)
