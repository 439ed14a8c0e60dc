"""Create, patch, apply and delete as the API server does them, on a store: preconditions, subresources, owners."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, Final

from hulk_operator.cluster import PODS

from bench.scale.stub import managed_fields
from bench.scale.stub.errors import already_exists, conflict, not_found, other_uid
from bench.scale.stub.kinds import WITH_STATUS
from bench.scale.stub.store import Object, Record, Store
from bench.scale.stub.target import Target

GRACE_S: Final = 30
_POD_DEFAULTS: Final[Mapping[str, Any]] = {
    "dnsPolicy": "ClusterFirst",
    "preemptionPolicy": "PreemptLowerPriority",
    "priority": 0,
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "serviceAccount": "default",
    "serviceAccountName": "default",
    "terminationGracePeriodSeconds": GRACE_S,
    "tolerations": [
        {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for taint in ("not-ready", "unreachable")
    ],
}


def found(store: Store, target: Target) -> Record:
    """The object at a target; ApiError where there is none."""
    record = store.collections[target.resource].records.get(target.key)
    if record is None:
        raise not_found(target.resource, target.name)
    return record


def create(store: Store, target: Target, body: Object, manager: str, *, dry_run: bool = False) -> Object:
    """A new object, as the server completes it."""
    resource, now = target.resource, timestamp()
    metadata: Object = {**body["metadata"], "uid": str(uuid.uuid4()), "creationTimestamp": now}
    if target.namespace:
        metadata["namespace"] = target.namespace
    if Target(resource, target.namespace, metadata["name"]).key in store.collections[resource].records:
        raise already_exists(resource, metadata["name"])
    item = {"kind": resource.kind, "apiVersion": resource.api_version, **body, "metadata": metadata}
    if "spec" in item:
        metadata["generation"] = 1
    if resource == PODS:
        item = {
            **item,
            "spec": {**_POD_DEFAULTS, **item["spec"]},
            "status": {"phase": "Pending", "qosClass": "Burstable"},
        }
    elif resource in WITH_STATUS and resource.group:  # a node's first status is taken
        item.pop("status", None)
    metadata["managedFields"] = managed_fields.updated(None, item, manager, "", now)
    if dry_run:
        return item
    return store.put(resource, item).read()


def merge(store: Store, target: Target, change: Object, manager: str) -> Object:
    """RFC 7386; with metadata.resourceVersion, only at that version."""
    record = found(store, target)
    _check_version(target, record, change)
    before = record.read()
    after = _bounded(target, before, _merged(before, change))
    after["metadata"]["managedFields"] = managed_fields.updated(before, after, manager, target.subresource, timestamp())
    return _replaced(store, target, before, after)


def apply(store: Store, target: Target, body: Object, manager: str) -> Object:
    """Server-side apply, forced; creates what is not there."""
    record = store.collections[target.resource].records.get(target.key)
    if record is None:
        if target.subresource:
            raise not_found(target.resource, target.name)
        made = managed_fields.applied(None, body, manager, "", timestamp())
        fields = made["metadata"].pop("managedFields")
        created = create(store, target, made, manager)
        created["metadata"]["managedFields"] = fields
        return store.put(target.resource, created).read()
    _check_version(target, record, body)
    before = record.read()
    after = managed_fields.applied(before, body, manager, target.subresource, timestamp())
    return _replaced(store, target, before, _bounded(target, before, after))


def delete(store: Store, target: Target, options: Object) -> Object:
    """Delete one object, pods with their grace period."""
    record = found(store, target)
    uid = (options.get("preconditions") or {}).get("uid")
    if uid is not None and uid != record.uid:
        raise other_uid(target.resource, target.name, uid, record.uid)
    item = record.read()
    if target.resource == PODS and (grace_s := _grace_s(item, options)):
        if "deletionTimestamp" not in item["metadata"]:
            item["metadata"] |= {"deletionTimestamp": timestamp(), "deletionGracePeriodSeconds": grace_s}
            return store.put(PODS, item).read()
        return item
    store.remove(target.resource, record)
    return item


def timestamp() -> str:
    """Now, as objects carry it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _grace_s(pod: Object, options: Object) -> int:
    """A pod that no node has is deleted at once."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    asked = options.get("gracePeriodSeconds")
    return int(pod["spec"].get("terminationGracePeriodSeconds", GRACE_S) if asked is None else asked)


def _check_version(target: Target, record: Record, change: Object) -> None:
    asked = (change.get("metadata") or {}).get("resourceVersion")
    if asked and asked != str(record.version):
        raise conflict(target.resource, target.name)


def _bounded(target: Target, before: Object, after: Object) -> Object:
    """A request to the status changes that alone, and every other one all but that; nobody changes the identity."""
    has_status = target.resource in WITH_STATUS
    if target.subresource == "status":
        kept = {key: value for key, value in before.items() if key not in ("status", "metadata")}
        metadata = {**before["metadata"], "managedFields": after["metadata"].get("managedFields", [])}
        return {**kept, "metadata": metadata, **({"status": after["status"]} if "status" in after else {})}
    if has_status:
        after = {key: value for key, value in after.items() if key != "status"}
        after |= {"status": before["status"]} if "status" in before else {}
    identity = ("name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion")
    own = {key: before["metadata"][key] for key in identity if key in before["metadata"]}
    return {**after, "metadata": {**after["metadata"], **own}}


def _replaced(store: Store, target: Target, before: Object, after: Object) -> Object:
    """A write that changes nothing is none; one that changes the spec is a new generation."""
    if _without_fields(before) == _without_fields(after):
        return before
    if before.get("spec") != after.get("spec") and "generation" in after["metadata"]:
        after["metadata"]["generation"] += 1
    return store.put(target.resource, after).read()


def _without_fields(item: Object) -> Object:
    metadata = {
        key: value for key, value in item["metadata"].items() if key not in ("managedFields", "resourceVersion")
    }
    return {**item, "metadata": metadata}


def _merged(target: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return deepcopy(change)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result
