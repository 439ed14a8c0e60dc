"""The policies by name; each says which workers a question's jobs get."""

from hulk_placement.fleet.policies.exact import exact
from hulk_placement.fleet.policies.fair import drf
from hulk_placement.fleet.policies.fifo import fifo
from hulk_placement.fleet.policies.gadget import gadget
from hulk_placement.fleet.policies.ordered import las, srpt
from hulk_placement.fleet.policies.paper import gadget_paper, gadget_repaired
from hulk_placement.fleet.policies.sjf_bco import sjf_bco

POLICIES = {
    "gadget": gadget,
    "gadget-paper": gadget_paper,
    "gadget-repaired": gadget_repaired,
    "fifo": fifo,
    "drf": drf,
    "las": las,
    "srpt": srpt,
    "sjf-bco": sjf_bco,
    "exact": exact,
}

__all__ = ["POLICIES"]
