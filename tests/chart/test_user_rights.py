"""The command line with the rights that docs/start/install.md gives a user, and with none beyond the namespace."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from rendering import CHART, Run

pytestmark = pytest.mark.controlplane

NAMESPACE = "hulk-chart-user"
USER = f"system:serviceaccount:{NAMESPACE}:user"
Hulk = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def hulk(installed: Run, control_plane: Path, tmp_path: Path) -> Iterator[Hulk]:
    """hulk(arguments...) as a user who may edit one namespace, which is also that of his context."""
    installed("kubectl", "create", "namespace", NAMESPACE)
    installed("kubectl", "create", "serviceaccount", "user", "-n", NAMESPACE)
    installed("kubectl", "create", "rolebinding", "user", "-n", NAMESPACE, "--clusterrole=edit", f"--user={USER}")
    config = yaml.safe_load(control_plane.read_text())
    token = installed("kubectl", "create", "token", "user", "-n", NAMESPACE).stdout.strip()
    for user in config["users"]:
        user["user"] = {"token": token}
    for context in config["contexts"]:
        context["context"]["namespace"] = NAMESPACE
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("hulk")), *arguments]
        environment = {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig")}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    yield run
    installed("kubectl", "delete", "clusterrolebinding", "hulk-chart-user", "--ignore-not-found")
    installed("kubectl", "delete", "namespace", NAMESPACE)


@pytest.fixture
def job(installed: Run, tmp_path: Path) -> Path:
    """The example, for nodes whose links nobody measured, with a priority."""
    found = yaml.safe_load((CHART.parents[1] / "examples/hulkjob.yaml").read_text())
    found["spec"]["workers"] = {"min": 2, "max": 2}
    found["spec"]["placement"] = {"allowUnknownLinks": True}
    found["spec"]["priorityClassName"] = "system-node-critical"
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(found))
    return path


def test_the_documented_role_is_enough_to_plan(
    installed: Run, kwok_nodes: Callable[..., list[str]], hulk: Hulk, job: Path
) -> None:
    nodes = kwok_nodes(2)
    refused = hulk("topology")
    assert refused.returncode == 1
    assert "forbidden" in refused.stderr
    bind = ("clusterrolebinding", "hulk-chart-user", "--clusterrole=hulk-topology-view", f"--user={USER}")
    installed("kubectl", "create", *bind)
    topology = hulk("topology", "-o", "json")
    assert topology.returncode == 0, topology.stderr
    assert set(nodes) <= {node for region in json.loads(topology.stdout)["regions"] for node in region["nodes"]}
    assert "what pods hold is not known" in topology.stderr
    plan = hulk("plan", "-f", str(job), "-o", "json")
    assert plan.returncode == 0, plan.stdout + plan.stderr
    assert json.loads(plan.stdout)["jobs"][0]["job"] == f"{NAMESPACE}/demo"


def test_the_owner_of_a_job_sees_it_explained(installed: Run, hulk: Hulk, job: Path) -> None:
    installed("kubectl", "create", "-n", NAMESPACE, "-f", str(job))
    explained = hulk("explain", "demo")
    assert explained.returncode == 0, explained.stderr
    assert "links are not shown" in explained.stderr
