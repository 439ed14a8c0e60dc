"""The chart as Helm renders it: what a cluster would get, not what the templates say."""

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from hulk_lab.builds.golang import KUBERNETES_VERSION, program
from rendering import CHART, INSTALLED_IN, NAMESPACE, HelmRefusedError, Render, Rendered, Run, administrator


@pytest.fixture(scope="session")
def helm() -> Path:
    """The lab's own Helm."""
    path = program("helm")
    if not path.exists():
        pytest.fail(f"{path} is not built yet: run `make tools` and then `.venv/bin/hulk-lab build`", pytrace=False)
    return path


@pytest.fixture(scope="session")
def render(helm: Path) -> Render:
    """render("key=value", ...): the chart with these values; HelmRefusedError when Helm refuses them."""

    @cache
    def rendered(*settings: str) -> Rendered:
        values = [flag for setting in settings for flag in ("--set", setting)]
        command = [helm, "template", "hulk", CHART, "-n", NAMESPACE, "--kube-version", KUBERNETES_VERSION, *values]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise HelmRefusedError(done.stderr)
        return Rendered(item for item in yaml.load_all(done.stdout, yaml.CSafeLoader) if item)

    return rendered


@pytest.fixture(scope="session")
def chart(render: Render) -> Rendered:
    """The chart with its own values."""
    return render()


@pytest.fixture(scope="session")
def admin_of(control_plane: Path, helm: Path) -> Run:
    """The control plane's, with all rights."""
    return administrator(control_plane)


@pytest.fixture(scope="module")
def installed(admin_of: Run) -> Iterator[Run]:
    """The administrator of a cluster with the chart."""
    target = ("hulk", str(CHART), "-n", INSTALLED_IN)
    admin_of("helm", "install", *target, "--create-namespace", "--take-ownership")
    try:
        admin_of("kubectl", "wait", "--for=condition=Established", "crd/nodeprofiles.hulk.dev", "--timeout=30s")
        yield admin_of
    finally:
        admin_of("helm", "uninstall", "hulk", "-n", INSTALLED_IN, "--ignore-not-found")
        admin_of("kubectl", "delete", "pods", "--all", "-n", INSTALLED_IN, "--force")
        admin_of("kubectl", "delete", "namespace", INSTALLED_IN)
