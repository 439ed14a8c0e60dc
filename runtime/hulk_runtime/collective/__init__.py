"""All-reduce between regions: few connections, no rendezvous, flows as the plan says, the same bits on every rank."""

from hulk_runtime.collective.engine import Report, Work
from hulk_runtime.collective.group import Collective, Settings
from hulk_runtime.collective.joining import Address
from hulk_runtime.collective.plan import CollectivePlan, Flow, LinkFigures, SizeClass

__all__ = ["Address", "Collective", "CollectivePlan", "Flow", "LinkFigures", "Report", "Settings", "SizeClass", "Work"]
