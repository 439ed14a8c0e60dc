"""The only room that talks to the API server. The client library is loaded by whoever connects."""

from importlib import import_module
from typing import TYPE_CHECKING

from hulk_operator.cluster.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NamespaceEnds,
    NameTaken,
    NotFound,
    QuotaExceeded,
    Refused,
    Unavailable,
)
from hulk_operator.cluster.informer import Informer, Sink
from hulk_operator.cluster.lease import Lease, LeaseLost
from hulk_operator.cluster.object_cache import Newest, object_key
from hulk_operator.cluster.protocol import ORIGIN, Change, Cluster, Listing, Object
from hulk_operator.cluster.resources import (
    CLAIM_TEMPLATES,
    CONFIG_MAPS,
    DAEMON_SETS,
    DEFINITIONS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    EVENTS,
    HULK_JOBS,
    HULK_SWEEPS,
    HULK_TOPOLOGIES,
    LEASES,
    NETWORK_POLICIES,
    NODE_PROFILES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_FLAVORS,
    RESOURCE_SLICES,
    SECRETS,
    SERVICES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    ApiResource,
)

if TYPE_CHECKING:
    from hulk_operator.cluster.client import ApiCluster
    from hulk_operator.cluster.kubeconfig import connect
    from hulk_operator.cluster.own_namespace import in_cluster, namespace_of

__all__ = [
    "CLAIM_TEMPLATES",
    "CONFIG_MAPS",
    "DAEMON_SETS",
    "DEFINITIONS",
    "DEPLOYMENTS",
    "DEVICE_CLASSES",
    "EVENTS",
    "HULK_JOBS",
    "HULK_SWEEPS",
    "HULK_TOPOLOGIES",
    "LEASES",
    "NETWORK_POLICIES",
    "NODES",
    "NODE_PROFILES",
    "ORIGIN",
    "PODS",
    "POD_GROUPS",
    "PRIORITY_CLASSES",
    "RESOURCE_CLAIMS",
    "RESOURCE_FLAVORS",
    "RESOURCE_SLICES",
    "SECRETS",
    "SERVICES",
    "WORKLOADS",
    "WORKLOAD_PRIORITY_CLASSES",
    "AlreadyExists",
    "ApiCluster",
    "ApiResource",
    "Change",
    "Cluster",
    "ClusterError",
    "Conflict",
    "Forbidden",
    "Gone",
    "Informer",
    "Invalid",
    "Lease",
    "LeaseLost",
    "Listing",
    "NameTaken",
    "NamespaceEnds",
    "Newest",
    "NotFound",
    "Object",
    "QuotaExceeded",
    "Refused",
    "Sink",
    "Unavailable",
    "connect",
    "in_cluster",
    "namespace_of",
    "object_key",
]

_MODULES = {
    "ApiCluster": "client",
    "connect": "kubeconfig",
    "in_cluster": "own_namespace",
    "namespace_of": "own_namespace",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
