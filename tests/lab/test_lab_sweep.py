"""A sweep of four models that no worker's devices hold, on two workers: as each alone, and all at once."""

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
LINE = re.compile(r"^trial=(\S+) step=(\d+) loss=(\S+) ", re.MULTILINE)
Losses = dict[tuple[str, int], str]


@dataclass(frozen=True, slots=True)
class Ran:
    """A sweep that has ended. `losses` by trial and step, each worker's in the order in which it made them.

    `under_way`: from when to when each worker ran.
    """

    status: Object
    losses: Losses
    under_way: list[tuple[str, str]]


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


def outcome(jobs: Jobs, name: str) -> Ran:
    """Wait for its end."""
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
    pods = jobs.pods(f"{name}-shared")
    rows = [found.groups() for pod in pods for found in LINE.finditer(jobs.log(pod["metadata"]["name"]))]
    ended = [pod["status"]["containerStatuses"][0]["state"]["terminated"] for pod in pods]
    return Ran(
        status(),
        {(trial, int(step)): loss for trial, step, loss in rows},
        [(one["startedAt"], one["finishedAt"]) for one in ended],
    )


@pytest.fixture(scope="module")
def shared(installed: up.Lab, jobs: Jobs) -> Ran:
    """All four on two workers."""
    jobs.submit(sweep(NAME, TRIALS, 2))
    return outcome(jobs, NAME)


@pytest.fixture(scope="module")
def alone(shared: Ran, jobs: Jobs) -> list[Ran]:
    """Each by itself on a worker."""
    names = [f"alone-{number}" for number in range(len(TRIALS))]
    for name, trial in zip(names, TRIALS, strict=True):
        jobs.submit(sweep(name, [trial], 1))
    return [outcome(jobs, name) for name in names]


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


def test_all_trials_are_under_way_at_once(shared: Ran) -> None:
    """Both workers train at the same time, and the trials of each take turns (seconds: `python -m bench sharp`)."""
    assert max(begun for begun, _ in shared.under_way) < min(ended for _, ended in shared.under_way)
    made = list(shared.losses)
    first_made, last_made = ([made.index((f"t{number}", step)) for number in range(4)] for step in (1, STEPS))
    for worker in ("worker 0", "worker 1"):
        own = [number for number, row in enumerate(shared.status["table"]) if row["place"] == worker]
        assert max(first_made[number] for number in own) < min(last_made[number] for number in own)


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
