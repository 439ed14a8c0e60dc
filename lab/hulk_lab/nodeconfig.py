"""NodeNetwork -> the configuration files of one node's containerd, CNI, kubelet and kube-proxy. Nothing but data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hulk_lab import cgroups
from hulk_lab.builds.golang import program
from hulk_lab.certificates import Pair
from hulk_lab.wan.addresses import LabNetwork, NodeNetwork

PRODUCT = "lab-cpu"
RESOURCE = "nvidia.com/gpu"
CONTAINERD_FOLDER = Path("/run/containerd")
"""A node's own, by its mount namespace: containerd's state and sockets, gone when the node dies."""
SOCKET = CONTAINERD_FOLDER / "containerd.sock"
DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
"""Where every kubelet replaces a socket as it starts, wherever its own folder is: two at once would fail."""
PRIVATE_FOLDERS = (CONTAINERD_FOLDER, Path("/var/log/containers"), Path("/var/lib/cni"), DEVICE_PLUGINS)
"""What node programs write at a fixed place of the machine: each node sees an empty one of its own there."""


@dataclass(frozen=True, slots=True)
class NodePaths:
    """Where one node keeps what it writes; short names, because sockets below it may not exceed 108 bytes."""

    folder: Path

    @property
    def containerd_root(self) -> Path:
        return self.folder / "containerd"

    @property
    def containerd_config(self) -> Path:
        return self.folder / "containerd.toml"

    @property
    def cni(self) -> Path:
        return self.folder / "cni"

    @property
    def kubelet_root(self) -> Path:
        return self.folder / "kubelet"

    @property
    def kubelet_config(self) -> Path:
        return self.folder / "kubelet.json"

    @property
    def proxy_config(self) -> Path:
        return self.folder / "kube-proxy.json"

    @property
    def pod_logs(self) -> Path:
        return self.folder / "pods"


def containerd(paths: NodePaths, sandbox_image: str, runtime_spec: Path) -> str:
    """containerd's configuration (TOML)."""
    return f"""\
version = 3
root = "{paths.containerd_root}"
state = "{CONTAINERD_FOLDER}/state"

[grpc]
  address = "{SOCKET}"
[ttrpc]
  address = "{SOCKET}.ttrpc"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{sandbox_image}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  base_runtime_spec = "{runtime_spec}"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = "{program("runc")}"
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "{paths.cni}"
[plugins.'io.containerd.nri.v1.nri']
  disable = true
"""


def cni(net: LabNetwork, node: NodeNetwork, tcp: Mapping[str, str | int]) -> dict[str, Any]:
    """Pods on a bridge, their addresses seen unchanged everywhere: routing between nodes is the network's.

    `tcp`: settings of the node's namespace, which a pod's own would else take from the machine.
    """
    subnets = net.families(node.pod_cidr)
    return {
        "cniVersion": "1.0.0",
        "name": "lab",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": True,
                "ipMasq": False,
                "hairpinMode": True,
                "mtu": net.spec.mtu,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": subnet}] for subnet in subnets],
                    "routes": [{"dst": "::/0" if ":" in subnet else "0.0.0.0/0"} for subnet in subnets],
                },
            },
            {"type": "tuning", "sysctl": {key: str(value) for key, value in tcp.items()}},
        ],
    }


def kubelet(
    net: LabNetwork, node: NodeNetwork, paths: NodePaths, serving: Pair, client_ca: Path, cgroup_v2: bool
) -> dict[str, Any]:
    """The kubelet's configuration: nobody anonymous, the API server decides who may do what."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "::" if net.spec.ipv6 else node.management_address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(client_ca)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "clusterDNS": [net.first(net.dns_address)],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroups.node_group(net.spec.name, node.name),
        "cgroupsPerQOS": True,
        "failCgroupV1": cgroup_v2,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "podLogsDir": str(paths.pod_logs),
        "volumePluginDir": str(paths.folder / "plugins"),
        "providerID": f"lab://{net.spec.name}/{node.region}/{node.name}",
        "syncFrequency": "10s",
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
    }


def labels(node: NodeNetwork) -> dict[str, str]:
    """What the kubelet registers its node with."""
    return {
        "topology.kubernetes.io/region": node.region,
        "topology.kubernetes.io/zone": node.zone,
        f"{RESOURCE}.product": PRODUCT,
    }


def kube_proxy(net: LabNetwork, node: NodeNetwork, kubeconfig: Path) -> dict[str, Any]:
    """Services by iptables in the node's network namespace; conntrack's limits belong to the machine."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "bindAddress": net.first(node.management_address),
        "hostnameOverride": node.name,
        "clusterCIDR": ",".join(net.families(net.pod_cidr)),
        "mode": "iptables",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "iptables": {"minSyncPeriod": "200ms", "syncPeriod": "30s"},
    }
