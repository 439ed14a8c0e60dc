"""A job of three pipeline stages, one in every region: planned, trained, observed, and gone on with as another layout."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from lab_jobs import TINY, Jobs, Object, job

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

NAME = "staged"
STEPS = 12
MODEL = {"transformer": {**TINY, "layers": 4, "sequenceLength": 40}}  # no other test's
PINS = [{"layers": "0", "regions": ["eu"]}, {"layers": "2-3", "regions": ["us"]}, {"layers": "5", "regions": ["ap"]}]
LOSS = re.compile(r"^step=(\d+) loss=(\S+) ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Record:
    """What was seen of the job."""

    status: Object
    plan: Object
    pods: list[Object]
    log: str


@pytest.fixture(scope="module")
def record(jobs: Jobs) -> Record:
    """Run it to its end."""
    jobs.submit(
        job(
            NAME,
            (3, 3),
            steps=STEPS,
            model=MODEL,
            parallelism={"pipeline": 3, "data": 1},
            placement={"pins": PINS},
            training={"globalBatch": 8, "microBatch": 2, "steps": STEPS},
        )
    )
    jobs.wait_phase(NAME, "Running")
    pods, plan = jobs.pods(NAME), jobs.plan(NAME)
    status = jobs.wait_phase(NAME, "Succeeded")
    return Record(status, plan, pods, jobs.log(f"{NAME}-1-0"))
