"""Programs of other projects at their current releases, as their users start them: each is one world in planned order.

Their packages are what a user's image would hold; here a folder of the machine that the pods mount.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from depth import WHOLE
from hulk_lab.builds import python
from lab_jobs import PYTHON, Jobs, Object, job

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

SCRIPTS = Path(__file__).with_name("trainers")
TORCHRUN = (PYTHON, "-m", "torch.distributed.run")
SAID = re.compile(r"^world=(\d+) rank=(\d+) host=(\S+) weights=(\S+)$", re.MULTILINE)
PROGRAMS = {
    "torchrun": ((*TORCHRUN, "/scripts/plain.py"), 1),
    "lightning": ((PYTHON, "/scripts/lightning_fit.py"), 1),
    "torchrun-two": ((*TORCHRUN, "/scripts/plain.py"), 2),
    "plain": ((PYTHON, "/scripts/plain.py"), 1),
    "accelerate": ((PYTHON, "/scripts/accelerate_loop.py"), 1),
    "transformers": ((PYTHON, "/scripts/transformers_trainer.py"), 1),
}
"""What starts it, and the accelerators of a worker; two workers each."""
SHORT = ("torchrun", "lightning")
"""The two that went wrong silently; the others with `make test-all`."""


def manifest(name: str, packages: Path) -> Object:
    command, accelerators = PROGRAMS[name]
    made = job(name, (2, 2), command=command, steps=4, sync={"mode": "ring"}, runPolicy={"backoffLimit": 0})
    made["spec"]["workers"]["acceleratorsPerWorker"] = accelerators
    spec = made["spec"]["template"]["spec"]
    spec["volumes"] = [
        {"name": "scripts", "configMap": {"name": "trainers"}},
        {"name": "packages", "hostPath": {"path": str(packages)}},
    ]
    spec["containers"][0] |= {
        "env": [{"name": "PYTHONPATH", "value": "/packages"}, {"name": "HF_HUB_OFFLINE", "value": "1"}],
        "volumeMounts": [
            {"name": "scripts", "mountPath": "/scripts"},
            {"name": "packages", "mountPath": "/packages", "readOnly": True},
        ],
    }
    return made


@pytest.fixture(scope="module")
def submitted(jobs: Jobs) -> None:
    """All of them, as accelerators allow, in a namespace that lets pods mount the machine's folder."""
    jobs.lab.kube.kubectl("label", "namespace", jobs.namespace, "pod-security.kubernetes.io/enforce-")
    data = {path.name: path.read_text() for path in SCRIPTS.glob("*.py")}
    metadata = {"name": "trainers", "namespace": jobs.namespace}
    jobs.lab.kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    packages = python.build_trainers()
    for name in PROGRAMS if WHOLE else SHORT:
        jobs.submit(manifest(name, packages))


@pytest.mark.usefixtures("submitted")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SHORT else pytest.mark.whole) for name in PROGRAMS]
)
def test_a_program_trains_one_model_in_one_world_in_the_planned_order(jobs: Jobs, name: str) -> None:
    jobs.wait_phase(name, "Succeeded")
    accelerators = PROGRAMS[name][1]
    said = [SAID.findall(jobs.log(f"{name}-1-{worker}")) for worker in range(2)]
    found = {int(rank): (host, world, weights) for lines in said for world, rank, host, weights in lines}
    num_ranks = 2 * accelerators
    hosts = {rank: f"{name}-1-{rank // accelerators}" for rank in range(num_ranks)}
    assert {rank: host for rank, (host, _, _) in found.items()} == hosts
    assert {world for _, world, _ in found.values()} == {str(num_ranks)}
    assert len({weights for _, _, weights in found.values()}) == 1, found
    planned = [worker["node"] for worker in jobs.plan(name)["workers"]]
    assert [pod["spec"]["nodeName"] for pod in jobs.pods(name)] == planned
