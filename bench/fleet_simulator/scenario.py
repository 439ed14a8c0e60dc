"""What is simulated: machines, jobs with their arrivals, settings and the speeds that really hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hulk_placement.fleet.types import Job, Mapped, Settings, StepTimes
from hulk_placement.topology import Topology


class Speeds(Protocol):
    """What really holds while jobs run side by side."""

    def steps_s(self, jobs: Mapping[str, Job], running: Mapping[str, Mapped]) -> dict[str, float]:
        """Seconds of a step of every running job."""
        ...


@dataclass(frozen=True, slots=True)
class Scenario:
    """One simulation; `until_s` inf: until every job that ever can is done.

    Policies see `step_times`; jobs run at `speeds`. `drawn` are the figures that it was made of, to be printed.
    """

    topology: Topology
    jobs: Sequence[Job]
    settings: Settings
    step_times: StepTimes
    speeds: Speeds
    until_s: float = math.inf
    drawn: Mapping[str, object] = field(default_factory=dict)
