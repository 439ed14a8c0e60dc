"""A fleet's days in seconds: jobs arrive, the policy decides, work goes on, and what came of it is added up."""

from hulk_placement.fleet.simulation.run import Outcome, simulate
from hulk_placement.fleet.simulation.scenario import Scenario

__all__ = ["Outcome", "Scenario", "simulate"]
