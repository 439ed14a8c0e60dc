"""Hulk's own all-reduce over a WAN: which region sends which share of the vector where, and how long that takes.

    topology + machines --network--> Network --plan_collective--> CollectivePlan --as_document--> JSON

`bound` says what no algorithm can beat, `program` finds the flows by linear programming, `simulation` is the cost model
of this transport, `classes` makes a plan (`plan`) of all that per size of the vector.
"""
