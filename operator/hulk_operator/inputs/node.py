"""What Hulk reads of a Node object, apart from its size: labels, region, readiness, cordon, taints."""

from collections.abc import Mapping
from typing import Any

from hulk_placement.accelerators import look_up

from hulk_operator import names
from hulk_operator.cluster import Object
from hulk_operator.inputs.accelerator_labels import Labelled, labelled


def labels(node: Object) -> Mapping[str, Any]:
    """The node's labels."""
    return node["metadata"].get("labels") or {}


def region(node: Object) -> str:
    """The node's region; nodes without the label are in one of their own."""
    return labels(node).get(names.NODE_REGION) or names.UNKNOWN_REGION


def product(node: Object, resource: str = names.DEFAULT_RESOURCE) -> str:
    """The product that a resource of the node stands for, by its vendor's labels."""
    return _labelled(node, resource).product or names.UNKNOWN_PRODUCT


def offered_products(node: Object) -> dict[str, str]:
    """The product of every kind of device that the node offers: resources with a vendor's domain."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return {resource: product(node, resource) for resource in allocatable if "/" in resource}


def accelerator_memory_bytes(node: Object, resource: str = names.DEFAULT_RESOURCE) -> int:
    """Memory of one accelerator: as the vendor's labels say, else by its product's data sheet; 0 is unknown."""
    found = _labelled(node, resource)
    return found.memory_bytes or data_sheet_memory_bytes(found.product)


def _labelled(node: Object, resource: str) -> Labelled:
    if found := (node.get("devices") or {}).get(resource):  # of ResourceSlices
        return Labelled(*found)
    offered = str(((node.get("status") or {}).get("allocatable") or {}).get(resource, ""))
    return labelled(labels(node), resource, int(offered) if offered.isdecimal() else 0)


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
