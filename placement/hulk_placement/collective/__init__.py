"""Hulk's own all-reduce over a WAN: which region sends which share of the vector where, and how long that takes.

    topology + machines --network--> Network --plan_collective--> CollectivePlan --as_document--> JSON

`bound` says what no algorithm can beat, `program` finds the flows by linear programming, `simulation` is the cost model
of this transport, `classes` makes a plan of all that per size of the vector.
"""

from hulk_placement.collective.classes import CollectivePlan, plan_collective
from hulk_placement.collective.document import as_document, from_document
from hulk_placement.collective.network import Network, build_network

__all__ = ["CollectivePlan", "Network", "as_document", "build_network", "from_document", "plan_collective"]
