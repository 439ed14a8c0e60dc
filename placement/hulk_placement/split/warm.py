"""Compiles everything that planning calls: a small job on two small regions, alone, then beside another.

`python -m hulk_placement.split.warm` does so ahead of time, when an image is built and before the tests.
"""

from __future__ import annotations

from dataclasses import replace

from hulk_placement.layouts import warm as layouts
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


if __name__ == "__main__":
    warm()
