"""The name by which scripts import the plan of an all-reduce between regions."""

from hulk_runtime.plan.flows import Alternative, CollectivePlan, Flow, LinkFigures, SizeClass, Uplink

__all__ = ["Alternative", "CollectivePlan", "Flow", "LinkFigures", "SizeClass", "Uplink"]
