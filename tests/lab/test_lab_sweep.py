"""A sweep of four models that no worker's devices hold, on two workers: as alone, and sooner than in turn."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
from hulk_lab import up
from hulk_lab.processes import wait_until
from lab_jobs import GROUP, PATIENCE_S, PYTHON, TINY, VERSION, Jobs, Object, job

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]

NAME = "sizes"
STEPS = 10
BUDGET_BYTES = 3_500_000  # of a worker's one device
BYTES_PER_PARAMETER = 4
HIDDEN = 64
TRIALS = [
    {"hidden": str(HIDDEN), "layers": layers, "learning_rate": r} for layers in ("10", "14") for r in ("0.001", "0.003")
]
COMMAND = (PYTHON, "-m", "hulk_runtime.sweep")
LINE = re.compile(r"^trial=(\S+) step=(\d+) loss=(\S+) elapsed_s=(\S+)$", re.MULTILINE)
Losses = dict[tuple[str, int], str]


@dataclass(frozen=True, slots=True)
class Ran:
    """A sweep that has ended. `losses` by trial and step; `seconds`: of training, until the last mini-batch's end."""

    status: Object
    losses: Losses
    seconds: float


def sweep(name: str, trials: list[dict[str, str]], num_workers: int) -> Object:
    """A HulkSweep whose trials share the devices of so many workers."""
    template = job(name, (num_workers, num_workers), command=COMMAND, steps=STEPS, model={"transformer": TINY})
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "HulkSweep",
        "metadata": {"name": name},
        "spec": {
            "mode": "sharp",
            "parameters": {"list": trials},
            "sharp": {
                "model": "hulk_runtime.examples.gpt_trial:make",
                "devices": "host",
                "deviceMemoryBytes": BUDGET_BYTES,
            },
            "template": {"spec": template["spec"]},
        },
    }


def run(jobs: Jobs, name: str, trials: list[dict[str, str]], num_workers: int) -> Ran:
    """Apply it and wait for its end."""
    jobs.submit(sweep(name, trials, num_workers))
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{jobs.namespace}/hulksweeps/{name}"

    def status() -> dict[str, Any]:
        found: dict[str, Any] = jobs.lab.control.api().get(path).get("status", {})
        return found

    wait_until(
        lambda: status().get("phase") in ("Succeeded", "Failed"),
        f"the end of sweep {name}",
        timeout_s=2 * PATIENCE_S,
        interval_s=0.5,
    )
    logs = [jobs.log(pod["metadata"]["name"]) for pod in jobs.pods(f"{name}-shared")]
    rows = [found.groups() for log in logs for found in LINE.finditer(log)]
    losses = {(trial, int(step)): loss for trial, step, loss, _ in rows}
    return Ran(status(), losses, max(float(elapsed) for *_, elapsed in rows))


@pytest.fixture(scope="module")
def shared(installed: up.Lab, jobs: Jobs) -> Ran:
    """All four on two workers."""
    return run(jobs, NAME, TRIALS, 2)


@pytest.fixture(scope="module")
def alone(shared: Ran, jobs: Jobs) -> list[Ran]:
    """Each by itself on a worker, one after the other."""
    return [run(jobs, f"alone-{number}", [trial], 1) for number, trial in enumerate(TRIALS)]


def test_every_trial_ends_well_on_one_of_the_two_workers(shared: Ran) -> None:
    assert (shared.status["phase"], shared.status["trials"]["succeeded"]) == ("Succeeded", 4)
    rows = shared.status["table"]
    assert [(row["name"], row["phase"], row["step"]) for row in rows] == [
        (f"{NAME}-t{number}", "Succeeded", STEPS) for number in range(4)
    ]
    assert {row["place"] for row in rows} == {"worker 0", "worker 1"}


def test_the_models_of_a_worker_exceed_its_budget(shared: Ran) -> None:
    """12 h^2 numbers and more of each layer; the devices held them none the less, because they were spilled."""
    held: dict[str, int] = {}
    for row, trial in zip(shared.status["table"], TRIALS, strict=True):
        num_bytes = BYTES_PER_PARAMETER * 12 * HIDDEN**2 * int(trial["layers"])
        held[row["place"]] = held.get(row["place"], 0) + num_bytes
    assert min(held.values()) > BUDGET_BYTES


def test_the_best_trial_is_the_one_with_the_least_last_loss(shared: Ran) -> None:
    last = {number: float(shared.losses[f"t{number}", STEPS]) for number in range(4)}
    best = min(last, key=lambda number: (last[number], number))
    assert shared.status["best"]["name"] == f"{NAME}-t{best}"
    assert float(shared.status["best"]["metric"]) == pytest.approx(last[best], rel=1e-5)
    assert shared.status["best"]["parameters"] == TRIALS[best]


@pytest.mark.whole  # in short: tests/runtime/test_sharp_train compares bits with each model alone
def test_losses_are_those_of_each_trial_alone(shared: Ran, alone: list[Ran]) -> None:
    for number, one in enumerate(alone):
        own = {step: loss for (trial, step), loss in shared.losses.items() if trial == f"t{number}"}
        assert own == {step: loss for (_, step), loss in one.losses.items()}
        assert len(own) == STEPS


@pytest.mark.whole  # in short: nothing; `python -m bench sharp` measures it
def test_it_takes_less_than_one_after_the_other(shared: Ran, alone: list[Ran]) -> None:
    """From the first mini-batch on, without what pods and torch take to start."""
    in_turn_s = sum(one.seconds for one in alone)
    print(f"shared {shared.seconds:.1f} s, one after the other {in_turn_s:.1f} s")
    assert shared.seconds < 0.8 * in_turn_s
