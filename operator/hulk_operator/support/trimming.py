"""Objects -> what of them helps to find a fault, so that a large cluster fits into a bundle."""

from collections.abc import Callable
from typing import Any, Final

from hulk_operator.cluster import Object
from hulk_operator.support.redaction import redact_object

NODE_STATUS: Final = ("capacity", "allocatable", "nodeInfo")
POD_STATUS: Final = ("phase", "reason", "message", "startTime", "containerStatuses")
EVENT_FIELDS: Final = ("type", "reason", "message", "count", "firstTimestamp", "lastTimestamp", "eventTime", "source")
CRD_METADATA: Final = ("name", "generation", "labels", "annotations", "creationTimestamp")


def user_object(item: Object) -> Object:
    """Of a user: whole, without values of environment variables."""
    return redact_object(item)


def own_object(item: Object) -> Object:
    """Of Hulk itself: its settings stay."""
    return redact_object(item, own=True)


def agent(item: Object) -> Object:
    """Of an agent's pod, as there is one a node: where it is and how it is."""
    spec = item.get("spec") or {}
    containers = [_only(one, ("name", "image")) for one in spec.get("containers") or ()]
    return redact_object(
        {
            "metadata": _only(item["metadata"], ("name", "namespace", "labels", "creationTimestamp")),
            "spec": {**_only(spec, ("nodeName",)), "containers": containers},
            "status": _only(item.get("status") or {}, POD_STATUS),
        }
    )


def node(item: Object) -> Object:
    """Labels, taints, resources, versions, and conditions that are not as they should be; no addresses, no images."""
    metadata, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    conditions = [one for one in status.get("conditions") or () if one["status"] != str(one["type"] == "Ready")]
    return redact_object(
        {
            "metadata": _only(metadata, ("name", "uid", "labels", "creationTimestamp")),
            "spec": _only(spec, ("taints", "unschedulable")),
            "status": {**_only(status, NODE_STATUS), "conditions": conditions},
        }
    )


def event(item: Object) -> Object:
    """What was said of whom, and how often."""
    about = _only(item.get("involvedObject") or {}, ("kind", "namespace", "name", "uid"))
    return redact_object({"involvedObject": about, **_only(item, EVENT_FIELDS)})


def sizes(item: Object) -> Object:
    """Of a ConfigMap: the bytes of each key as stored, nothing of its content."""
    data = {**(item.get("data") or {}), **(item.get("binaryData") or {})}
    metadata = _only(item["metadata"], ("name", "namespace", "labels", "creationTimestamp"))
    return {"metadata": metadata, "bytes": {key: len(value) for key, value in data.items()}}


def definition(item: Object) -> Object:
    """Of a CustomResourceDefinition: which versions are served and stored, not their schemas."""
    versions = [_only(version, ("name", "served", "storage")) for version in item["spec"]["versions"]]
    return redact_object(
        {
            "metadata": _only(item["metadata"], CRD_METADATA),
            "versions": versions,
            "storedVersions": (item.get("status") or {}).get("storedVersions"),
            "conditions": (item.get("status") or {}).get("conditions"),
        }
    )


Trim = Callable[[Object], Object]


def _only(node: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: node[key] for key in keys if key in node}
