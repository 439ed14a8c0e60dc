"""The operator's side of measuring: decides what the agents measure, and which of their figures to believe."""

from hulk_operator.probing.link_validation import Accepted, LinkSample, Rejection, accept, by_region, current, measured
from hulk_operator.probing.measurement_schedule import decide
from hulk_operator.probing.runner import Prober, ProbeState
from hulk_operator.probing.types import Attempt, Budget, Decision, ProbeNode

__all__ = [
    "Accepted",
    "Attempt",
    "Budget",
    "Decision",
    "LinkSample",
    "ProbeNode",
    "ProbeState",
    "Prober",
    "Rejection",
    "accept",
    "by_region",
    "current",
    "decide",
    "measured",
]
