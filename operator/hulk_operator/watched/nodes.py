"""A Node object, trimmed to what planning, probing and reconciles read of it; its heartbeats change none of that."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from sys import intern
from typing import Any

from hulk_operator.cluster import Object
from hulk_operator.inputs.node import is_cordoned, offered_products, ready_condition, taints


@dataclass(frozen=True, slots=True)
class NodeState:
    """What the reconcile must know of a node. `ready`: the Ready condition's status, first seen at `since`.

    `products`: what each kind of accelerator that it offers stands for. `labels`: those of its `Node`, the same object.
    """

    ready: str = "True"
    since: datetime | None = None
    cordoned: bool = False
    taints: tuple[Mapping[str, str], ...] = ()
    products: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Node:
    """A node: its `body`, trimmed, and what the reconcile must know of it."""

    body: Object
    state: NodeState


def node_state(node: Object) -> NodeState:
    """What the reconcile must know of a node; one that never reported counts as ready (it is just new)."""
    ready = ready_condition(node).get("status", "True")
    return NodeState(ready, None, is_cordoned(node), taints(node), offered_products(node))


def trimmed_node(node: Object) -> Object:
    """The node without images, annotations, managed fields and times: two that are equal take the same pods."""
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    ready = {key: value for key, value in ready_condition(node).items() if key in ("type", "status")}
    return {
        "metadata": {
            "name": intern(metadata["name"]),
            "uid": metadata.get("uid") or "",
            "labels": _interned(metadata.get("labels") or {}),
            **({"deletionTimestamp": metadata["deletionTimestamp"]} if "deletionTimestamp" in metadata else {}),
        },
        "spec": {"taints": spec.get("taints") or [], "unschedulable": bool(spec.get("unschedulable"))},
        "status": {
            "allocatable": _interned(status.get("allocatable") or {}),
            "conditions": [_interned(ready)] if ready else [],
            "addresses": [row for row in status.get("addresses") or () if row["type"] == "InternalIP"],
        },
    }


def _interned(values: Mapping[str, Any]) -> dict[str, Any]:
    """Thousands of nodes have the same labels: each text is kept once."""
    return {intern(key): intern(value) if isinstance(value, str) else value for key, value in values.items()}
