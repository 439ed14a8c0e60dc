"""The only room that talks to the API server."""

from hulk_operator.cluster.client import ApiCluster
from hulk_operator.cluster.connect import connect, in_cluster
from hulk_operator.cluster.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NameTaken,
    NotFound,
    QuotaExceeded,
    Refused,
    Unavailable,
)
from hulk_operator.cluster.lease import Lease, LeaseLost
from hulk_operator.cluster.protocol import ORIGIN, Change, Cluster, Listing, Object
from hulk_operator.cluster.resources import (
    CONFIG_MAPS,
    EVENTS,
    HULK_JOBS,
    HULK_TOPOLOGIES,
    LEASES,
    NETWORK_POLICIES,
    NODE_PROFILES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
    ApiResource,
)

__all__ = [
    "CONFIG_MAPS",
    "EVENTS",
    "HULK_JOBS",
    "HULK_TOPOLOGIES",
    "LEASES",
    "NETWORK_POLICIES",
    "NODES",
    "NODE_PROFILES",
    "ORIGIN",
    "PODS",
    "PRIORITY_CLASSES",
    "SERVICES",
    "AlreadyExists",
    "ApiCluster",
    "ApiResource",
    "Change",
    "Cluster",
    "ClusterError",
    "Conflict",
    "Forbidden",
    "Gone",
    "Invalid",
    "Lease",
    "LeaseLost",
    "Listing",
    "NameTaken",
    "NotFound",
    "Object",
    "QuotaExceeded",
    "Refused",
    "Unavailable",
    "connect",
    "in_cluster",
]
