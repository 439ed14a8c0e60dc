"""The policies by name; each says which workers a question's jobs get."""

from collections.abc import Callable, Mapping

from hulk_placement.fleet.policies.fair import drf
from hulk_placement.fleet.policies.fifo import fifo
from hulk_placement.fleet.policies.gadget import gadget
from hulk_placement.fleet.policies.ordered import srpt
from hulk_placement.fleet.problem import Problem

Policy = Callable[[Problem], dict[str, dict[str, int]]]

POLICIES: Mapping[str, Policy] = {"gadget": gadget, "drf": drf, "srpt": srpt, "fifo": fifo}

__all__ = ["POLICIES", "Policy"]
