"""Compiles everything that planning calls: a small job on two small regions, alone, then beside another; a schedule.

`python -m hulk_placement.split.warm` does so ahead of time, when an image is built and before the tests.
"""

from __future__ import annotations

from dataclasses import replace

from hulk_placement.layouts import warm as layouts
from hulk_placement.schedule.operations import operations_of
from hulk_placement.schedule.packed import packed
from hulk_placement.schedule.shapes import v
from hulk_placement.solution import Budget
from hulk_placement.solve import guided
from hulk_placement.solve.together import divide, divisions_of, work_on
from hulk_placement.split import local


def warm() -> None:
    """Plan the jobs; every compiled function is in the cache then."""
    layouts.warm()
    job, topology = layouts.small()
    for search in (local.search, guided.search):
        divisions = divisions_of([job, replace(job, key="warm/down")], topology)
        divide(work_on(divisions, Budget(layouts.NUM_EVALUATIONS), clock=lambda: 0.0), search, 0)
    warm_schedules()


def warm_schedules() -> None:
    """Find a greedy one."""
    packed(operations_of(v(2)), num_micro_batches=2)


if __name__ == "__main__":
    warm()
