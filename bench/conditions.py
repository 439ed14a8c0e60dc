"""Whether a timing counts: the emulated WAN was what its file says, and the processors were the lab's own.

A machine in a cloud shares its processors; what its hypervisor gives to others is `steal` in /proc/stat.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from hulk_lab.wan import relay
from hulk_lab.wan.addresses import LabNetwork

MAX_STOLEN_SHARE = 0.05
TRIES = 3
"""What does not count, for a reason that has nothing to do with its figures, is done again."""
LOOK_S = 5.0
PATIENCE_S = 300.0
STAT = Path("/proc/stat")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
IDLE, IOWAIT, STEAL = 3, 4, 7  # of user nice system idle iowait irq softirq steal, in ticks


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the WAN's counters say, and the share of the processor time asked for that other machines got.

    `busy_share`: of all processor time, what any program had. Where nothing was left, job pods waited for processors
    that their speed entitles them to.
    """

    wan: relay.Lateness
    stolen_share: float
    busy_share: float = 0.0

    @property
    def valid(self) -> bool:
        """Judged before anybody looks at the figure that was timed."""
        return self.wan.is_valid and self.stolen_share <= MAX_STOLEN_SHARE

    def __str__(self) -> str:
        """
        >>> str(Conditions(relay.Lateness(num_packets=1000, num_late=3, num_lost=1), 0.2, 0.7))
        '0.40% late, 20.0% stolen, 70% busy INVALID'
        """
        shares = f"{self.wan.late_share:.2%} late, {self.stolen_share:.1%} stolen, {self.busy_share:.0%} busy"
        return f"{shares}{'' if self.valid else ' INVALID'}"


def wait_for_quiet(patience_s: float = PATIENCE_S) -> None:
    """Until the processors are the lab's own for some seconds, or patience is over: others take them in bursts."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        before = ticks()
        time.sleep(LOOK_S)
        if stolen_share(before) <= MAX_STOLEN_SHARE:
            return


class Timed(Protocol):
    """A run, and whether it counts."""

    @property
    def valid(self) -> bool:
        """By its conditions."""


P = ParamSpec("P")
T = TypeVar("T", bound=Timed)


def one_that_counts(once: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """A run that counts, or the last of some that do not."""
    for _ in range(TRIES - 1):
        if (found := once(*args, **kwargs)).valid:
            return found
        wait_for_quiet()
    return once(*args, **kwargs)


class Watch:
    """Counts from its making on."""

    def __init__(self, net: LabNetwork) -> None:
        self._net = net
        self._ticks = ticks()
        self.begin_wan()

    def begin_wan(self) -> None:
        """Count packets, and how busy it is, from now on only: what a job does before its steps is not timed."""
        self._wan = relay.stats(self._net)
        self._timed = ticks()

    def conditions(self) -> Conditions:
        """Of the time until now."""
        wan = relay.lateness(self._wan, relay.stats(self._net))
        return Conditions(wan, stolen_share(self._ticks), busy_share(self._timed))

    def processors(self) -> tuple[float, float]:
        """Seconds that processes had of the processors until now, and all there were."""
        spent = [after - before for before, after in zip(self._ticks, ticks(), strict=True)]
        return sum(spent[:IDLE]) * TICK_S, max(1, sum(spent)) * TICK_S


def stolen_share(since: list[int]) -> float:
    """Of the processor time asked for since then, what others got."""
    spent = [after - before for before, after in zip(since, ticks(), strict=True)]
    return spent[STEAL] / max(1, sum(spent) - spent[IDLE] - spent[IOWAIT])


def busy_share(since: list[int]) -> float:
    """Of all processor time since then, what was not idle."""
    spent = [after - before for before, after in zip(since, ticks(), strict=True)]
    return 1 - (spent[IDLE] + spent[IOWAIT]) / max(1, sum(spent))


def ticks() -> list[int]:
    """Of all processors together, by what they did."""
    return [int(word) for word in STAT.read_text().splitlines()[0].split()[1 : STEAL + 2]]
