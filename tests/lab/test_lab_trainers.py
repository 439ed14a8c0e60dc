"""Programs of other projects at their current releases, as their users start them, in an image without Hulk.

Each is one world in planned order, whose gradients Hulk's all-reduce sums: nothing in script, command or image asks for
it. Their packages are what a user's image would hold; here a folder of the machine that the pods mount.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from depth import WHOLE
from hulk_lab import up
from hulk_lab.builds import images, python
from hulk_lab.processes import wait_until
from lab_jobs import ENDLESS, PATIENCE_S, Jobs, Object, job, nodes

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

SCRIPTS = Path(__file__).with_name("trainers")
PYTHON = "python3"  # the image's own, with its torch
TORCHRUN = (PYTHON, "-m", "torch.distributed.run")
SAID = re.compile(r"^world=(\d+) rank=(\d+) host=(\S+) weights=(\S+)$", re.MULTILINE)
BROUGHT = re.compile(r"^hulk: (\d+) ranks in (.+): sums between regions go as planned", re.MULTILINE)
LOST = re.compile(r"^(\[rank0\]: )?RankLostError: ", re.MULTILINE)  # torch's launcher says whose line it is
PROGRAMS = {
    "torchrun": ((*TORCHRUN, "/scripts/plain.py"), 1),
    "lightning": ((PYTHON, "/scripts/lightning_fit.py"), 1),
    "torchrun-two": ((*TORCHRUN, "/scripts/plain.py"), 2),
    "plain": ((PYTHON, "/scripts/plain.py"), 1),
    "accelerate": ((PYTHON, "/scripts/accelerate_loop.py"), 1),
    "transformers": ((PYTHON, "/scripts/transformers_trainer.py"), 1),
    "peft": ((PYTHON, "/scripts/peft_lora.py"), 1),
    "fsdp-tensor": ((*TORCHRUN, "/scripts/fsdp_tensor.py"), 2),
}
"""What starts it, and the accelerators of a worker; two workers each, in two regions."""
SHORT = ("torchrun", "lightning")
"""The two that went wrong silently; the others with `make test-all`."""
RING, KILLED = "ring", "killed"
"""The program `plain`, left alone; and one of whose ranks dies, started by torchrun."""
KILL = """
import os, pathlib, signal
for place in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    pid = int(place.parent.name)
    if b"plain.py" in place.read_bytes() and pid not in (1, os.getpid()):
        os.kill(pid, signal.SIGKILL)
"""


def manifest(name: str, packages: Path, places: list[str]) -> Object:
    """Nothing but a program, and where its workers are to be."""
    command, accelerators = PROGRAMS[{RING: "plain", KILLED: "torchrun"}.get(name, name)]
    made = job(name, (2, 2), command=command, placement={"workerNodes": places}, runPolicy={"backoffLimit": 0})
    made["spec"]["workers"]["acceleratorsPerWorker"] = accelerators
    del made["spec"]["model"], made["spec"]["training"]
    if name == RING:
        made["spec"]["instrumentation"] = "none"
    spec = made["spec"]["template"]["spec"]
    spec["volumes"] = [
        {"name": "scripts", "configMap": {"name": "trainers"}},
        {"name": "packages", "hostPath": {"path": str(packages)}},
    ]
    spec["containers"][0] |= {
        "image": images.base().reference,
        "env": [{"name": "PYTHONPATH", "value": "/packages"}, {"name": "HF_HUB_OFFLINE", "value": "1"}],
        "volumeMounts": [
            {"name": "scripts", "mountPath": "/scripts"},
            {"name": "packages", "mountPath": "/packages", "readOnly": True},
        ],
    }
    if name == KILLED:
        spec["containers"][0]["env"].append({"name": "STEPS", "value": str(ENDLESS)})
    return made


@pytest.fixture(scope="module")
def submitted(jobs: Jobs) -> Iterator[Callable[[str], None]]:
    """All that end by themselves, as accelerators allow, in a namespace that lets pods mount the machine's folder.

    submitted(name) submits one more.
    """
    jobs.lab.kube.kubectl("label", "namespace", jobs.namespace, "pod-security.kubernetes.io/enforce-")
    data = {path.name: path.read_text() for path in SCRIPTS.glob("*.py")}
    metadata = {"name": "trainers", "namespace": jobs.namespace}
    jobs.lab.kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    before = images.chosen(jobs.lab.state)
    up.load_images(jobs.lab, (*before, images.base()))
    packages, places = python.build_packages("trainers"), [node.name for node in jobs.lab.nodes[:2]]

    def submit(name: str) -> None:
        jobs.submit(manifest(name, packages, places))

    for name in (*(PROGRAMS if WHOLE else SHORT), RING):
        submit(name)
    yield submit
    images.choose(jobs.lab.state, before)


def trained(jobs: Jobs, name: str, num_ranks: int) -> None:
    """Waits until all ranks have ended; they were one world in the planned order and have one model."""
    jobs.wait_phase(name, "Succeeded")
    said = [SAID.findall(jobs.log(f"{name}-1-{worker}")) for worker in range(2)]
    found = {int(rank): (host, world, weights) for lines in said for world, rank, host, weights in lines}
    hosts = {rank: f"{name}-1-{rank // (num_ranks // 2)}" for rank in range(num_ranks)}
    assert {rank: host for rank, (host, _, _) in found.items()} == hosts
    assert {world for _, world, _ in found.values()} == {str(num_ranks)}
    assert len({weights for _, _, weights in found.values()}) == 1, found
    assert nodes(jobs.pods(name)) == [worker["node"] for worker in jobs.plan(name)["workers"]]


@pytest.mark.usefixtures("submitted")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SHORT else pytest.mark.whole) for name in PROGRAMS]
)
def test_a_program_trains_one_model_in_one_world_by_hulks_all_reduce(jobs: Jobs, name: str) -> None:
    trained(jobs, name, 2 * PROGRAMS[name][1])
    assert jobs.plan(name)["algorithm"] == "wan"
    regions = ", ".join(worker["region"] for worker in jobs.plan(name)["workers"])
    assert BROUGHT.findall(jobs.log(f"{name}-1-0")) == [(str(2 * PROGRAMS[name][1]), regions)]
    assert not BROUGHT.search(jobs.log(f"{name}-1-1"))


@pytest.mark.usefixtures("submitted")
def test_a_program_that_is_left_alone_trains_by_torchs_ring(jobs: Jobs) -> None:
    trained(jobs, RING, 2)
    assert jobs.plan(RING)["algorithm"] == "ring"
    assert not BROUGHT.search(jobs.log(f"{RING}-1-0"))
    assert not any("initContainers" in pod["spec"] for pod in jobs.pods(RING))


def test_a_rank_that_dies_is_the_failure_and_the_others_have_only_lost_it(
    jobs: Jobs, submitted: Callable[[str], None]
) -> None:
    submitted(KILLED)
    first, second = f"{KILLED}-1-0", f"{KILLED}-1-1"
    wait_until(lambda: "two steps" in jobs.log(first), "two steps", timeout_s=PATIENCE_S, interval_s=0.5)
    log = jobs.follow(first)  # the operator may delete the pod before its launcher has ended
    jobs.lab.kube.kubectl("exec", second, "-n", jobs.namespace, "-c", "worker", "--", "python3", "-c", KILL)
    status = jobs.wait_phase(KILLED, "Failed")
    assert (status["lastFailure"]["pod"], status["lastFailure"]["exitCode"]) == (second, 1)
    lines = "\n".join(log())
    assert LOST.search(lines), lines
