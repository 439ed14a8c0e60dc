"""Looks closer at plans that were made: changes planned anew, a page to look at."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hulk_placement.advice import advise
from hulk_placement.geography.light import Coordinates
from hulk_placement.plan import Plan
from hulk_placement.report.rows import View
from hulk_placement.report.view import advice_rows
from hulk_placement.solution import Budget
from hulk_placement.solve import solve
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

from hulk_operator.cli.output import note
from hulk_operator.cli.reports import Made, PlanReport, PlanReports


@dataclass(frozen=True, slots=True)
class Look:
    """What to look at: `seconds` go to each new plan of a changed input."""

    advise: bool = False
    seconds: float = 1.0
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise ValueError(f"--seconds {self.seconds} must be > 0 and finite")


def look_closer(report: PlanReports, look: Look) -> PlanReports:
    """The report with what was asked for: which changes would help, each job alone as if there were no other."""
    if not look.advise:
        return report
    return report.model_copy(update={"jobs": tuple(_closer(job, look) for job in report.jobs)})


def _closer(job: PlanReport, look: Look) -> PlanReport:
    made, details = job.made, job.details
    if made is None or details is None:
        return job
    advised = advise(made.plan, made.workload, made.topology, _replan(made, look))
    return job.model_copy(update={"details": details.model_copy(update={"advice": advice_rows(advised)})})


def _replan(made: Made, look: Look) -> Callable[[Workload, Topology], Plan | None]:
    budget = Budget(seconds=look.seconds)

    def replan(workload: Workload, topology: Topology) -> Plan | None:
        return solve((workload,), (), topology, budget, look.clock).plans.get(made.workload.key)

    return replan


def write_page(views: Sequence[View], coordinates: Mapping[str, Coordinates], path: Path) -> None:
    """Write plans as one page. ValueError where there is none."""
    if not views:
        raise ValueError(f"--html {path}: no job has a plan")
    from hulk_placement.report.html import page  # with Jinja, which only pages need

    path.write_text(page(views, coordinates), encoding="utf-8")
    note(f"wrote {path}")
