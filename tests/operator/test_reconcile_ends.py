"""How workers end in pods as clusters have them: polite programs, containers beside the worker, init containers."""

from dataclasses import replace

import pytest
from hulk_operator.api import Observed
from hulk_operator.pods import Exit, Reason
from hulk_operator.pods.termination_record import Farewell
from hulk_operator.reconcile.recipe import decide
from hulk_operator.reconcile.types import DeletePods, Memory
from hulk_operator.status import condition, holds
from views import LAUNCHED, NOW, ago, deploying, failure_of, full, gang, job, pod, running, view

SWEPT = Memory(swept_to=1)
DONE = Exit(0, "Completed", "", None)
EVICTED = Reason("EvictionByEvictionAPI", "Eviction API: evicting")


@pytest.mark.parametrize(
    ("name", "left", "others"),
    [
        ("deleted", {"delete_by": NOW}, {}),
        ("evicted, and still there", {"disruption": EVICTED}, {}),
        (
            "evicted; its peers lost it",
            {"disruption": EVICTED, "delete_by": NOW},
            {"exit": Exit(1, "Error", "lost", NOW)},
        ),
        (
            "all of them",
            {"delete_by": NOW, "disruption": EVICTED},
            {"delete_by": NOW, "exit": DONE, "phase": "Succeeded"},
        ),
    ],
)
def test_who_leaves_politely_when_told_to_is_interrupted_not_done(
    name: str, left: dict[str, object], others: dict[str, object]
) -> None:
    polite = pod(0, phase="Succeeded", exit=DONE, **left)
    made = decide(view(running(), memory=SWEPT, pods=(polite, *gang(**others)[1:]), full=full()))
    assert not holds(made.view.status, "Succeeded"), name
    assert (made.view.status.disruptions, made.view.status.failures) == (1, 0), name
    assert not holds(made.view.status, "Planned"), name


@pytest.mark.parametrize("told_by", ["its last words", "a poll"])
def test_who_made_the_last_step_is_done_although_it_is_taken_away(told_by: str) -> None:
    said = Farewell(1, 10, "0.5", 0) if told_by == "its last words" else None
    status = running()
    if said is None:
        status = status.model_copy(update={"observed": Observed(step=10, updated_at=ago(1))})
    pods = gang(phase="Succeeded", exit=DONE, delete_by=NOW, disruption=EVICTED)
    made = decide(view(status, memory=SWEPT, pods=pods, full=full(num_steps=10), farewell=said))
    assert holds(made.view.status, "Succeeded")


def test_a_container_that_never_ends_does_not_keep_the_job_and_goes_with_its_pod() -> None:
    pods = gang(phase="Running", exit=DONE, others_run=True)
    over = decide(view(running(), memory=SWEPT, pods=pods, full=full()))
    assert holds(over.view.status, "Succeeded")
    swept = decide(view(over.view.status, memory=SWEPT, pods=pods, full=full()))
    [removed] = [action for _, action in swept.actions if isinstance(action, DeletePods)]
    assert removed == DeletePods(1, (0, 1, 2))


def test_pods_in_which_nothing_runs_stay_for_their_logs() -> None:
    pods = gang(phase="Running", exit=DONE)  # the kubelet cleans up
    over = decide(view(running(), memory=SWEPT, pods=pods, full=full()))
    swept = decide(view(over.view.status, memory=SWEPT, pods=pods, full=full()))
    assert not [action for _, action in swept.actions if isinstance(action, DeletePods)]


def test_an_init_container_that_fails_is_told_at_once_and_counts() -> None:
    broke = pod(1, phase="Failed", exit=Exit(3, "Error", "no data at /x\n", NOW, "prep"))
    made = decide(view(deploying(), memory=SWEPT, pods=(pod(0), broke, pod(2)), full=full()))
    assert (made.view.status.failures, made.view.status.disruptions) == (1, 0)
    said = condition(made.view.status, "Planned")
    assert said is not None
    assert "init container prep of worker 1 on node node-1 ended with exit code 3" in said.message
    assert "no data at /x" in said.message
    assert failure_of(made.view.status).exit_code == 3
    assert made.view.status.avoided_nodes == ()


def test_a_pod_that_failed_without_an_exit_code_is_told_by_its_reason() -> None:
    broke = pod(1, phase="Failed", failure=Reason("DeadlineExceeded", "Pod was active on the node longer than allowed"))
    made = decide(view(running(), memory=SWEPT, pods=tuple(replace(broke, worker=n) for n in range(3)), full=full()))
    last = failure_of(made.view.status)
    assert (last.reason, last.exit_code) == ("DeadlineExceeded", None)
    said = condition(made.view.status, "Planned")
    assert said is not None
    assert "None" not in said.message
    assert "longer than allowed" in said.message


NO_STEP = "; no step of a torch optimizer was seen in rank 0"


@pytest.mark.parametrize(
    ("name", "template", "step", "doubts"),
    [
        ("hulk-launch saw steps", LAUNCHED, 10, ""),
        ("hulk-launch saw none", LAUNCHED, 0, NO_STEP),
        ("whose steps nobody counts", {}, 0, ""),
    ],
)
def test_a_success_without_a_step_is_doubted_in_the_condition(
    name: str, template: dict[str, object], step: int, doubts: str
) -> None:
    status = running().model_copy(update={"observed": Observed(step=step, updated_at=ago(1))})
    pods = gang(phase="Succeeded", exit=DONE)
    made = decide(view(status, job=job(**template), memory=SWEPT, pods=pods, full=full()))
    said = condition(made.view.status, "Succeeded")
    assert said is not None
    assert said.message == f"all 3 workers of attempt 1 ended well{doubts}", name


def test_a_failure_is_told_with_what_the_command_does_wrong() -> None:
    template = {"spec": {"containers": [{"name": "w", "image": "i", "command": ["torchrun", "--nnodes=1", "t.py"]}]}}
    pods = gang(phase="Failed", exit=Exit(1, "Error", "RendezvousTimeoutError", NOW))
    made = decide(view(running(), job=job(template=template), memory=SWEPT, pods=pods, full=full()))
    said = condition(made.view.status, "Planned")
    assert said is not None
    assert (
        "exit code 1; torchrun's --nnodes win over what Hulk sets by the plan: leave them out; failure 1"
        in said.message
    )


def test_a_worker_without_enough_memory_is_told_so() -> None:
    pods = gang(phase="Failed", exit=Exit(137, "OOMKilled", "64 MiB", NOW))
    made = decide(view(running(), memory=SWEPT, pods=pods, full=full()))
    said = condition(made.view.status, "Planned")
    assert said is not None
    assert "ended with exit code 137 (OOMKilled); failure 1 of at most" in said.message
