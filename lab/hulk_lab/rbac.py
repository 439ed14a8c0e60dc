"""What each part of the lab may do, as manifests."""

from __future__ import annotations

from typing import Any

_GROUP = "rbac.authorization.k8s.io"


def role(name: str, *rules: dict[str, list[str]]) -> dict[str, Any]:
    """A ClusterRole."""
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": list(rules),
    }


def rule(group: str, resource: str, *verbs: str) -> dict[str, list[str]]:
    """One rule of a role; the empty group is the core API."""
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def bind(name: str, user: str, role_name: str) -> dict[str, Any]:
    """A ClusterRoleBinding of one user (a certificate's CN)."""
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role_name},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": user}],
    }
