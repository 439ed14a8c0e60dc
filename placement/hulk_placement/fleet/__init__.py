"""Many jobs on one fleet: `decide.decide` says who has which workers now, for the operator and the simulator alike."""

from hulk_placement.fleet.types import Allocation, Job, Move, MoveKind, Ring, Settings, StepTimes
from hulk_placement.fleet.utility import Utility, UtilityKind

__all__ = [
    "Allocation",
    "Job",
    "Move",
    "MoveKind",
    "Ring",
    "Settings",
    "StepTimes",
    "Utility",
    "UtilityKind",
]
