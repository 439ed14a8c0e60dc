"""`helm test` on a real API server: what its pod asks, with the rights of its account, admits and refuses."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml
from rendering import INSTALLED_IN, Manifest, Render, Run

pytestmark = pytest.mark.controlplane

NAME = "hulk-test"
RIGHTS = ("ServiceAccount", "Role", "RoleBinding")


class Ready(BaseHTTPRequestHandler):
    """Stands for an operator, whose pod is simulated here."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def ready() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Ready)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/readyz"
    server.shutdown()
    server.server_close()


@pytest.fixture
def rights(installed: Run, render: Render) -> Iterator[list[Manifest]]:
    """What the hook's pod runs with, in the test's namespace."""
    found = [render().one(kind, NAME) for kind in RIGHTS]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": found}).replace("hulk-system", INSTALLED_IN)
    installed("kubectl", "apply", "-f", "-", stdin=text)
    yield found
    installed("kubectl", "delete", "-f", "-", "--ignore-not-found", stdin=text)


def check(installed: Run, control_plane: Path, folder: Path, ready: str) -> subprocess.CompletedProcess[str]:
    """The pod's command as its account."""
    config = yaml.safe_load(control_plane.read_text())
    token = installed("kubectl", "create", "token", NAME, "-n", INSTALLED_IN).stdout.strip()
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    module = (sys.executable, "-m", "hulk_operator.install_check")
    arguments = (f"--ready={ready}", f"--namespace={INSTALLED_IN}", "--patience=5")
    environment = {**os.environ, "KUBECONFIG": str(folder / "kubeconfig")}
    return subprocess.run([*module, *arguments], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("rights")
def test_a_job_is_admitted_and_none_is_made(installed: Run, control_plane: Path, tmp_path: Path, ready: str) -> None:
    done = check(installed, control_plane, tmp_path, ready)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"an operator is ready\na HulkJob in namespace {INSTALLED_IN} is admitted\n"
    assert json.loads(installed("kubectl", "get", "hulkjobs", "-n", INSTALLED_IN, "-o", "json").stdout)["items"] == []


@pytest.mark.usefixtures("rights")
def test_who_may_not_make_jobs_is_told_so(installed: Run, control_plane: Path, tmp_path: Path, ready: str) -> None:
    installed("kubectl", "delete", "rolebinding", NAME, "-n", INSTALLED_IN)
    done = check(installed, control_plane, tmp_path, ready)
    assert done.returncode == 1
    assert f"a HulkJob in namespace {INSTALLED_IN} is refused" in done.stderr
    assert "cannot create resource" in done.stderr


def test_what_the_test_leaves_is_a_pod_for_its_logs(render: Render) -> None:
    rendered = render()
    for kind in RIGHTS:
        policy = rendered.one(kind, NAME)["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
        assert policy == "before-hook-creation,hook-succeeded"
    annotations = rendered.one("Pod", NAME)["metadata"]["annotations"]
    assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation"
    assert {rendered.one(kind, NAME)["metadata"]["annotations"]["helm.sh/hook"] for kind in (*RIGHTS, "Pod")} == {
        "test"
    }
