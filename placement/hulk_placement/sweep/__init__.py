"""Which trial of a sweep runs with which parallelism on which devices when: Saturn's SPASE, solved with CP-SAT.

SPASE (select a parallelism, allocate resources, schedule; Nagrecha & Kumar, "Saturn", VLDB 2024) for workers that have
several devices each. Times are measured, not modelled; when they turn out others than planned by more than a stated
tolerance, what has not ended is planned again.
"""

from hulk_placement.sweep.drift import DEFAULT_TOLERANCE, Drift, drift_of
from hulk_placement.sweep.problem import Option, Placed, Plan, Problem, Trial, Worker

__all__ = ["DEFAULT_TOLERANCE", "Drift", "Option", "Placed", "Plan", "Problem", "Trial", "Worker", "drift_of"]
