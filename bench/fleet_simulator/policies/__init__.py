"""The queue's policies and published ones that it is compared with, by name; each says which workers jobs get."""

from collections.abc import Mapping

from hulk_placement.fleet.policies import POLICIES as OFFERED
from hulk_placement.fleet.policies import Policy

from bench.fleet_simulator.policies.exact import exact
from bench.fleet_simulator.policies.las import las
from bench.fleet_simulator.policies.paper import gadget_paper, gadget_repaired
from bench.fleet_simulator.policies.sjf_bco import sjf_bco

POLICIES: Mapping[str, Policy] = {
    "gadget": OFFERED["gadget"],
    "gadget-paper": gadget_paper,
    "gadget-repaired": gadget_repaired,
    "fifo": OFFERED["fifo"],
    "drf": OFFERED["drf"],
    "las": las,
    "srpt": OFFERED["srpt"],
    "sjf-bco": sjf_bco,
    "exact": exact,
}

OVERRUNNING = ("gadget-paper", "exact")
"""Policies that may give out more than there is: the first of anything, the second of bandwidth."""

__all__ = ["OVERRUNNING", "POLICIES"]
