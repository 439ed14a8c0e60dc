"""The Dockerfile's other images: small without torch, and a cluster whose operator and agents run from them."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import pytest
from hulk_lab import up
from hulk_lab.builds import images, python
from hulk_lab.builds.oci import Image
from hulk_lab.processes import wait_until
from lab_jobs import PATIENCE_S, PYTHON, SYSTEM_NAMESPACE, Jobs, job, system_pods

pytestmark = [pytest.mark.lab, pytest.mark.whole, pytest.mark.timeout(1800)]

MAX_BYTES = {"operator": 250_000_000, "agent": 20_000_000}
INSTRUMENTATION = "opt/hulk/instrumentation/"
"""What is for workers, not for the agent."""
NAME = "slim"
HAS = "import importlib.util, sys; print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name)])"


@pytest.fixture(scope="module")
def built() -> dict[str, Image]:
    """The images by their targets."""
    python.build_torch()
    return {target: images.of_target(target) for target in images.TARGETS}


def blob(archive: tarfile.TarFile, digest: str) -> IO[bytes]:
    """A part of an OCI archive."""
    found = archive.extractfile(f"blobs/{digest.replace(':', '/')}")
    assert found is not None
    return found


def files(image: Image) -> dict[str, int]:
    """The bytes of every file that an image has beyond the lab's base."""
    sizes: dict[str, int] = {}
    with tarfile.open(image.archive) as archive:
        [base, *layers] = json.load(blob(archive, image.digest))["layers"]
        assert base["size"] > 0
        for layer in layers:
            with tarfile.open(fileobj=blob(archive, layer["digest"])) as content:
                sizes |= {member.name: member.size for member in content if member.isfile()}
    return sizes


@pytest.mark.parametrize("target", list(MAX_BYTES))
def test_what_needs_no_torch_is_small(built: dict[str, Image], target: str) -> None:
    own = {name: size for name, size in files(built[target]).items() if not name.startswith(INSTRUMENTATION)}
    assert sum(own.values()) <= MAX_BYTES[target]
    assert not [name for name in own if "/tests/" in name or "/torch/" in name or "/site-packages/pip/" in name]


def test_the_agent_has_no_planner_and_no_trainer(built: dict[str, Image]) -> None:
    packages = {
        name.split("/site-packages/")[1].split("/")[0] for name in files(built["agent"]) if "/site-packages/" in name
    }
    assert "hulk_runtime" in packages
    assert not packages & {"hulk_operator", "ortools", "kubernetes", "numpy", "fsspec", "cryptography"}


def test_the_agent_brings_what_an_init_container_copies(built: dict[str, Image]) -> None:
    brought = {name: size for name, size in files(built["agent"]).items() if name.startswith(INSTRUMENTATION)}
    needed = ("sitecustomize.py", "hulk_runtime/collective/backend.py", "hulk_dependencies/cryptography/__init__.py")
    assert {INSTRUMENTATION + name for name in needed} <= brought.keys()
    assert sum(brought.values()) <= 20_000_000


@pytest.fixture
def slim(installed: up.Lab, built: dict[str, Image], repository: Path) -> Iterator[datetime]:
    """Operator and agents of the lab run from their own images; the time when they were told to."""
    kube, before = installed.kube, images.chosen(installed.state)
    up.load_images(installed, (*before, *built.values()))
    began = datetime.now(UTC)
    names = {target: image.reference.rpartition(":")[0] for target, image in built.items()}
    values = {"image.repository": names["operator"], "agent.image.repository": names["agent"]}
    settings = [flag for key, value in values.items() for flag in ("--set-string", f"{key}={value}")]
    where = ("-n", SYSTEM_NAMESPACE, "--wait", "--timeout", "180s")
    chart = str(repository / "charts/hulk")
    try:
        kube.run(
            "helm", "upgrade", "hulk", chart, "--reuse-values", *settings, "--set", "probing.refreshSeconds=60", *where
        )
        kube.kubectl("rollout", "status", "daemonset/hulk-agent", "-n", SYSTEM_NAMESPACE, "--timeout=180s")
        yield began
    finally:
        kube.run("helm", "rollback", "hulk", *where)
        kube.kubectl("rollout", "status", "daemonset/hulk-agent", "-n", SYSTEM_NAMESPACE, "--timeout=180s")
        images.choose(installed.state, before)


def test_slim_images_measure_plan_and_train(
    installed: up.Lab, slim: datetime, built: dict[str, Image], jobs: Jobs
) -> None:
    kube = installed.kube
    for component in ("operator", "agent"):
        for pod in system_pods(installed, component):
            assert pod["spec"]["containers"][0]["image"] == built[component].reference
            where = (pod["metadata"]["name"], "-n", SYSTEM_NAMESPACE)
            has = kube.kubectl("exec", *where, "--", PYTHON, "-c", HAS, "torch", "hulk_operator", "hulk_runtime")
            assert has.split() == [{"operator": "hulk_operator", "agent": "hulk_runtime"}[component]]

    def measured() -> bool:
        links = [link for item in kube.get("nodeprofiles")["items"] for link in item["status"].get("links", [])]
        times = [link.get("bandwidthTime", link["time"]) for link in links if "bandwidthBytesPerSecond" in link]
        return any(datetime.fromisoformat(time) > slim for time in times)

    wait_until(measured, "a bandwidth that an agent of this image measured", timeout_s=PATIENCE_S, interval_s=2)
    manifest = job(NAME, (4, 4), steps=20)
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = built["runtime"].reference
    jobs.submit(manifest)
    status = jobs.wait_phase(NAME, "Succeeded")
    assert status["observed"]["step"] == 20
