"""What the chart gives to the Prometheus operator, judged by that operator's own definitions on a real API server."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hulk_lab.processes import wait_until
from rendering import EVERY_SWITCH, Render, Run

pytestmark = pytest.mark.controlplane

MODULE, VERSION = "github.com/prometheus-operator/prometheus-operator", "v0.85.0"
SUM = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
GROUP = "monitoring.coreos.com"
KINDS = ("podmonitors", "prometheusrules")


@pytest.fixture(scope="module")
def definitions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The files of the definitions, from the pinned release."""
    command = ["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"]
    nowhere = tmp_path_factory.mktemp("no-module")
    done = subprocess.run(command, cwd=nowhere, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    module = json.loads(done.stdout)
    assert module["Sum"] == SUM
    folder = Path(module["Dir"]) / "example" / "prometheus-operator-crd"
    return [folder / f"{GROUP}_{kind}.yaml" for kind in KINDS]


@pytest.fixture(scope="module")
def monitored(admin_of: Run, definitions: list[Path]) -> Iterator[Run]:
    """The administrator of a cluster that knows the Prometheus operator's kinds."""
    files = [flag for file in definitions for flag in ("-f", str(file))]
    try:
        admin_of("kubectl", "create", *files)
        wait_until(
            lambda: all(is_established(admin_of, kind) for kind in KINDS), "the kinds' establishment", timeout_s=240
        )
        yield admin_of
    finally:
        admin_of("kubectl", "delete", *files, "--ignore-not-found")


def is_established(run: Run, kind: str) -> bool:
    """`kubectl wait` ends with an error while a new definition has no conditions at all."""
    found = json.loads(run("kubectl", "get", f"crd/{kind}.{GROUP}", "-o", "json").stdout)
    conditions = found.get("status", {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def test_monitors_and_rules_are_taken_without_an_unknown_field(monitored: Run, render: Render) -> None:
    shown = [item for item in render(*EVERY_SWITCH) if item["apiVersion"].startswith(GROUP)]
    moved = [item | {"metadata": item["metadata"] | {"namespace": "default"}} for item in shown]
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": moved})
    create = ("kubectl", "create", "--validate=strict", "--dry-run=server", "-o", "name", "-f", "-")
    taken = monitored(*create, stdin=manifest).stdout.split()
    assert sorted(taken) == [
        f"podmonitor.{GROUP}/hulk-agent",
        f"podmonitor.{GROUP}/hulk-operator",
        f"prometheusrule.{GROUP}/hulk",
    ]
    wrong = monitored(*create, stdin=manifest.replace("honorLabels", "honourLabels"), check=False)
    assert wrong.returncode != 0
    assert 'unknown field "honourLabels"' in wrong.stderr
