"""One node: containerd, kubelet and kube-proxy in a network namespace and a mount namespace of their own.

    sh -> nsenter (network) -> unshare (mounts) -> containerd
    sh -> nsenter (network, containerd's mounts) -> kubelet, kube-proxy

What a node mounts (pod volumes, overlays, pod network namespaces) is only in its mount namespace, so it is gone when
the node's last process is.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hulk_lab import cgroups, nodeconfig
from hulk_lab.builds import images, template
from hulk_lab.builds.golang import program
from hulk_lab.builds.oci import Image
from hulk_lab.control_plane import ControlPlane
from hulk_lab.errors import LabError
from hulk_lab.nodeconfig import PRIVATE_FOLDERS, RESOURCE, SOCKET, NodePaths
from hulk_lab.paths import SYSTEM_PROGRAMS, write_changed
from hulk_lab.processes import Process, wait_until
from hulk_lab.wan.addresses import NodeNetwork
from hulk_lab.wan.network import tcp_settings

GOVERNOR = "governor"
_READY_TIMEOUT_S = 120

_OWN_FOLDERS = 'IFS=:; for f in $0; do mount -t tmpfs node "$f" || exit 1; done; unset IFS; exec "$@"'


@dataclass(frozen=True, slots=True)
class Node:
    """The real node at `place` of the lab that `control` controls."""

    control: ControlPlane
    place: NodeNetwork

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def prefix(self) -> str:
        """Its processes' names begin so; the end mark keeps `a` apart from `a-1`."""
        return f"node-{self.name}@"

    @property
    def paths(self) -> NodePaths:
        return NodePaths(self.control.state / "nodes" / str(self.place.index))

    @property
    def path(self) -> str:
        """The API's path of its Node."""
        return f"/api/v1/nodes/{self.name}"

    def process(self, program: str) -> Process | None:
        """Its recorded process of that program if it runs."""
        found = self.control.table.find(f"{self.prefix}{program}")
        return found if found is not None and found.alive else None

    def socket(self) -> Path:
        """containerd's socket as seen from outside the node's mount namespace."""
        containerd = self.process("containerd")
        if containerd is None:
            raise ValueError(f"node {self.name} is not running: hulk-lab start-node {self.name}")
        return Path(f"/proc/{containerd.pid}/root{SOCKET}")

    def inside(self, *command: str | Path) -> list[str | Path]:
        """The command in the node's network and mounts."""
        containerd = self.process("containerd")
        mounts = [f"--mount=/proc/{containerd.pid}/ns/mnt"] if containerd is not None else []
        return ["nsenter", f"--net={self.place.netns_path}", *mounts, "--", *command]


def start(node: Node) -> None:
    """Start what is not running of a node; returns when it is Ready, with its accelerators and every image."""
    _set_links(node, "up")
    lists = cgroups.create_node(node.control.net.spec.name, node.name)
    _write_configuration(node)
    wanted = images.chosen(node.control.state)
    if node.process("containerd") is None:
        template.copy(template.build(wanted), node.paths.containerd_root)
        _start_containerd(node, lists)
    since_s = 0.0 if node.process("kubelet") else time.time()
    _start_kubelet(node, lists)
    if node.process("kube-proxy") is None:
        _start_inside(node, "kube-proxy", _kube_proxy(node), lists)
    for image in wanted:
        import_image(node, image)
    _advertise_accelerators(node, lists)
    wait_until(
        lambda: is_ready(node, since_s),
        f"node {node.name} Ready",
        timeout_s=_READY_TIMEOUT_S,
        interval_s=0.2,
        log=node.control.table.log(f"{node.prefix}kubelet"),
    )


def kill(node: Node) -> None:
    """What a power cut does: silence on the network first, then no process is left, pods included."""
    _set_links(node, "down")
    node.control.table.kill(node.control.table.all(node.prefix))
    cgroups.destroy(node.control.net.spec.name, node.name)


def is_ready(node: Node, since_s: float = 0.0) -> bool:
    """Whether its kubelet said Ready, at or after a time: what it said before it died counts for nothing."""
    found = node.control.api().find(node.path)
    for condition in found["status"].get("conditions", ()) if found else ():
        if condition["type"] == "Ready" and condition["status"] == "True":
            return datetime.datetime.fromisoformat(condition["lastHeartbeatTime"]).timestamp() >= int(since_s)
    return False


def import_image(node: Node, image: Image) -> None:
    """Put an image on a node unless it has it."""
    ctr: list[str | Path] = [program("ctr"), f"--address={node.socket()}", "--namespace=k8s.io"]
    name = f"name=={image.reference}"
    present = subprocess.run([*ctr, "images", "ls", name], capture_output=True, text=True, check=True).stdout
    if image.digest not in present:
        done = subprocess.run([*ctr, "images", "import", image.archive], capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"image {image.reference} on node {node.name}: {done.stderr.strip()}")


def start_governor(control: ControlPlane) -> None:
    """Start the process that holds job pods to their node's speed."""
    control.table.ensure(GOVERNOR, [sys.executable, "-m", "hulk_lab.governor", control.net.spec.name])


def _start_containerd(node: Node, lists: Sequence[Path]) -> None:
    for folder in PRIVATE_FOLDERS:
        folder.mkdir(parents=True, exist_ok=True)
    own = ["unshare", "--mount", "--propagation=private", "/bin/sh", "-c", _OWN_FOLDERS]
    containerd = [str(program("containerd")), f"--config={node.paths.containerd_config}", "--log-level=warn"]
    started = node.control.table.start(
        f"{node.prefix}containerd",
        ["nsenter", f"--net={node.place.netns_path}", *own, ":".join(map(str, PRIVATE_FOLDERS)), *containerd],
        env={"PATH": _path()},
        cgroup_procs=lists,
    )
    socket = Path(f"/proc/{started.pid}/root{SOCKET}")
    log = node.control.table.log(started.name)
    wait_until(socket.exists, f"containerd of node {node.name}", timeout_s=60, log=log)
    ctr: list[str | Path] = [program("ctr"), f"--address={socket}", "version"]
    wait_until(
        lambda: subprocess.run(ctr, capture_output=True, check=False).returncode == 0,
        f"containerd of node {node.name}",
        timeout_s=60,
        log=log,
    )


def _start_kubelet(node: Node, lists: Sequence[Path]) -> None:
    """Unless it runs. It ends by itself where containerd answers but is not ready for it yet."""
    if node.process("kubelet") is None:
        _start_inside(node, "kubelet", _kubelet(node), lists)


def _start_inside(node: Node, name: str, command: Sequence[str | Path], lists: Sequence[Path]) -> None:
    environment = {"PATH": _path()}
    node.control.table.start(f"{node.prefix}{name}", node.inside(*command), env=environment, cgroup_procs=lists)


def _write_configuration(node: Node) -> None:
    control, place, paths = node.control, node.place, node.paths
    authority = control.authority
    for folder in (paths.cni, paths.kubelet_root, paths.pod_logs):
        folder.mkdir(parents=True, exist_ok=True)
    serving = authority.issue(
        f"kubelet-{place.name}",
        f"system:node:{place.name}",
        ["system:nodes"],
        [*control.net.families(place.management_address), place.name],
    )
    control.client_kubeconfig(f"system:node:{place.name}", ("system:nodes",), f"node-{place.name}")
    proxy = control.client_kubeconfig("system:kube-proxy")
    kubelet = nodeconfig.kubelet(
        control.net, place, paths, serving, authority.pair.certificate, cgroup_v2=cgroups.is_v2()
    )
    proxied = nodeconfig.kube_proxy(control.net, place, proxy)
    write_changed(
        paths.containerd_config, nodeconfig.containerd(paths, images.pause().reference, images.runtime_spec())
    )
    write_changed(
        paths.cni / "10-lab.conflist",
        json.dumps(nodeconfig.cni(control.net, place, tcp_settings(control.net.spec)), indent=1),
    )
    # kube-proxy ends whenever its own is written.
    write_changed(paths.kubelet_config, json.dumps(kubelet, indent=1))
    write_changed(paths.proxy_config, json.dumps(proxied, indent=1))


def _kubelet(node: Node) -> list[str | Path]:
    labels = ",".join(f"{key}={value}" for key, value in nodeconfig.labels(node.place).items())
    return [
        program("kubelet"),
        f"--config={node.paths.kubelet_config}",
        f"--kubeconfig={node.control.state / 'pki' / f'node-{node.name}.kubeconfig'}",
        f"--root-dir={node.paths.kubelet_root}",
        f"--cert-dir={node.paths.folder / 'pki'}",
        f"--hostname-override={node.name}",
        f"--node-ip={','.join(node.control.net.families(node.place.management_address))}",
        f"--node-labels={labels}",
    ]


def _kube_proxy(node: Node) -> list[str | Path]:
    return [program("kube-proxy"), f"--config={node.paths.proxy_config}"]


def _advertise_accelerators(node: Node, lists: Sequence[Path]) -> None:
    """Patch the accelerators onto the Node once the kubelet has registered it."""
    api = node.control.api()

    def registered() -> bool:
        _start_kubelet(node, lists)
        return api.find(node.path) is not None

    log = node.control.table.log(f"{node.prefix}kubelet")
    wait_until(registered, f"registration of node {node.name}", timeout_s=_READY_TIMEOUT_S, interval_s=1.0, log=log)
    count = {RESOURCE: str(node.place.num_accelerators)}
    api.patch(f"{node.path}/status", {"status": {"capacity": count, "allocatable": count}})


def _set_links(node: Node, state: str) -> None:
    """Both network links of the node at their far ends: its own addresses and routes stay."""
    router = next(router for router in node.control.net.routers if router.region == node.place.region)
    for command in (
        ["ip", "link", "set", node.place.host_interface, state],
        ["ip", "-n", router.netns, "link", "set", f"n{node.place.index}", state],
    ):
        subprocess.run(command, check=True, capture_output=True)


def _path() -> str:
    """containerd finds its shim on PATH, kubelet and kube-proxy mount and iptables."""
    return f"{program('containerd').parent}:{SYSTEM_PROGRAMS}:/usr/local/bin:/usr/bin:/bin"
