"""What the watches have told of the cluster, trimmed to what is read: by planning, probing, queue and reconciles."""

from hulk_operator.watched.nodes import NodeState, node_state
from hulk_operator.watched.snapshot import Snapshot
from hulk_operator.watched.store import News, Store

__all__ = ["News", "NodeState", "Snapshot", "Store", "node_state"]
