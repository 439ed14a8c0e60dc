"""What Hulk reads of a Node object, apart from its size: labels, region, readiness, cordon, taints."""

from collections.abc import Mapping
from typing import Any

from hulk_operator import names
from hulk_operator.cluster import Object


def labels(node: Object) -> Mapping[str, Any]:
    """The node's labels."""
    return node["metadata"].get("labels") or {}


def region(node: Object) -> str:
    """The node's region; nodes without the label are in one of their own."""
    return labels(node).get(names.NODE_REGION) or names.UNKNOWN_REGION


def product(node: Object) -> str:
    """The product of its accelerators."""
    return labels(node).get(names.NODE_PRODUCT) or names.UNKNOWN_PRODUCT


def is_cordoned(node: Object) -> bool:
    """Whether an administrator keeps new pods off the node."""
    return bool((node.get("spec") or {}).get("unschedulable"))


def taints(node: Object) -> tuple[Mapping[str, str], ...]:
    """The node's taints."""
    return tuple((node.get("spec") or {}).get("taints") or ())


def is_ready(node: Object) -> bool:
    """Whether the node's kubelet answers and is ready."""
    return ready_condition(node).get("status") == "True"


def ready_condition(node: Object) -> Mapping[str, Any]:
    """The Ready condition; empty before the kubelet has reported."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition["type"] == "Ready"), {})
