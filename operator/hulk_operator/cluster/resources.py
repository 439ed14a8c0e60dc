"""The kinds of objects Hulk reads and writes, as the API server addresses them."""

from dataclasses import dataclass
from typing import Final

from hulk_operator import names


@dataclass(frozen=True, slots=True)
class ApiResource:
    """One collection of the API server: `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """What an object of this kind carries as apiVersion."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of the collection, or of one object in it.

        >>> ApiResource("", "v1", "pods", "Pod").path("research", "demo-1-0", "status")
        '/api/v1/namespaces/research/pods/demo-1-0/status'
        >>> ApiResource("hulk.dev", "v1alpha1", "nodeprofiles", "NodeProfile", namespaced=False).path()
        '/apis/hulk.dev/v1alpha1/nodeprofiles'
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        tail = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{root}{scope}/{self.plural}{tail}"


PODS: Final = ApiResource("", "v1", "pods", "Pod")
SERVICES: Final = ApiResource("", "v1", "services", "Service")
CONFIG_MAPS: Final = ApiResource("", "v1", "configmaps", "ConfigMap")
SECRETS: Final = ApiResource("", "v1", "secrets", "Secret")
NODES: Final = ApiResource("", "v1", "nodes", "Node", namespaced=False)
EVENTS: Final = ApiResource("", "v1", "events", "Event")
NETWORK_POLICIES: Final = ApiResource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
POD_GROUPS: Final = ApiResource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
LEASES: Final = ApiResource("coordination.k8s.io", "v1", "leases", "Lease")
PRIORITY_CLASSES: Final = ApiResource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
DEVICE_CLASSES: Final = ApiResource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
RESOURCE_SLICES: Final = ApiResource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
RESOURCE_CLAIMS: Final = ApiResource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
CLAIM_TEMPLATES: Final = ApiResource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
DEPLOYMENTS: Final = ApiResource("apps", "v1", "deployments", "Deployment")
DAEMON_SETS: Final = ApiResource("apps", "v1", "daemonsets", "DaemonSet")
DEFINITIONS: Final = ApiResource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
HULK_JOBS: Final = ApiResource(names.GROUP, names.VERSION, names.JOB_PLURAL, names.JOB_KIND)
HULK_SWEEPS: Final = ApiResource(names.GROUP, names.VERSION, names.SWEEP_PLURAL, names.SWEEP_KIND)
NODE_PROFILES: Final = ApiResource(
    names.GROUP, names.VERSION, names.PROFILE_PLURAL, names.PROFILE_KIND, namespaced=False
)
HULK_TOPOLOGIES: Final = ApiResource(
    names.GROUP, names.VERSION, names.TOPOLOGY_PLURAL, names.TOPOLOGY_KIND, namespaced=False
)
WORKLOADS: Final = ApiResource(names.KUEUE_GROUP, names.KUEUE_VERSION, "workloads", "Workload")
RESOURCE_FLAVORS: Final = ApiResource(
    names.KUEUE_GROUP, names.KUEUE_VERSION, "resourceflavors", "ResourceFlavor", namespaced=False
)
WORKLOAD_PRIORITY_CLASSES: Final = ApiResource(
    names.KUEUE_GROUP, names.KUEUE_VERSION, "workloadpriorityclasses", "WorkloadPriorityClass", namespaced=False
)
