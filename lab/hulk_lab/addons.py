"""What a cluster has beside its control plane: DNS, a checkpoint store in one region, Prometheus.

DNS and Prometheus run on the machine's side of the management network, so that they never share the emulated WAN with
training; pods reach DNS by its service address like on any cluster. The store is a pod of the first region: checkpoints
of the other regions cross the WAN.
"""

from __future__ import annotations

import json
import secrets
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from hulk_lab import paths, rbac
from hulk_lab.builds import images
from hulk_lab.builds.golang import program
from hulk_lab.control_plane import ControlPlane
from hulk_lab.processes import wait_until
from hulk_lab.wan.addresses import PORTS, LabNetwork, in_url

DNS, PROMETHEUS, DISCOVERY = "control-dns", "control-prometheus", "control-discovery"
STORE, STORE_NAMESPACE, BUCKET = "checkpoint-store", "hulk-store", "checkpoints"
STORE_PORT = 9000
_DNS_READY_PORT = 8181
_RULES = paths.REPOSITORY / "charts" / "hulk" / "files" / "rules" / "*.yaml"


def before_nodes(control: ControlPlane) -> None:
    """Start what needs no node and write the objects that nodes will find when they come."""
    _start_dns(control)
    _start_prometheus(control)
    api = control.api()
    for manifest in (*_dns_service(control), *_store(control)):
        api.ensure(manifest)


def prometheus_url(net: LabNetwork) -> str:
    """Where the lab's Prometheus answers."""
    return f"http://{in_url(net.first(net.control_address))}:{PORTS['prometheus']}"


def wait_ready(control: ControlPlane) -> None:
    """Wait until DNS, Prometheus and the checkpoint store answer."""
    api = control.api()
    prometheus = f"{prometheus_url(control.net)}/-/ready"
    wait_until(lambda: _answers(prometheus), "Prometheus", timeout_s=60, log=control.table.log(PROMETHEUS))
    dns = f"http://{control.net.loopback_address}:{_DNS_READY_PORT}/ready"
    wait_until(lambda: _answers(dns), "cluster DNS", timeout_s=60, log=control.table.log(DNS))
    path = f"/apis/apps/v1/namespaces/{STORE_NAMESPACE}/deployments/{STORE}"
    wait_until(
        lambda: api.get(path)["status"].get("readyReplicas"), "the checkpoint store", timeout_s=120, interval_s=0.2
    )


def _start_dns(control: ControlPlane) -> None:
    name = "hulk-lab:dns"
    api = control.api()
    api.ensure(
        rbac.role(
            name,
            *(rbac.rule("", resource, "list", "watch") for resource in ("services", "pods", "namespaces")),
            rbac.rule("discovery.k8s.io", "endpointslices", "list", "watch"),
        )
    )
    api.ensure(rbac.bind(name, name, name))
    file = control.state / "Corefile"
    file.write_text(_corefile(control, control.client_kubeconfig(name, file="dns")))
    control.table.ensure(DNS, [program("coredns"), f"-conf={file}"])


def _corefile(control: ControlPlane, kubeconfig: Path) -> str:
    """No cache: an answer from memory is as fast, and a name that was asked for too early is not denied for long."""
    return f"""\
.:53 {{
    bind {control.net.first(control.net.control_address)}
    errors
    ready {control.net.loopback_address}:{_DNS_READY_PORT}
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig} lab
        ttl 1
    }}
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
"""


def _dns_service(control: ControlPlane) -> list[dict[str, Any]]:
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system"},
        "spec": {"clusterIP": control.net.first(control.net.dns_address), "ports": ports},
    }
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns-lab",
            "namespace": "kube-system",
            "labels": {
                "kubernetes.io/service-name": "kube-dns",
                "endpointslice.kubernetes.io/managed-by": "hulk-lab",
            },
        },
        "addressType": "IPv6" if control.net.spec.ipv6 else "IPv4",
        "ports": ports,
        "endpoints": [{"addresses": [control.net.first(control.net.control_address)], "conditions": {"ready": True}}],
    }
    return [service, endpoints]


def _start_prometheus(control: ControlPlane) -> None:
    name = "hulk-lab:prometheus"
    api = control.api()
    api.ensure(rbac.role(name, rbac.rule("", "pods", "get", "list", "watch")))
    api.ensure(rbac.bind(name, name, name))
    control.client_kubeconfig(name, file="prometheus")
    control.table.ensure(DISCOVERY, [sys.executable, "-m", "hulk_lab.discovery", control.net.spec.name])
    file = control.state / "prometheus.json"
    file.write_text(json.dumps(_prometheus_config(control.state / "targets.json"), indent=1))
    control.table.ensure(
        PROMETHEUS,
        [
            "prometheus",
            f"--config.file={file}",
            f"--storage.tsdb.path={control.state / 'prometheus'}",
            f"--web.listen-address={in_url(control.net.first(control.net.control_address))}:{PORTS['prometheus']}",
            "--web.enable-lifecycle",
            "--log.level=warn",
        ],
    )


def _prometheus_config(targets: Path) -> dict[str, Any]:
    """Pods that ask for it by annotation; a `namespace` label of their own metrics stays (honor_labels)."""
    return {
        "global": {"scrape_interval": "2s", "evaluation_interval": "5s"},
        "rule_files": [str(_RULES)],
        "scrape_configs": [
            {"job_name": "pods", "honor_labels": True, "file_sd_configs": [{"files": [str(targets)]}]},
        ],
    }


def _store(control: ControlPlane) -> list[dict[str, Any]]:
    labels = {"app.kubernetes.io/name": STORE}
    metadata = {"name": STORE, "namespace": STORE_NAMESPACE, "labels": labels}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": STORE_NAMESPACE}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": _credentials(control)},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": labels, "ports": [{"name": "s3", "port": STORE_PORT}]},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": 1,
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": _store_pod(control)},
            },
        },
    ]


def _store_pod(control: ControlPlane) -> dict[str, Any]:
    region = control.net.spec.regions[0].name
    return {
        "nodeSelector": {"topology.kubernetes.io/region": region},
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "store",
                "image": images.store().reference,
                "imagePullPolicy": "Never",
                "args": [
                    "serve",
                    "s3",
                    f"--addr=:{STORE_PORT}",
                    "--auth-key=$(AWS_ACCESS_KEY_ID),$(AWS_SECRET_ACCESS_KEY)",
                    "--vfs-cache-mode=writes",
                    "--cache-dir=/tmp",
                    "/data",
                ],
                "env": [{"name": "HOME", "value": "/tmp"}],
                "envFrom": [{"secretRef": {"name": STORE}}],
                "ports": [{"name": "s3", "containerPort": STORE_PORT}],
                "readinessProbe": {"tcpSocket": {"port": "s3"}, "periodSeconds": 1},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "bucket", "mountPath": f"/data/{BUCKET}"},
                    {"name": "scratch", "mountPath": "/tmp"},
                ],
            }
        ],
        "volumes": [{"name": "bucket", "emptyDir": {}}, {"name": "scratch", "emptyDir": {}}],
    }


def _credentials(control: ControlPlane) -> dict[str, str]:
    """What a client of the store needs, under the names that S3 clients read; made once per lab."""
    file = control.state / "pki" / "store.json"
    if not file.exists():
        content = {
            "AWS_ACCESS_KEY_ID": secrets.token_hex(8),
            "AWS_SECRET_ACCESS_KEY": secrets.token_hex(20),
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{STORE}.{STORE_NAMESPACE}.svc.cluster.local:{STORE_PORT}",
        }
        file.write_text(json.dumps(content))
    stored: dict[str, str] = json.loads(file.read_text())
    return stored


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
