"""What Hulk reads of a Node object, apart from its size: labels, region, readiness, cordon, taints."""

from collections.abc import Mapping
from typing import Any

from hulk_placement.accelerators import look_up

from hulk_operator import names
from hulk_operator.cluster import Object


def labels(node: Object) -> Mapping[str, Any]:
    """The node's labels."""
    return node["metadata"].get("labels") or {}


def region(node: Object) -> str:
    """The node's region; nodes without the label are in one of their own."""
    return labels(node).get(names.NODE_REGION) or names.UNKNOWN_REGION


def product(node: Object, resource: str = names.DEFAULT_RESOURCE) -> str:
    """The product that a resource of the node stands for.

    GPU feature discovery labels MIG instances by a resource name of their own (`nvidia.com/mig-1g.10gb.product`).
    Where pods that share an accelerator ask for another resource name (`nvidia.com/gpu.shared`), the label is that of
    the whole one.
    """
    found = labels(node).get(f"{resource}.product") or labels(node).get(names.NODE_PRODUCT) or names.UNKNOWN_PRODUCT
    return f"{found}-SHARED" if resource.endswith(".shared") else found


def accelerator_memory_bytes(node: Object, resource: str = names.DEFAULT_RESOURCE) -> int:
    """Memory of one accelerator: as the node's label says (MiB), else by its product's data sheet; 0 is unknown."""
    stated = labels(node).get(f"{resource}.memory") or labels(node).get(names.NODE_ACCELERATOR_MEMORY) or ""
    return (int(stated) << 20 if stated.isdecimal() else 0) or data_sheet_memory_bytes(product(node, resource))


def data_sheet_memory_bytes(of_product: str) -> int:
    """Memory of one accelerator of a product; 0 for one that is not known."""
    known = look_up(of_product)
    return known.memory_bytes if known else 0


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
