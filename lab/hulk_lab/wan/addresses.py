"""LabSpec + slot -> every name and address of a lab, by arithmetic alone.

A slot is a small number that only one lab on the machine holds (`hulk_lab.wan.slots`). It picks a /16, a loopback
address and a prefix of namespace and interface names, so two labs never meet. With S = 128 + slot:

    10.S.0.0/20    management: .0.1 the machine, .1.<node index + 1> the nodes; never carries pod-to-pod traffic
    10.S.16.0/20   services: .16.1 kubernetes, .16.10 cluster DNS
    10.S.32.0/20   region networks: 10.S.(32 + region).0/24, router .1, nodes .10 and up
    10.S.48.0/20   the routers' ends of the WAN
    10.S.64.0/18   pods: 10.S.(64 + node index).0/24, routed flat across all regions
    10.S.128.0/17  addresses that kwok invents for simulated pods, routed nowhere
    127.S.0.1      what only the machine itself may reach (etcd, scheduler, controller manager)

In a lab with IPv6 every address 10.S.x.y has a twin, fd00:S::10.S.x.y, and every network one of the same size. In a
lab of only IPv6 nothing but the machine's own loopback has an IPv4 address, and what is named 10.S.x.y is its twin.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hulk_lab.spec import LabSpec, NodeSpec, RegionSpec

NUM_SLOTS = 32
_BASE = 128
NETNS_DIR = Path("/run/netns")

PORTS = {
    "apiserver": 6443,
    "etcd": 2379,
    "etcd-peer": 2380,
    "controller-manager": 10257,
    "scheduler": 10259,
    "kwok": 10247,
    "prometheus": 9090,
    "kueue-webhook": 9443,
    "kueue-health": 8081,
}
"""Ports are the usual ones: the addresses already differ between labs."""


def slot_network(slot: int) -> ipaddress.IPv4Network:
    """Every address of a slot except its loopback one."""
    return ipaddress.IPv4Network(f"10.{_BASE + slot}.0.0/16")


def in_url(address: str) -> str:
    """An address as URLs have it.

    >>> in_url("10.128.0.1"), in_url("fd00:80::1")
    ('10.128.0.1', '[fd00:80::1]')
    """
    return f"[{address}]" if ":" in address else address


def netns_prefix(slot: int) -> str:
    """Every namespace of the lab in this slot starts with it, and no other does."""
    return f"hl{slot}-"


def netns_path(netns: str) -> Path:
    """For `nsenter --net=PATH`."""
    return NETNS_DIR / netns


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """Where one real node is."""

    index: int
    name: str
    region: str
    zone: str
    speed: float
    num_accelerators: int
    netns: str
    host_interface: str
    """The machine's end of the management veth; inside the namespace it is `mgmt`."""
    management_address: str
    """The kubelet's --node-ip: what the API server dials."""
    address: str
    """On the region's network, interface eth0."""
    gateway: str
    pod_cidr: str

    @property
    def netns_path(self) -> Path:
        return netns_path(self.netns)


@dataclass(frozen=True, slots=True)
class RouterNetwork:
    """Where one region's router is."""

    index: int
    region: str
    netns: str
    lan_cidr: str
    lan_address: str
    wan_address: str
    pod_cidrs: tuple[str, ...]
    """Of the region's nodes; with `lan_cidr` and `wan_address` all that lies behind this router."""


@dataclass(frozen=True)
class LabNetwork:
    """All names and addresses of the lab `spec` in `slot`."""

    spec: LabSpec
    slot: int

    @property
    def _octets(self) -> str:
        return f"10.{_BASE + self.slot}"

    def ipv6(self, address: str) -> str:
        """The twin of an address or a network."""
        host, _, length = address.partition("/")
        high = 0xFD00 << 112 | (_BASE + self.slot) << 96
        twin = str(ipaddress.IPv6Address(high | int(ipaddress.IPv4Address(host))))
        return f"{twin}/{96 + int(length)}" if length else twin

    def families(self, address: str) -> tuple[str, ...]:
        """An address or network as the cluster knows it, the family that comes first at the front."""
        if not self.spec.ipv6:
            return (address,)
        return (self.ipv6(address),) if self.spec.ipv6 == "only" else (self.ipv6(address), address)

    def first(self, address: str) -> str:
        """The address of the family that comes first."""
        return self.families(address)[0]

    @property
    def bridge(self) -> str:
        """The management bridge in the machine's own namespace."""
        return f"hl{self.slot}"

    @property
    def control_address(self) -> str:
        """The machine on the management bridge: API server and Prometheus bind it, nodes and pods reach it."""
        return f"{self._octets}.0.1"

    @property
    def loopback_address(self) -> str:
        """For what only the machine itself may reach."""
        return f"127.{_BASE + self.slot}.0.1"

    @property
    def management_cidr(self) -> str:
        return f"{self._octets}.0.0/20"

    @property
    def service_cidr(self) -> str:
        return f"{self._octets}.16.0/20"

    @property
    def api_service_address(self) -> str:
        """The first address of the service range: the API server gives it to `kubernetes.default`."""
        return f"{self._octets}.16.1"

    @property
    def dns_address(self) -> str:
        return f"{self._octets}.16.10"

    @property
    def pod_cidr(self) -> str:
        """Of all real nodes (kube-proxy's --cluster-cidr)."""
        return f"{self._octets}.64.0/18"

    @property
    def kwok_pod_cidr(self) -> str:
        return f"{self._octets}.128.0/17"

    @cached_property
    def nodes(self) -> tuple[NodeNetwork, ...]:
        return tuple(self._node(i, region, node) for i, region, node in self.spec.nodes())

    @cached_property
    def routers(self) -> tuple[RouterNetwork, ...]:
        return tuple(self._router(i, region) for i, region in enumerate(self.spec.regions))

    def node(self, name: str) -> NodeNetwork:
        """ValueError names the nodes there are."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise ValueError(f"lab {self.spec.name} has no node {name!r}, only {', '.join(n.name for n in self.nodes)}")

    def nodes_of(self, region: str) -> tuple[NodeNetwork, ...]:
        return tuple(node for node in self.nodes if node.region == region)

    def _node(self, index: int, region: RegionSpec, node: NodeSpec) -> NodeNetwork:
        lan = 32 + self.spec.regions.index(region)
        position = [n.name for n in region.nodes].index(node.name)
        return NodeNetwork(
            index=index,
            name=node.name,
            region=region.name,
            zone=f"{region.name}-a",
            speed=node.speed,
            num_accelerators=node.accelerators,
            netns=f"{netns_prefix(self.slot)}node-{node.name}",
            host_interface=f"hl{self.slot}n{index}",
            management_address=f"{self._octets}.1.{index + 1}",
            address=f"{self._octets}.{lan}.{10 + position}",
            gateway=f"{self._octets}.{lan}.1",
            pod_cidr=f"{self._octets}.{64 + index}.0/24",
        )

    def _router(self, index: int, region: RegionSpec) -> RouterNetwork:
        return RouterNetwork(
            index=index,
            region=region.name,
            netns=f"{netns_prefix(self.slot)}router-{region.name}",
            lan_cidr=f"{self._octets}.{32 + index}.0/24",
            lan_address=f"{self._octets}.{32 + index}.1",
            wan_address=f"{self._octets}.48.{index + 1}",
            pod_cidrs=tuple(node.pod_cidr for node in self.nodes_of(region.name)),
        )
