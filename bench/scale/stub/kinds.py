"""The kinds that are served, and the discovery documents about them."""

from __future__ import annotations

from typing import Any, Final

from hulk_operator.cluster import (
    CONFIG_MAPS,
    EVENTS,
    HULK_JOBS,
    HULK_SWEEPS,
    HULK_TOPOLOGIES,
    LEASES,
    NETWORK_POLICIES,
    NODE_PROFILES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SECRETS,
    SERVICES,
    ApiResource,
)

NAMESPACES: Final = ApiResource("", "v1", "namespaces", "Namespace", namespaced=False)
SERVED: Final = (
    CONFIG_MAPS,
    EVENTS,
    HULK_JOBS,
    HULK_SWEEPS,
    HULK_TOPOLOGIES,
    LEASES,
    NAMESPACES,
    NETWORK_POLICIES,
    NODE_PROFILES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SECRETS,
    SERVICES,
)
WITH_STATUS: Final = frozenset((HULK_JOBS, HULK_SWEEPS, NODE_PROFILES, NODES, PODS))
VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "watch")
VERSION: Final = {"major": "1", "minor": "36", "gitVersion": "v1.36.0+stub", "platform": "linux/amd64"}

Object = dict[str, Any]


def discovery(path: str) -> Object | None:
    """The document at a path; None where there is none."""
    return _DOCUMENTS.get(path)


def _documents() -> dict[str, Object]:
    groups: dict[tuple[str, str], list[ApiResource]] = {}
    for resource in SERVED:
        groups.setdefault((resource.group, resource.version), []).append(resource)
    lists = {_path(*group): _resources(*group, members) for group, members in groups.items()}
    named = [_group(group, version) for group, version in sorted(groups) if group]
    return {
        "/version": VERSION,
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": named},
        **lists,
    }


def _path(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def _group(group: str, version: str) -> Object:
    served = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [served], "preferredVersion": served}


def _resources(group: str, version: str, members: list[ApiResource]) -> Object:
    rows = []
    for one in members:
        row = {"name": one.plural, "singularName": one.kind.lower(), "namespaced": one.namespaced, "kind": one.kind}
        rows.append({**row, "verbs": list(VERBS)})
        if one in WITH_STATUS:
            rows.append({**row, "name": f"{one.plural}/status", "singularName": "", "verbs": ["get", "patch"]})
    name = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": rows}


_DOCUMENTS: Final = _documents()
