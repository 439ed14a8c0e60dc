"""A job of three pipeline stages, one in every region: planned, timed, trained and observed, by what a user sees."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from hulk_lab import up
from hulk_lab.processes import wait_until
from lab_jobs import PATIENCE_S, TINY, Jobs, Object, job, nodes, query

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

NAME = "staged"
STEPS = 24
MODEL = {"transformer": {**TINY, "layers": 4, "sequenceLength": 40}}  # no other test's
PLACES = {"0-1": "eu", "2-3": "us", "4-5": "ap"}
LOSS = re.compile(r"^step=(\d+) loss=(\S+) ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Record:
    """What was seen of the job."""

    status: Object
    plan: Object
    pods: list[Object]
    log: str
    explained: str


@pytest.fixture(scope="module")
def record(installed: up.Lab, jobs: Jobs) -> Record:
    """Run it to its end."""
    jobs.submit(
        job(
            NAME,
            (3, 3),
            steps=STEPS,
            checkpoint_every=10,
            model=MODEL,
            parallelism={"pipeline": 3},
            placement={"pins": [{"layers": layers, "regions": [region]} for layers, region in PLACES.items()]},
            training={"globalBatch": 12, "microBatch": 2, "steps": STEPS},
        )
    )
    jobs.wait_phase(NAME, "Running")
    pods, plan = jobs.pods(NAME), jobs.plan(NAME)
    explained = installed.kube.run("hulk", "explain", NAME, "-n", jobs.namespace)
    status = jobs.wait_phase(NAME, "Succeeded")
    return Record(status, plan, pods, jobs.log(pods[0]["metadata"]["name"]), explained)


def test_every_region_trains_its_stage_and_the_loss_falls(record: Record) -> None:
    losses = {int(step): float(loss) for step, loss in LOSS.findall(record.log)}
    assert list(losses) == list(range(1, STEPS + 1))
    assert losses[STEPS] < 0.9 * losses[1]
    stages = record.status["plan"]["stages"]
    assert {stage["layers"]: stage["regions"] for stage in stages} == {key: [place] for key, place in PLACES.items()}
    assert record.status["plan"]["layout"] == {"data": 1, "pipeline": 3, "shard": 1, "tensor": 1}
    assert nodes(record.pods) == [worker["node"] for worker in record.plan["workers"]]
    assert record.plan["pipeline"]["name"] == record.status["plan"]["schedule"]
    assert all(stage["layers"] in record.explained for stage in stages)


def test_the_prediction_was_written_before_the_first_step_from_every_stages_time(record: Record) -> None:
    prediction = record.status["prediction"]
    assert (prediction["source"], prediction["calibrated"]) == ("preflight", True)
    found = re.search(r"^preflight compute_s=(\S+) ", record.log, re.MULTILINE)
    assert found is not None
    assert len(found[1].split(",")) == 3
    assert found.start() < record.log.index("start: the prediction is written") < record.log.index("step=1 ")
    compute, bubble = (prediction[f"{part}Microseconds"] for part in ("compute", "bubble"))
    assert 0 < compute <= compute + bubble <= prediction["stepMicroseconds"] + 1  # no bubble where others are quick


def test_bubbles_and_transfers_are_observed_beside_the_prediction(record: Record, installed: up.Lab) -> None:
    seen = record.status["observed"]["pipeline"]
    assert 0 <= seen["transferMicroseconds"] <= seen["bubbleMicroseconds"]
    for metric in ("predicted", "observed"):
        series = f'hulk_job_pipeline_{metric}_seconds{{job="{NAME}"}}'
        wait_until(lambda series=series: query(installed, series), series, timeout_s=PATIENCE_S, interval_s=1)


def test_the_parts_of_its_state_are_in_the_object_store(record: Record) -> None:
    assert record.status["checkpoint"]["where"] == f"s3://checkpoints/{NAME}"
    assert record.status["checkpoint"]["step"] == STEPS
    assert f"checkpoint step={STEPS} " in record.log
