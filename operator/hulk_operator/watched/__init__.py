"""What the watches have told of the cluster, trimmed to what is read: by planning, probing, queue and reconciles."""

from hulk_operator.watched.kueue_objects import NOT_READ, KueueObjects, Standing
from hulk_operator.watched.nodes import NodeState, node_state
from hulk_operator.watched.snapshot import Snapshot
from hulk_operator.watched.store import News, Store

__all__ = [
    "NOT_READ",
    "KueueObjects",
    "News",
    "NodeState",
    "Snapshot",
    "Standing",
    "Store",
    "node_state",
]
