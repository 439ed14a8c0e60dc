"""The evaluator's slower speed: one step of any plan, event by event. `cost.predict` is the quicker one.

It knows what the closed form leaves out: transfers and all-reduces that share links as they happen to meet there,
all-reduces of stages that begin at different times, buckets that begin before the last gradient is there, and any order
of blocks.
"""

from __future__ import annotations

from hulk_placement.cost.simulation.outcome import Simulated, simulate_step
from hulk_placement.cost.simulation.plans import step_of
from hulk_placement.plan import Plan
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload


def simulate(plan: Plan, workload: Workload, topology: Topology) -> Simulated:
    """One step of the plan: its seconds, and when everything in it began and ended.

    With local SGD the step bears its part of what the replicas wait for each other.
    KeyError when the plan names a machine that the topology lacks, ValueError where its own schedule waits for ever.
    """
    return simulate_step(step_of(plan, workload, topology))
