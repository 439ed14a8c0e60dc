"""Ranks as threads of one process: the runtime's own steppers behind a sum that is the same every time.

Ranks are summed in their order. With compression every rank is taken for a region of its own, and each value makes two
hops: every rank's values are encoded on their way to the sum and the sum on its way back, with error feedback kept at
both senders.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from ipaddress import IPv6Address

import torch
from hulk_runtime.collective.process_group import Group, Work
from hulk_runtime.collective.reduction.compression import CODECS
from hulk_runtime.plan.wire import Plan
from hulk_runtime.training.local_sgd import LocalStepper
from hulk_runtime.training.stepper import Stepper, Task

NOWHERE = IPv6Address("::")


class Done:
    """A sum that is there already."""

    def wait(self) -> None:
        """Nothing to wait for."""


@dataclass
class Meeting:
    """Where the threads hand in their values, one bucket a step. `compression` is of CODECS, or none."""

    num_ranks: int
    compression: str
    sent_bytes: int = 0  # by all ranks on the way to the sum
    _values: dict[int, torch.Tensor] = field(default_factory=dict)
    _residuals: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._barrier = threading.Barrier(self.num_ranks, action=self._sum)
        self._num_exact = 0

    def reduce(self, rank: int, values: torch.Tensor, num_exact: int) -> None:
        """Sum in place; returns when all ranks have come."""
        self._values[rank], self._num_exact = values, num_exact
        self._barrier.wait()
        values.copy_(self._total)

    def abort(self) -> None:
        """One rank has failed: the others fail too."""
        self._barrier.abort()

    def _sum(self) -> None:
        num_rounded = len(self._values[0]) - self._num_exact
        arrived = [self._hop(self._values[rank], num_rounded, rank) for rank in range(self.num_ranks)]
        self._total = self._hop(torch.stack(arrived).sum(0), num_rounded, self.num_ranks)

    def _hop(self, values: torch.Tensor, num_rounded: int, sender: int) -> torch.Tensor:
        """What arrives at the other end."""
        codec = CODECS.get(self.compression)
        num_bytes = codec.encoded_bytes(num_rounded) if codec else 4 * num_rounded
        self.sent_bytes += num_bytes if sender < self.num_ranks and self.num_ranks > 1 else 0
        if codec is None or not num_rounded:
            return values.clone()
        residual = self._residuals.setdefault((sender, num_rounded), torch.zeros(num_rounded))
        payload = codec.encode(values[:num_rounded], residual)
        return torch.cat([codec.decode(payload, num_rounded), values[num_rounded:]])


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadGroup(Group):
    """One thread's view of a meeting."""

    meeting: Meeting

    def all_reduce(self, values: torch.Tensor, num_exact: int = 0, name: Hashable = None) -> Work:
        """At once."""
        self.meeting.reduce(self.rank, values, num_exact)
        return Done()


Look = Callable[[int, torch.nn.Module], None]


def train(plan: Plan, make_task: Callable[[], Task], compression: str, look: Look) -> int:
    """Train as planned; returns the bytes that each rank has sent to the sum.

    `look` is called after every step of all ranks, with its number and the parameters that all have in common.
    """
    meeting = Meeting(plan.num_ranks, compression)
    tasks = [make_task() for _ in range(plan.num_ranks)]
    failures: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            peers = {other: NOWHERE for other in range(plan.num_ranks) if other != rank}
            group = ThreadGroup(rank, plan.num_ranks, "gloo", torch.device("cpu"), peers, meeting=meeting)
            ours = (plan, group, tasks[rank], 0)
            stepper = LocalStepper(*ours) if plan.inner_steps else Stepper(*ours)
            for step in range(1, plan.training.steps + 1):
                _, report = stepper.together(step, stop=False, save=False)
                if rank == 0 and report.of_all:
                    look(step, tasks[0].module)
        except BaseException as error:  # noqa: BLE001 - told to the one who waits for the threads
            failures.append(error)
            meeting.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(plan.num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return meeting.sent_bytes // plan.num_ranks
