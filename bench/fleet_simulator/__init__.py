"""A fleet's days in seconds: jobs arrive, the policy decides, work goes on, and what came of it is added up."""

from bench.fleet_simulator.run import Outcome, simulate
from bench.fleet_simulator.scenario import Scenario

__all__ = ["Outcome", "Scenario", "simulate"]
