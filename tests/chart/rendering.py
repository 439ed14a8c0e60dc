"""Objects as Helm renders them, and the values the tests render with."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMESPACE = "hulk-system"
INSTALLED_IN = "hulk-chart-test"
CHART = Path(__file__).resolve().parents[2] / "charts/hulk"
EVERY_SWITCH = (
    "metrics.annotations=true",
    "metrics.podMonitor.enabled=true",
    "metrics.prometheusRule.enabled=true",
    "grafana.dashboard=true",
    "kueue.enabled=true",
    "scaleUp.provisioningRequests=true",
)
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
