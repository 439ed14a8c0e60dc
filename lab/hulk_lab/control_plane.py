"""etcd, API server, controller manager and scheduler of one lab, with certificates, RBAC and the Node authorizer.

They run in the machine's own network namespace on the lab's management address; etcd and the health ports only on the
lab's loopback address. Nobody is anonymous: every part has its own certificate.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hulk_lab import rbac
from hulk_lab.api import Api
from hulk_lab.builds.golang import program
from hulk_lab.certificates import Authority, write_kubeconfig
from hulk_lab.processes import ProcessTable, wait_until
from hulk_lab.wan.addresses import PORTS, LabNetwork, in_url

SECOND_SCHEDULER = "second-scheduler"
POD_GROUPS = ("GenericWorkload", "GangScheduling")
"""The feature gates that PodGroups need."""
PREFIX = "control-"
"""Its processes' names begin so."""

NODE_GRACE_S = 24
"""A node that was silent for so long is NotReady: two missed lease renewals and a margin for a busy machine."""
SIMULATED_GRACE_S = 120
"""The same where all nodes are simulated: none is ever lost, but kwok renews late while it starts a thousand pods."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The control plane of the lab `net` in its state folder."""

    net: LabNetwork
    state: Path

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.state / "kubeconfig"

    @property
    def authority(self) -> Authority:
        return Authority.create(self.state / "pki")

    @property
    def server(self) -> str:
        return f"https://{in_url(self.net.first(self.net.control_address))}:{PORTS['apiserver']}"

    @property
    def table(self) -> ProcessTable:
        return ProcessTable(self.state)

    def api(self) -> Api:
        """A client with the administrator's rights."""
        return Api(self.kubeconfig)

    def client_kubeconfig(self, user: str, groups: tuple[str, ...] = (), file: str = "") -> Path:
        """A kubeconfig for one of the lab's parts, as the user (and groups) that RBAC knows it by."""
        file = file or user.replace(":", "-")
        pair = self.authority.issue(file, user, groups)
        return write_kubeconfig(self.state / "pki" / f"{file}.kubeconfig", self.server, self.authority, pair, "lab")


def start(net: LabNetwork, state: Path) -> ControlPlane:
    """Start what is not running yet; returns when API server, controller manager and scheduler work.

    The lab's network must be up. Starting a control plane that runs already only waits.
    """
    control = ControlPlane(net, state)
    admin = control.authority.issue("admin", "hulk-lab-admin", ["system:masters"])
    write_kubeconfig(control.kubeconfig, control.server, control.authority, admin, net.spec.name)
    control.table.ensure(f"{PREFIX}etcd", _etcd(control))
    control.table.ensure(f"{PREFIX}apiserver", _apiserver(control))
    _wait_api(control)  # the others give up when they start before their rights exist
    control.table.ensure(f"{PREFIX}controller-manager", _controller_manager(control))
    control.table.ensure(f"{PREFIX}scheduler", _scheduler(control))
    wait_ready(control)
    control.api().ensure(rbac.bind("hulk-lab:kubelet-api", "kube-apiserver-kubelet-client", "system:kubelet-api-admin"))
    return control


def stop(state: Path) -> None:
    """Stop every process of the control plane."""
    table = ProcessTable(state)
    table.stop(table.all(PREFIX))


def restart_apiserver(control: ControlPlane, *, kill: bool = False) -> None:
    """Stop the API server (or kill it, as a crash does) and start it again; returns when it is ready."""
    running = control.table.find(f"{PREFIX}apiserver")
    if running is not None:
        (control.table.kill if kill else control.table.stop)([running])
    control.table.ensure(f"{PREFIX}apiserver", _apiserver(control))
    wait_ready(control)


def wait_ready(control: ControlPlane) -> None:
    """Wait until the API server is ready, the scheduler healthy and the controller manager at work."""
    api, net = control.api(), control.net

    def log(name: str) -> Path:
        return control.table.log(f"{PREFIX}{name}")

    with ThreadPoolExecutor() as pool:
        scheduler = pool.submit(
            wait_until, lambda: _healthy(net, "scheduler"), "scheduler", timeout_s=90, log=log("scheduler")
        )
        _wait_api(control)
        default = "/api/v1/namespaces/default/serviceaccounts/default"
        wait_until(
            lambda: api.find(default), "controller manager", timeout_s=90, log=log("controller-manager")
        )  # the service account is its work
        scheduler.result()


def _wait_api(control: ControlPlane) -> None:
    log = control.table.log(f"{PREFIX}apiserver")
    wait_until(control.api().ready, "API server ready", timeout_s=90, log=log)


def _etcd(control: ControlPlane) -> list[str | Path]:
    host = control.net.loopback_address
    client, peer = f"http://{host}:{PORTS['etcd']}", f"http://{host}:{PORTS['etcd-peer']}"
    return [
        program("etcd"),
        f"--data-dir={control.state / 'etcd'}",
        "--unsafe-no-fsync",  # a lab's state need not survive a power cut
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--log-level=warn",
    ]


def _gates(control: ControlPlane) -> list[str]:
    """Of API server, controller manager and scheduler, alike."""
    return [f"--feature-gates={','.join(f'{gate}=true' for gate in POD_GROUPS)}"] if control.net.spec.pod_groups else []


def _apiserver(control: ControlPlane) -> list[str | Path]:
    net, authority = control.net, control.authority
    hosts = [
        *net.families(net.control_address),
        *net.families(net.api_service_address),
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ]
    serving = authority.issue("apiserver", "kube-apiserver", hosts=hosts)
    kubelet = authority.issue("apiserver-kubelet-client", "kube-apiserver-kubelet-client")
    tokens = authority.signing_key("service-accounts")
    return [
        program("kube-apiserver"),
        f"--etcd-servers=http://{net.loopback_address}:{PORTS['etcd']}",
        f"--bind-address={net.first(net.control_address)}",
        f"--advertise-address={net.first(net.control_address)}",
        f"--secure-port={PORTS['apiserver']}",
        f"--service-cluster-ip-range={','.join(net.families(net.service_cidr))}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--client-ca-file={authority.pair.certificate}",
        f"--kubelet-client-certificate={kubelet.certificate}",
        f"--kubelet-client-key={kubelet.key}",
        f"--kubelet-certificate-authority={authority.pair.certificate}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={tokens.certificate}",
        f"--service-account-signing-key-file={tokens.key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=Node,RBAC",
        "--anonymous-auth=false",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--profiling=false",
        *(["--runtime-config=scheduling.k8s.io/v1alpha2=true"] if net.spec.pod_groups else []),
        *_gates(control),
    ]


def _controller_manager(control: ControlPlane) -> list[str | Path]:
    kubeconfig = control.client_kubeconfig("system:kube-controller-manager")
    authority = control.authority
    return [
        program("kube-controller-manager"),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={control.net.loopback_address}",
        f"--cert-dir={control.state / 'pki' / 'controller-manager'}",
        f"--service-account-private-key-file={authority.signing_key('service-accounts').key}",
        f"--root-ca-file={authority.pair.certificate}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        f"--node-monitor-grace-period={NODE_GRACE_S if control.net.spec.regions else SIMULATED_GRACE_S}s",
        "--kube-api-qps=400",
        "--kube-api-burst=800",
        "--profiling=false",
        *_gates(control),
    ]


def _scheduler(control: ControlPlane) -> list[str | Path]:
    """Under two names, so that pods of either are bound."""
    kubeconfig = control.client_kubeconfig("system:kube-scheduler")
    config = control.state / "scheduler.json"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 2000},
                "leaderElection": {"leaderElect": False},
                "enableProfiling": False,
                "profiles": [{"schedulerName": name} for name in ("default-scheduler", SECOND_SCHEDULER)],
            }
        )
    )
    return [
        program("kube-scheduler"),
        f"--config={config}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={control.net.loopback_address}",
        f"--cert-dir={control.state / 'pki' / 'scheduler'}",
        *_gates(control),
    ]


def _healthy(net: LabNetwork, name: str) -> bool:
    """Whether a part answers /healthz; it signs its own certificate for the loopback address."""
    url = f"https://{net.loopback_address}:{PORTS[name]}/healthz"
    try:
        with urllib.request.urlopen(url, timeout=5, context=ssl._create_unverified_context()) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
