"""Scripts without any import of Hulk, as the examples have them: the planned order, one or several ranks per worker."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest
import yaml
from hulk_lab.builds import images
from hulk_lab.processes import wait_until
from lab_jobs import PATIENCE_S, Jobs, Object, nodes

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

PLAIN, TORCHRUN = "plain-torch", "torchrun"
STEPS = 8
RANKS = re.compile(r"^ranks: (.+)$", re.MULTILINE)
LOSS = re.compile(r"^step (\d+) loss (\S+)$", re.MULTILINE)


def example(repository: Path, name: str) -> list[Object]:
    """The objects of an example, with the lab's image and fewer steps."""
    objects = list(yaml.safe_load_all((repository / f"examples/{name}.yaml").read_text()))
    for found in objects:
        if found["kind"] == "HulkJob":
            container = found["spec"]["template"]["spec"]["containers"][0]
            container |= {"image": images.HULK_REFERENCE, "env": [{"name": "STEPS", "value": str(STEPS)}]}
    return objects


@pytest.fixture(scope="module")
def submitted(jobs: Jobs, repository: Path) -> None:
    """Both examples one after the other; the second has to wait for the first one's accelerators."""
    [script, plain] = example(repository, PLAIN)
    plain["spec"]["workers"] = {"min": 3, "max": 3}
    [torchrun] = example(repository, TORCHRUN)
    torchrun["spec"]["workers"] |= {"min": 2, "max": 2}
    for found in (script, plain):
        jobs.submit(found)
    jobs.wait(PLAIN, "a plan", lambda now: now.get("plan"))
    jobs.submit(torchrun)


def ranks(jobs: Jobs, name: str) -> list[str]:
    """The pods in the order of their ranks, as rank 0 learned it from all of them."""
    pod = f"{name}-1-0"
    wait_until(lambda: RANKS.search(jobs.log(pod)), f"the ranks of {name}", timeout_s=PATIENCE_S, interval_s=0.5)
    found = RANKS.search(jobs.log(pod))
    assert found is not None
    return found[1].split()


def assert_trained(jobs: Jobs, name: str) -> None:
    jobs.wait_phase(name, "Succeeded")
    losses = [(int(step), float(loss)) for step, loss in LOSS.findall(jobs.log(f"{name}-1-0"))]
    assert [step for step, _ in losses] == list(range(1, STEPS + 1))
    assert losses[-1][1] < losses[0][1]


@pytest.mark.usefixtures("submitted")
def test_a_plain_script_trains_in_the_planned_order(jobs: Jobs) -> None:
    assert ranks(jobs, PLAIN) == [f"{PLAIN}-1-{worker}" for worker in range(3)]
    planned = [worker["node"] for worker in jobs.plan(PLAIN)["workers"]]
    assert nodes(jobs.pods(PLAIN)) == planned
    assert jobs.pods(TORCHRUN) == []  # no two nodes with two accelerators each are free
    told = jobs.condition(TORCHRUN, "Planned")
    assert told["status"] == "False"
    assert "accelerators" in told["message"], told
    assert_trained(jobs, PLAIN)


@pytest.mark.usefixtures("submitted")
def test_torchrun_trains_with_two_accelerators_per_worker_in_the_planned_order(jobs: Jobs) -> None:
    hosts = [f"{TORCHRUN}-1-{worker}" for worker in range(2)]
    assert ranks(jobs, TORCHRUN) == list(chain.from_iterable((host, host) for host in hosts))
    plan = jobs.plan(TORCHRUN)
    assert [worker["accelerators"] for worker in plan["workers"]] == [2, 2]
    assert nodes(jobs.pods(TORCHRUN)) == [worker["node"] for worker in plan["workers"]]
    assert_trained(jobs, TORCHRUN)
