"""Objects as Helm renders them, and the values the tests render with."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from hulk_lab.builds.golang import program

NAMESPACE = "hulk-system"
INSTALLED_IN = "hulk-chart-test"
CHART = Path(__file__).resolve().parents[2] / "charts/hulk"
EVERY_SWITCH = (
    "metrics.annotations=true",
    "metrics.podMonitor.enabled=true",
    "metrics.prometheusRule.enabled=true",
    "grafana.dashboard=true",
    "kueue.enabled=true",
    "podGroups.enabled=true",
)
PATIENCE_S = 240  # for a condition, beside all that else runs
ONE_NAMESPACE = "scope.namespace=research"

Manifest = dict[str, Any]


class HelmRefusedError(RuntimeError):
    """Helm did not render the chart; the message is its own."""


class Rendered(tuple[Manifest, ...]):
    """The objects of one rendering."""

    def of(self, kind: str) -> dict[str, Manifest]:
        """Objects of one kind by name."""
        return {item["metadata"]["name"]: item for item in self if item["kind"] == kind}

    def one(self, kind: str, name: str) -> Manifest:
        return self.of(kind)[name]

    def workloads(self) -> dict[str, Manifest]:
        """Everything with a pod template, by name."""
        return {**self.of("Deployment"), **self.of("DaemonSet")}

    def pod_specs(self) -> dict[str, Manifest]:
        """Every pod, also the one of `helm test`, by name."""
        templates = {name: workload["spec"]["template"] for name, workload in self.workloads().items()}
        return {name: found["spec"] for name, found in {**templates, **self.of("Pod")}.items()}


Render = Callable[..., Rendered]
Run = Callable[..., subprocess.CompletedProcess[str]]


def administrator(kubeconfig: Path) -> Run:
    """run("helm" or "kubectl", ..., stdin="", check=True) with that kubeconfig."""

    def run(name: str, *arguments: str, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [program(name), "--kubeconfig", kubeconfig, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done

    return run


def operators_kubeconfig(admin: Run, kubeconfig: Path, folder: Path) -> Path:
    """A kubeconfig with a token of the operator's service account."""
    token = admin("kubectl", "create", "token", "hulk-operator", "-n", INSTALLED_IN).stdout.strip()
    config = yaml.safe_load(kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    return folder / "kubeconfig"


@contextmanager
def operator_process(kubeconfig: Path, log: Path, **environment: str) -> Iterator[None]:
    """The operator as a process of this machine."""
    own = {"KUBECONFIG": str(kubeconfig), "HULK_LEASE_NAMESPACE": INSTALLED_IN, "HULK_METRICS_PORT": "0"}
    command, variables = [sys.executable, "-m", "hulk_operator"], {**os.environ, **own, **environment}
    process = subprocess.Popen(command, env=variables, stdout=log.open("wb"), stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE_S)
