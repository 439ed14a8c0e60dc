"""Kueue's own controller as one of the lab's processes: definitions, webhooks, rights and settings of its release.

It runs on the machine's side of the management network, like the rest of the control plane. What its release keeps in
a cluster (a Service before its webhooks, certificates in a Secret) the lab replaces by an address and its authority.
"""

from __future__ import annotations

import base64
import json
import shlex
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from hulk_lab import rbac
from hulk_lab.api import Api
from hulk_lab.builds.golang import program, share
from hulk_lab.control_plane import ControlPlane
from hulk_lab.processes import wait_until
from hulk_lab.wan.addresses import PORTS, in_url

PROCESS_NAME: Final = "control-kueue"
NAMESPACE: Final = "kueue-system"
EXTERNAL: Final = ("HulkJob.v1alpha1.hulk.dev",)
_NAME = "hulk-lab:kueue"
_GROUP: Final = "kueue.x-k8s.io"
_FRAMEWORKS: Final = ("batch/job",)
_WEBHOOK_GROUPS: Final = frozenset({_GROUP, "batch"})
"""Groups whose objects it looks at here; a webhook that fails would refuse the objects of the others."""
_CONVERTED: Final = ("localqueues", "clusterqueues", "cohorts", "workloads", "multikueueclusters")
"""Kinds that it serves in two versions."""
_WITHOUT: Final = ("MultiKueue", "VisibilityOnDemand")
"""Features that need other clusters, or a port of the whole machine."""
_READY_S: Final = 90.0


def start(control: ControlPlane, settings: Mapping[str, Any] | None = None) -> None:
    """Start Kueue unless it runs, and wait until it serves; `settings` replace top-level keys of its configuration."""
    folder = control.state / "kueue"
    certificates = _certificates(control, folder)
    api = control.api()
    for manifest in _manifests(control):
        api.ensure(manifest)
    wait_until(lambda: _serves_kinds(api), "Kueue's kinds", timeout_s=_READY_S, interval_s=0.2)
    file = folder / "config.json"
    file.write_text(json.dumps({**_configuration(control, certificates), **(settings or {})}, indent=1))
    control.table.ensure(PROCESS_NAME, _command(control, folder, file))
    log = control.table.log(PROCESS_NAME)
    wait_until(lambda: _answers(_health_url(control)), "Kueue", timeout_s=_READY_S, log=log, interval_s=0.2)


def stop(control: ControlPlane) -> None:
    """Stop it, and take its webhooks away, which would refuse every change without it. Admissions stay as they are."""
    api = control.api()
    for manifest in yaml.safe_load_all((share("kueue") / "webhook" / "manifests.yaml").read_text()):
        kind = f"{manifest['kind'].lower()}s"
        api.delete(f"/apis/{manifest['apiVersion']}/{kind}/kueue-{manifest['metadata']['name']}")
    control.table.stop(control.table.all(PROCESS_NAME))


def _command(control: ControlPlane, folder: Path, file: Path) -> list[str | Path]:
    """In a mount namespace of its own: the program reads one certificate from a fixed place below /etc."""
    layers = f"lowerdir={folder / 'etc'}:/etc"
    kubeconfig = control.client_kubeconfig(_NAME, file="kueue")
    words = [str(program("kueue")), f"--kubeconfig={kubeconfig}", f"--config={file}", "--zap-log-level=2"]
    script = f"mount -t overlay overlay -o {shlex.quote(layers)} /etc && exec {shlex.join(words)}"
    return ["unshare", "--mount", "sh", "-c", script]


def _certificates(control: ControlPlane, folder: Path) -> Path:
    """The folder with the webhooks' certificate, by the names that the program expects."""
    served = folder / "etc" / "kueue" / "metrics" / "certs"
    served.mkdir(parents=True, exist_ok=True)
    pair = control.authority.issue("kueue-webhook", "kueue-webhook", hosts=[_host(control)])
    for file, source in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
        (served / file).unlink(missing_ok=True)
        (served / file).symlink_to(source)
    return served


def _configuration(control: ControlPlane, certificates: Path) -> dict[str, Any]:
    host = _host(control)
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"{in_url(host)}:{PORTS['kueue-health']}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": host, "port": PORTS["kueue-webhook"], "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": 400, "burst": 800},
        "waitForPodsReady": {"timeout": "5m", "recoveryTimeout": "3m", "blockAdmission": False},
        "integrations": {"frameworks": list(_FRAMEWORKS), "externalFrameworks": list(EXTERNAL)},
        "featureGates": dict.fromkeys(_WITHOUT, False),
    }


def _manifests(control: ControlPlane) -> Iterator[dict[str, Any]]:
    """All objects that the program needs, in the order in which they can be made."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    for file in _definitions():
        yield _definition(control, yaml.safe_load(file.read_text()))
    yield rbac.role(_NAME, *yaml.safe_load((share("kueue") / "rbac" / "role.yaml").read_text())["rules"])
    yield rbac.bind(_NAME, _NAME, _NAME)
    for manifest in yaml.safe_load_all((share("kueue") / "webhook" / "manifests.yaml").read_text()):
        yield _webhooks(control, manifest)


def _definition(control: ControlPlane, manifest: dict[str, Any]) -> dict[str, Any]:
    if manifest["spec"]["names"]["plural"] not in _CONVERTED:
        return manifest
    webhook = {"clientConfig": _client(control, "/convert"), "conversionReviewVersions": ["v1"]}
    return {**manifest, "spec": {**manifest["spec"], "conversion": {"strategy": "Webhook", "webhook": webhook}}}


def _webhooks(control: ControlPlane, manifest: dict[str, Any]) -> dict[str, Any]:
    """A webhook configuration of the release, for the groups that this Kueue looks at."""
    kept = [
        {**webhook, "clientConfig": _client(control, webhook["clientConfig"]["service"]["path"])}
        for webhook in manifest["webhooks"]
        if _WEBHOOK_GROUPS.issuperset(group for rule in webhook["rules"] for group in rule["apiGroups"])
    ]
    return {**manifest, "metadata": {"name": f"kueue-{manifest['metadata']['name']}"}, "webhooks": kept}


def _client(control: ControlPlane, path: str) -> dict[str, str]:
    bundle = base64.b64encode(control.authority.pair.certificate.read_bytes()).decode()
    return {"url": f"https://{in_url(_host(control))}:{PORTS['kueue-webhook']}{path}", "caBundle": bundle}


def _serves_kinds(api: Api) -> bool:
    """Whether all of them are served: the program gives up where one is not."""
    served = api.find(f"/apis/{_GROUP}/v1beta2")
    wanted = {file.stem.partition("_")[2] for file in _definitions()}
    return served is not None and wanted <= {resource["name"] for resource in served["resources"]}


def _definitions() -> list[Path]:
    return sorted((share("kueue") / "crd" / "bases").glob("*.yaml"))


def _host(control: ControlPlane) -> str:
    return control.net.first(control.net.control_address)


def _health_url(control: ControlPlane) -> str:
    return f"http://{in_url(_host(control))}:{PORTS['kueue-health']}/readyz"


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
