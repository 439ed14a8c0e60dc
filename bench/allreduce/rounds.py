"""Methods timed in turn inside one process set: m1 m2 m3 m1 m2 m3, each after one all-reduce that is not timed.

Warm is what training finds: a connection that has just been used. A run counts when the emulated WAN was in time and
the processors were the lab's own; what does not count is run again.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hulk_lab.wan import relay
from hulk_lab.wan.addresses import LabNetwork

from bench.allreduce.conductor import Answer, Conductor
from bench.conditions import TRIES, Watch, wait_for_quiet

TIMEOUT_S = 300.0
QUIET_PATIENCE_S = 20.0
MAX_OTHERS_SHARE = 0.2
"""The harness needs some of it; more is a neighbour's, for whom a method that needs processors would pay."""
MIB = 1 << 20


class WrongSumError(RuntimeError):
    """A method gave a wrong sum, or ranks got different bits."""


@dataclass(frozen=True, slots=True)
class Run:
    """One all-reduce: from the common beginning to its last rank's end."""

    seconds: float
    cpu_s: float
    """Of all ranks, without what methods that wait for their turn used."""
    late_share: float
    stolen_share: float
    valid: bool
    num_dropped: int = 0
    """Packets for which a router's buffer had no room: what sends too fast repeats them."""
    busy_share: float = 0.0
    """Of all processors' time, what processes had."""
    others_share: float = 0.0
    """Of all processors' time: neither the ranks nor the relay used it."""


@dataclass(frozen=True, slots=True)
class Timed:
    """All runs of one method and size."""

    method: str
    num_bytes: int
    runs: tuple[Run, ...]

    @property
    def valid(self) -> tuple[Run, ...]:
        """Those that count."""
        return tuple(run for run in self.runs if run.valid)

    @property
    def median_s(self) -> float | None:
        """Of the runs that count; None when none does."""
        return statistics.median(run.seconds for run in self.valid) if self.valid else None

    def __str__(self) -> str:
        """The median; with an exclamation mark that of runs of which none counts."""
        if self.median_s is None:
            return f"{statistics.median(run.seconds for run in self.runs):.3f}!"
        return f"{self.median_s:.3f}"

    def cpu_s_per_gb(self, num_ranks: int) -> float | None:
        """Processor seconds of a rank for 10^9 bytes reduced, of the runs that count; None when none does."""
        if not self.valid:
            return None
        return statistics.median(run.cpu_s for run in self.valid) / num_ranks / self.num_bytes * 1e9


@dataclass(slots=True)
class Band:
    """The ranks of a lab that is up, and the methods they have made."""

    net: LabNetwork
    conductor: Conductor
    made: dict[str, dict[str, Any]] = field(default_factory=dict)

    def make(self, key: str, method: Mapping[str, Any]) -> float:
        """Seconds until all ranks have the method; at once if they have it."""
        if key in self.made:
            return 0.0
        self.made[key] = dict(method)
        answers = self._ask("make", key=key, method=method)
        return max(float(answer["seconds"]) for answer in answers)

    def close(self, key: str) -> None:
        """No rank has the method any more."""
        del self.made[key]
        self._ask("close", key=key)

    def run(self, key: str, num_bytes: int) -> Run:
        """One all-reduce, verified; WrongSumError."""
        self._ask("prepare", num_bytes=num_bytes)
        return self._timed("reduce", "check", key)

    def compute_s(self, num_layers: int) -> float:
        """Seconds of a step on the slowest rank without any sum, all ranks at the same time."""
        return max(float(answer["seconds"]) for answer in self._ask("compute", num_layers=num_layers))

    def make_steps(self, key: str, steps: Mapping[str, Any]) -> None:
        """A model and its way of summing gradients, on all ranks."""
        self._ask("make steps", key=key, steps=steps)

    def step(self, key: str, _: int) -> Run:
        """Forward and backward with all gradients summed, verified; WrongSumError."""
        return self._timed("step", "check steps", key)

    def close_steps(self, key: str) -> None:
        """No rank has them any more."""
        self._ask("close steps", key=key)

    def _timed(self, op: str, check: str, key: str) -> Run:
        watch, before = Watch(self.net), relay.stats(self.net)
        answers = self._ask(op, key=key)
        (used_s, all_s), conditions, after = watch.processors(), watch.conditions(), relay.stats(self.net)
        seconds = max(answer["end"] for answer in answers) - self.conductor.last_start_s
        cpu_s = sum(answer["cpu_s"] for answer in answers)
        others_share = max(0.0, used_s - cpu_s - (after.cpu_s - before.cpu_s)) / all_s
        verify(key, self._ask(check, key=key))
        return Run(
            seconds=seconds,
            cpu_s=cpu_s - sum(answer["others_s"] for answer in answers),
            late_share=conditions.wan.late_share,
            stolen_share=conditions.stolen_share,
            valid=conditions.valid and others_share <= MAX_OTHERS_SHARE,
            num_dropped=sum(link.num_dropped for link in after.links) - sum(link.num_dropped for link in before.links),
            busy_share=used_s / all_s,
            others_share=others_share,
        )

    def _ask(self, op: str, **order: Any) -> list[Answer]:
        return self.conductor.ask(op, timeout_s=TIMEOUT_S, **order)


def verify(key: str, checks: Sequence[Answer]) -> None:
    """The sum is right and has the same bits everywhere."""
    wrong = [rank for rank, check in enumerate(checks) if not check["right"]]
    if wrong:
        raise WrongSumError(f"{key}: wrong sum on ranks {wrong}")
    if len({check["crc"] for check in checks}) > 1:
        raise WrongSumError(f"{key}: ranks have different bits: {[check['crc'] for check in checks]}")


def time_in_turn(keys: Mapping[str, str], num_bytes: int, num_runs: int, run: Callable[[str, int], Run]) -> list[Timed]:
    """`keys` by method; each has `num_runs` runs that count, or TRIES times as many that may not."""
    runs: dict[str, list[Run]] = {method: [] for method in keys}
    for number in range(TRIES * num_runs):
        missing = [method for method, found in runs.items() if sum(run.valid for run in found) < num_runs]
        if missing and number >= num_runs:
            wait_for_quiet(QUIET_PATIENCE_S)
        for method in missing:
            run(keys[method], num_bytes)
            runs[method].append(run(keys[method], num_bytes))
    return [Timed(method, num_bytes, tuple(found)) for method, found in runs.items()]
