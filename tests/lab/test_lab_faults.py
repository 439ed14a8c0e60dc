"""What happens to a training job when a worker, a whole node or every attempt breaks, when it is paused and resized.

Its pods run Hulk's launcher: those that nothing happens to are the same ones before and after.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter

import pytest
from hulk_lab import cgroups, node, up
from hulk_lab.processes import wait_until
from lab_jobs import (
    ENDLESS,
    GRACE_S,
    LAUNCH,
    PATIENCE_S,
    Jobs,
    Object,
    cordoned,
    job,
    nodes,
    saved_at_its_end,
    system_pods,
    uids,
)

from bench.replanning.loss import MAX_DETECTED_S, MAX_FIRST_STEP_S, MAX_PLAN_S, Job, Loss, lose, start_s

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

NUM_WORKERS = 3  # over two nodes at least, and the four accelerators that are left without one node are enough
EVERY = 10


@pytest.fixture
def training(jobs: Jobs) -> str:
    """A job that would train for hours."""
    name = "endless"
    jobs.submit(job(name, (NUM_WORKERS, NUM_WORKERS), command=LAUNCH, steps=ENDLESS, checkpoint_every=EVERY))
    return name


def kill_worker(lab: up.Lab, pod: Object) -> None:
    """SIGKILL the processes of a pod's worker from outside, as the kernel does when memory runs out."""
    group = cgroups.pod_groups(lab.spec.name, pod["spec"]["nodeName"])[pod["metadata"]["uid"]]
    pids = [int(pid) for file in group.rglob("cgroup.procs") for pid in file.read_text().split()]
    workers = [pid for pid in pids if b"hulk_runtime" in cmdline(pid)]
    assert workers, f"no worker among {pids} of pod {pod['metadata']['name']}"
    for pid in workers:
        os.kill(pid, signal.SIGKILL)


def cmdline(pid: int) -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()


def untouched(before: list[Object], gone: Object | None, after: list[Object]) -> None:
    """On every node as many pods stay as both plans have workers there, but for one that is gone; none began anew."""
    there = [pod for pod in before if pod is not gone]
    num_staying = (Counter(nodes(there)) & Counter(nodes(after))).total()
    assert 0 < num_staying == len(set(uids(there)) & set(uids(after))), (nodes(there), nodes(after))
    restarts = [status["restartCount"] for pod in after for status in pod["status"]["containerStatuses"]]
    assert not any(restarts)


def test_training_survives_a_crash_a_pause_and_the_loss_of_a_node(installed: up.Lab, jobs: Jobs, training: str) -> None:
    saved = jobs.wait_checkpoint(training, attempt=1)
    gang = jobs.pods(training, attempt=1)
    victim = gang[0]
    kill_worker(installed, victim)
    status = jobs.wait(training, "the crash", lambda now: now["failures"] == 1)

    last = status["lastFailure"]
    assert (last["exitCode"], last["pod"], last["attempt"]) == (137, victim["metadata"]["name"], 1)
    assert last["node"] == victim["spec"]["nodeName"]
    assert re.search(r"^step=\d+ loss=", last["message"], re.MULTILINE)

    since = jobs.resumed_at(training, attempt=2)
    assert saved <= since
    assert since % EVERY == 0
    assert jobs.pods(training, attempt=1) == []
    untouched(gang, victim, jobs.pods(training, attempt=2))
    status = jobs.wait(training, "a step of attempt 2", lambda now: now.get("observed", {}).get("step", 0) > since)
    assert status["checkpoint"]["step"] >= saved  # the older attempt's until this one has written its own
    assert status["lastFailure"] == last
    assert (status["failures"], status["disruptions"], status["attempt"]) == (1, 0, 2)
    assert victim["metadata"]["name"] in installed.kube.run("hulk", "explain", training, "-n", jobs.namespace)

    paused_after = pause(installed, jobs, training, after=since)
    jobs.patch(training, {"suspend": False})
    assert jobs.resumed_at(training, attempt=3) == paused_after
    assert jobs.status(training)["failures"] == 1

    saved = jobs.wait_checkpoint(training, attempt=3, after=paused_after)
    gang = jobs.pods(training, attempt=3)
    kept = nodes(system_pods(installed, "operator"))  # and the checkpoint store is there
    lost = next(name for name in nodes(gang) if name not in kept)
    dead = installed.node(lost)
    observed = Job(installed, jobs.namespace, training)
    undisturbed_s = start_s(observed)
    loss = lose(observed, lost, is_between_checkpoints)
    is_within_its_limits(loss, undisturbed_s)
    status = jobs.status(training)
    assert (status["disruptions"], status["attempt"], status["lastFailure"]["reason"]) == (1, 4, "NodeLost")
    why = f"node {lost} has not answered for"
    assert why in status["lastFailure"]["message"]
    assert any(why in said for said in jobs.events(training)["NodeLost"])
    assert any(said.startswith("attempt 4: ") for said in jobs.events(training)["Planned"])

    assert saved <= loss.resumed_after
    assert lost not in nodes(jobs.pods(training, attempt=4))
    untouched(gang, next(pod for pod in gang if pod["spec"]["nodeName"] == lost), jobs.pods(training, attempt=4))
    old = [pod for pod in jobs.pods(training, attempt=3) if pod["spec"]["nodeName"] == lost]
    assert old, "a pod of a dead node stays until its kubelet is back or the node is removed"
    status = jobs.status(training)
    assert (status["failures"], status["disruptions"]) == (1, 1)
    again = jobs.wait_checkpoint(training, attempt=4, after=saved)
    assert again > saved

    node.start(dead)
    wait_until(
        lambda: not set(uids(jobs.pods(training))) & set(uids(old)),
        "the end of the lost node's pod",
        timeout_s=PATIENCE_S,
        interval_s=0.5,
    )
    assert jobs.status(training)["attempt"] == 4
    assert {"NodeLost", "Suspended", "Resumed", "Deployed"} <= jobs.events(training).keys()

    gang = jobs.pods(training)
    with cordoned(installed, lost):  # two workers would fit there, and it may be measured as the fastest
        jobs.patch(training, {"workers": {"min": NUM_WORKERS - 1, "max": NUM_WORKERS - 1}})
        assert again <= jobs.resumed_at(training, attempt=5)
    untouched(gang, None, jobs.pods(training))
    status = jobs.status(training)
    assert (status["failures"], status["disruptions"], status["plan"]["numWorkers"]) == (1, 1, NUM_WORKERS - 1)


def is_between_checkpoints(step: int) -> bool:
    """Whether the last checkpoint is written and the next one not begun: what is lost is what was made since."""
    return step % EVERY == EVERY // 2


def is_within_its_limits(loss: Loss, undisturbed_s: float) -> None:
    """A lost node is found and planned without by the operator alone, and soon: see docs/how-it-works/lost-nodes.md.

    On a machine that starts any worker slowly, the first step is soon where the gang took no longer than twice an
    undisturbed start.
    """
    assert loss.detected_s <= MAX_DETECTED_S, loss
    assert loss.plan_s <= MAX_PLAN_S, loss
    assert loss.first_step_s <= max(MAX_FIRST_STEP_S, loss.deployed_s + 2 * undisturbed_s), (loss, undisturbed_s)
    assert 0 <= loss.lost_steps <= EVERY, loss


def pause(lab: up.Lab, jobs: Jobs, name: str, after: int) -> int:
    """Suspend a job once it trains; the step that its last checkpoint holds, written at the SIGTERM."""
    attempt = jobs.status(name)["attempt"]
    jobs.wait(name, f"a step of attempt {attempt}", lambda now: now.get("observed", {}).get("step", 0) > after)
    first = jobs.pods(name, attempt)[0]["metadata"]["name"]
    last_words = jobs.follow(first)
    asked_s = time.monotonic()
    jobs.patch(name, {"suspend": True})
    saved = saved_at_its_end(last_words())
    assert time.monotonic() - asked_s < GRACE_S
    jobs.wait_phase(name, "Suspended")
    assert jobs.pods(name) == []
    jobs.wait(name, "the last checkpoint in its status", lambda now: now["checkpoint"]["step"] == saved)
    return saved


def test_a_job_that_always_fails_ends_as_failed_with_its_last_words(jobs: Jobs, installed: up.Lab) -> None:
    script = "echo reading the corpus; echo no such file: corpus.txt >&2; exit 3"
    jobs.submit(job("hopeless", (1, 1), command=("sh", "-c", script), runPolicy={"backoffLimit": 1}))
    status = jobs.wait_phase("hopeless", "Failed")

    assert jobs.condition("hopeless", "Failed")["reason"] == "BackoffLimitExceeded"
    assert (status["failures"], status["attempt"], status["lastFailure"]["exitCode"]) == (2, 2, 3)
    wait_until(lambda: not jobs.pods("hopeless"), "the end of its pods", timeout_s=PATIENCE_S, interval_s=0.25)
    # stdout and stderr are two pipes: the log may hold their lines in another order
    assert "no such file: corpus.txt" in jobs.status("hopeless")["lastFailure"]["message"].splitlines()
    assert "no such file: corpus.txt" in installed.kube.run("hulk", "logs", "hopeless", "-n", jobs.namespace)
