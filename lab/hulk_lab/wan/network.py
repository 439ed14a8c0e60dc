"""LabNetwork -> namespaces, links, routes and the relay on this machine, and back to nothing.

Layout: the machine's own namespace holds a management bridge with one port per node; the ports are isolated, so nodes
reach the machine through it but never one another. Every region has a router namespace with a bridge for its nodes'
eth0 and the WAN device; pod networks are plain routes in the routers, so pod addresses are seen unchanged everywhere.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from hulk_lab.errors import LabError
from hulk_lab.prerequisites import MissingPrerequisiteError
from hulk_lab.processes import ProcessTable
from hulk_lab.spec import LabSpec
from hulk_lab.wan import congestion, relay
from hulk_lab.wan.addresses import NETNS_DIR, LabNetwork, NodeNetwork, RouterNetwork, netns_path, netns_prefix

_MARK = "network.json"
_WAN_QUEUE_PACKETS = 5000
"""Room between kernel and relay: the only buffer that counts is the relay's own, this one must never drop."""
_BRIDGE_SETTINGS = Path("/proc/sys/net/bridge")


def up(net: LabNetwork, state: Path) -> None:
    """Build the lab's network, or what is missing of it; ValueError when another description is up in its place."""
    built = _read_mark(state) if num_existing(net.slot) else None
    if built == _description(net):
        _start_relay(net, state)
        return
    if built is not None:
        raise ValueError(f"lab {net.spec.name} is up with another lab file: take it down first")
    down(net.slot, state)  # what a builder that was killed left
    _build(net)
    _start_relay(net, state)
    (state / _MARK).write_text(_description(net))


def down(slot: int, state: Path) -> None:
    """Remove everything `up` makes, whatever is there of it; processes inside the namespaces must have ended."""
    (state / _MARK).unlink(missing_ok=True)
    relay.stop(slot, ProcessTable(state))
    _ip(f"link del {name}" for name in _host_interfaces(slot))
    _ip(f"netns del {name}" for name in _namespaces(slot))
    congestion.restore(slot)


def num_existing(slot: int) -> int:
    """Namespaces and interfaces of this slot that exist."""
    return len(_namespaces(slot)) + len(_host_interfaces(slot))


def _start_relay(net: LabNetwork, state: Path) -> None:
    if net.routers:
        relay.start(net, ProcessTable(state))


def _description(net: LabNetwork) -> str:
    """What of the lab's file decides the network: speeds and simulated nodes do not."""
    nodes = [[node.netns, node.address] for node in net.nodes]
    return json.dumps([relay.config(net), nodes, tcp_settings(net.spec), net.spec.ipv6])


def _read_mark(state: Path) -> str | None:
    path = state / _MARK
    return path.read_text() if path.exists() else None


def _namespaces(slot: int) -> list[str]:
    return sorted(path.name for path in NETNS_DIR.glob(f"{netns_prefix(slot)}*"))


def _host_interfaces(slot: int) -> list[str]:
    return sorted(p.name for p in Path("/sys/class/net").iterdir() if re.fullmatch(rf"hl{slot}(n\d+)?", p.name))


def _ip(commands: Iterable[str], netns: str | None = None, *options: str) -> None:
    """Run lines of `ip` in one process; the error names the line."""
    lines = list(commands)
    if not lines:
        return
    where = ["-n", netns] if netns else []
    done = subprocess.run(
        ["ip", *options, *where, "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True, text=True
    )
    if done.returncode:
        raise LabError(f"ip{' -n ' + netns if netns else ''}: {done.stderr.strip()} in:\n" + "\n".join(lines))


def _sysctl(netns: str, settings: dict[str, str | int]) -> None:
    pairs = [f"{key}={value}" for key, value in settings.items()]
    command = ["nsenter", f"--net={netns_path(netns)}", "sysctl", "-qw", *pairs]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"sysctl in {netns}: {done.stderr.strip()}")


def require_bridge_filter(settings: Path = _BRIDGE_SETTINGS) -> None:
    """Load the kernel's br_netfilter: without it the answer of a service's pod to a pod of the same node stays in the
    node's bridge, is not given the service's address again, and is dropped by the pod that asked.
    """
    if not settings.exists():
        subprocess.run(["modprobe", "br_netfilter"], capture_output=True, check=False)
    if not settings.exists():
        raise MissingPrerequisiteError(
            "the kernel's br_netfilter is not loaded: services would fail between pods of one node",
            "apt-get install -y kmod && modprobe br_netfilter",
        )


def _build(net: LabNetwork) -> None:
    require_bridge_filter()
    congestion.allow(net.spec.congestion_control, net.slot)
    _set_addresses(net, _machine_lines(net))
    for router in net.routers:
        _sysctl(router.netns, {"net.ipv4.ip_forward": 1, **_ipv6_settings(net.spec)})
        _set_addresses(net, _router_lines(net, router), router.netns)
    for node in net.nodes:
        filtered = {"net.bridge.bridge-nf-call-iptables": 1, "net.bridge.bridge-nf-call-ip6tables": 1}
        settings = {"net.ipv4.ip_forward": 1, **filtered, **_ipv6_settings(net.spec), **tcp_settings(net.spec)}
        _sysctl(node.netns, settings)
        _set_addresses(net, _node_lines(net, node), node.netns)


def _set_addresses(net: LabNetwork, lines: list[str], netns: str | None = None) -> None:
    """Run the lines and, where the lab has IPv6, the twins of those that name addresses: beside or instead of them."""
    named = [line for line in lines if line.startswith(("addr add", "route add"))]
    _ip((line for line in lines if line not in named or net.spec.ipv6 != "only"), netns)
    if net.spec.ipv6:
        twins = (re.sub(r"\b10\.[\d./]+", lambda found: net.ipv6(found[0]), line) for line in named)
        # the addresses are right by arithmetic: nobody need wait until no neighbour has claimed them
        _ip((f"{line} nodad" if line.startswith("addr") else line for line in twins), netns, "-6")


def _ipv6_settings(spec: LabSpec) -> dict[str, str | int]:
    if not spec.ipv6:
        return {"net.ipv6.conf.all.disable_ipv6": 1}
    return {"net.ipv6.conf.all.disable_ipv6": 0, "net.ipv6.conf.all.forwarding": 1}


def tcp_settings(spec: LabSpec) -> dict[str, str | int]:
    """How TCP behaves on a node and in its pods."""
    return {
        "net.ipv4.tcp_congestion_control": spec.congestion_control,
        "net.ipv4.tcp_slow_start_after_idle": int(spec.slow_start_after_idle),
        # what one test learnt about a path must not shape the next one's first seconds
        "net.ipv4.tcp_no_metrics_save": 1,
    }


def _machine_lines(net: LabNetwork) -> list[str]:
    lines = [
        f"link add {net.bridge} type bridge",
        f"addr add {net.control_address}/20 dev {net.bridge}",
        f"link set {net.bridge} up",
        *(f"netns add {router.netns}" for router in net.routers),
    ]
    routers = {router.region: router for router in net.routers}
    for node in net.nodes:
        lines += [
            f"netns add {node.netns}",
            f"link add {node.host_interface} type veth peer name mgmt netns {node.netns}",
            f"link set {node.host_interface} master {net.bridge} up",
            f"link set {node.host_interface} type bridge_slave isolated on",
            f"link add eth0 netns {node.netns} mtu {net.spec.mtu} type veth"
            f" peer name n{node.index} netns {routers[node.region].netns} mtu {net.spec.mtu}",
            f"route add {node.pod_cidr} via {node.management_address} dev {net.bridge}",
            f"route add {node.address} via {node.management_address} dev {net.bridge}",
        ]
    return lines


def _router_lines(net: LabNetwork, router: RouterNetwork) -> list[str]:
    mtu = net.spec.mtu
    lines = [
        "link set lo up",
        f"link add lan mtu {mtu} type bridge",
        f"addr add {router.lan_address}/24 dev lan",
        "link set lan up",
        f"tuntap add dev {relay.DEVICE} mode tun",
        f"link set {relay.DEVICE} mtu {mtu} txqueuelen {_WAN_QUEUE_PACKETS} up",
        f"addr add {router.wan_address}/32 dev {relay.DEVICE}",
    ]
    for node in net.nodes_of(router.region):
        lines += [f"link set n{node.index} master lan up", f"route add {node.pod_cidr} via {node.address}"]
    for other in net.routers:
        if other != router:
            far = (other.lan_cidr, f"{other.wan_address}/32", *other.pod_cidrs)
            lines += [f"route add {cidr} dev {relay.DEVICE} src {router.lan_address}" for cidr in far]
    return lines


def _node_lines(net: LabNetwork, node: NodeNetwork) -> list[str]:
    return [
        "link set lo up",
        f"addr add {node.management_address}/20 dev mgmt",
        "link set mgmt up",
        f"addr add {node.address}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {node.gateway}",
        # kube-proxy rewrites these on the way; the route only decides the first guess of a source address
        f"route add {net.service_cidr} via {net.control_address} dev mgmt",
    ]
