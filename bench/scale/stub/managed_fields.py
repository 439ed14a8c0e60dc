"""Who owns which field of an object: server-side apply, and `metadata.managedFields` as the API server writes them.

An object is looked at as its leaves by path. Elements of a path are those of FieldsV1: `f:NAME` of a mapping,
`k:{"name":"x"}` of a list whose items have a key. Other lists are leaves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

Object = dict[str, Any]
Path = tuple[str, ...]
Leaves = dict[Path, Any]

LIST_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "accelerators": ("product", "workload"),
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "links": ("target", "underLoad"),
    "measurements": ("id",),
    "ownerReferences": ("uid",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
_UNOWNED: Final = ("apiVersion", "kind")
_UNOWNED_META: Final = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "uid",
)
_LIVE: Final = "."


def leaves(tree: Any, name: str = "") -> Leaves:
    """The leaves of an object; an empty mapping is one.

    >>> leaves({"env": [{"name": "A", "value": "x"}], "args": ["y"]})
    {('f:env', 'k:{"name":"A"}', 'f:name'): 'A', ('f:env', 'k:{"name":"A"}', 'f:value'): 'x', ('f:args',): ['y']}
    """
    found: Leaves = {}
    _walk(tree, name, (), found)
    return found


def _walk(tree: Any, name: str, path: Path, found: Leaves) -> None:
    if isinstance(tree, dict) and (tree or not path):
        for key, value in tree.items():
            _walk(value, key, (*path, f"f:{key}"), found)
    elif isinstance(tree, list) and tree and (keys := LIST_KEYS.get(name)) and all(_has(item, keys) for item in tree):
        for item in tree:
            key = json.dumps({key: item[key] for key in keys}, separators=(",", ":"))
            _walk(item, "", (*path, f"k:{key}"), found)
    else:
        found[path] = tree


def _has(item: Any, keys: Iterable[str]) -> bool:
    return isinstance(item, dict) and all(key in item for key in keys)


def built(found: Leaves) -> Object:
    """The object with these leaves: the reverse of `leaves`."""
    root: Object = {}
    for path, value in found.items():
        node: Any = root
        for element in path[:-1]:
            node = node.setdefault(element, {})
        node[path[-1]] = value
    result: Object = _plain(root)
    return result


def _plain(node: Any) -> Any:
    if not isinstance(node, dict) or not node:
        return node
    if next(iter(node)).startswith("k:"):
        return [_plain(item) for item in node.values()]
    if next(iter(node)).startswith("f:"):
        return {element[2:]: _plain(value) for element, value in node.items()}
    return node  # a leaf that is a mapping: an item of a list without a key


def owned_part(item: Object) -> Object:
    """What managers own of an object: all but its identity."""
    metadata = {key: value for key, value in (item.get("metadata") or {}).items() if key not in _UNOWNED_META}
    rest = {key: value for key, value in item.items() if key not in (*_UNOWNED, "metadata")}
    return {**({"metadata": metadata} if metadata else {}), **rest}


def entry(manager: str, operation: str, subresource: str, api_version: str, time: str, paths: Iterable[Path]) -> Object:
    """One entry of managedFields."""
    tree: Object = {}
    for path in paths:
        node = tree
        for element in path:
            node = node.setdefault(element, {})
            if element.startswith("k:"):
                node.setdefault(_LIVE, {})
    made = {
        "manager": manager,
        "operation": operation,
        "apiVersion": api_version,
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": tree,
    }
    return {**made, "subresource": subresource} if subresource else made


def paths_of(fields: Object) -> set[Path]:
    """The leaves of one entry's fieldsV1."""
    found: set[Path] = set()

    def walk(node: Object, path: Path) -> None:
        below = [(element, child) for element, child in node.items() if element != _LIVE]
        if not below and path:
            found.add(path)
        for element, child in below:
            walk(child, (*path, element))

    walk(fields, ())
    return found


def updated(before: Object | None, after: Object, manager: str, subresource: str, time: str) -> list[Object]:
    """managedFields after a create (`before` None) or a patch: who changes a field owns it."""
    own, was = leaves(owned_part(after)), leaves(owned_part(before)) if before else {}
    changed = {path for path, value in own.items() if path not in was or was[path] != value}
    entries = list((before or {}).get("metadata", {}).get("managedFields") or ())
    if not changed and before and not was.keys() - own.keys():
        return entries
    mine = ("Update", manager, subresource)
    kept, paths = [], set(changed)
    for each in entries:
        left = (paths_of(each["fieldsV1"]) - changed) & own.keys()
        if (each["operation"], each["manager"], each.get("subresource", "")) == mine:
            paths |= left
        elif left:
            kept.append({**each, "fieldsV1": entry("", "", "", "", "", left)["fieldsV1"]})
    return [*kept, entry(manager, "Update", subresource, after["apiVersion"], time, paths)] if paths else kept


def applied(before: Object | None, body: Object, manager: str, subresource: str, time: str) -> Object:
    """The object after a forced server-side apply, with its managedFields.

    The manager owns exactly the fields in `body`; one that it gives up and nobody else owns goes.
    """
    base = before or {key: body[key] for key in ("apiVersion", "kind")} | {"metadata": dict(body["metadata"])}
    own, live = leaves(owned_part(body)), leaves(owned_part(base)) if before else {}
    mine = ("Apply", manager, subresource)
    had: set[Path] = set()
    others: list[tuple[Object, set[Path]]] = []
    for each in base["metadata"].get("managedFields") or ():
        paths = paths_of(each["fieldsV1"])
        if (each["operation"], each["manager"], each.get("subresource", "")) == mine:
            had = paths
        else:
            taken = {path for path in paths if path in own and live.get(path) != own[path]}
            others.append((each, paths - taken))
    of_others = set().union(*(paths for _, paths in others))
    given_up = had - own.keys() - of_others
    whole = {path for path, value in own.items() if value != {}}  # an empty mapping takes nothing from others
    merged = {path: value for path, value in live.items() if path not in given_up and not _is_below(path, whole)}
    merged |= {path: value for path, value in own.items() if path in whole or not _is_above(path, merged)}
    kept = [
        each
        if paths == paths_of(each["fieldsV1"])
        else {**each, "fieldsV1": entry("", "", "", "", "", paths)["fieldsV1"]}
        for each, paths in others
        if paths
    ]
    fields = [*kept, entry(manager, "Apply", subresource, body["apiVersion"], time, own)]
    result = built(merged)
    identity = {key: value for key, value in base["metadata"].items() if key in _UNOWNED_META}
    metadata = {**identity, **result.pop("metadata", {}), "managedFields": fields}
    return {"apiVersion": base["apiVersion"], "kind": base["kind"], "metadata": metadata, **result}


def _is_below(path: Path, others: set[Path]) -> bool:
    return any(path[:length] in others for length in range(1, len(path)))


def _is_above(path: Path, others: Leaves) -> bool:
    return any(other[: len(path)] == path for other in others)
