"""The command line about pipeline stages: plans from files, and what a running job's status says."""

from datetime import UTC, datetime
from typing import Any

import pytest
from api_vectors import job
from hulk_operator.api import HulkJob, HulkTopologySpec
from hulk_operator.cli import tables
from hulk_operator.cli.output import plain
from hulk_operator.cli.plan_reports import plan_from_files
from hulk_operator.cli.reports import PlanReports

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STAGES = [
    {"stage": 0, "layers": "0-1", "numAccelerators": 2, "numNodes": 2, "numRegions": 1, "regions": ["eu"]},
    {"stage": 1, "layers": "2-3", "numAccelerators": 2, "numNodes": 2, "numRegions": 5, "regions": ["ap", "us"]},
]
PLAN = {
    "name": "good-plan-1",
    "digest": "d",
    "attempt": 1,
    "algorithm": "ring",
    "numWorkers": 4,
    "numAccelerators": 4,
    "layout": {"data": 2, "pipeline": 2},
    "schedule": "explicit",
    "stages": STAGES,
}
PREDICTION = {
    "attempt": 1,
    "stepMicroseconds": 500_000,
    "computeMicroseconds": 300_000,
    "communicationMicroseconds": 80_000,
    "bubbleMicroseconds": 120_000,
    "transferMicroseconds": 20_000,
    "calibrated": True,
    "source": "preflight",
    "writtenAt": "2026-01-02T03:00:00Z",
}
OBSERVED = {
    "step": 7,
    "pipeline": {"stage": 1, "bubbleMicroseconds": 150_000, "transferMicroseconds": 30_000},
    "updatedAt": "2026-01-02T03:04:00Z",
}


def lines(status: dict[str, Any]) -> list[str]:
    found = HulkJob.model_validate({**job({}), "status": status})
    return [" ".join(line.split()) for line in plain(tables.job_state(found, NOW)).splitlines()]


def test_a_job_of_stages_shows_schedule_bubble_and_every_stages_place() -> None:
    shown = lines({"attempt": 1, "plan": PLAN, "prediction": PREDICTION, "observed": OBSERVED})
    assert any("explicit, 2 replicas of 2 stages" in line for line in shown)
    bubble = (
        "120.0 ms (20.0 ms of it for transfers) predicted; 150.0 ms (30.0 ms of it for transfers) observed on stage 1"
    )
    assert any(bubble in line for line in shown)
    assert "STAGE LAYERS ACCELERATORS NODES REGIONS" in shown
    assert "0 0-1 2 2 eu" in shown
    assert "1 2-3 2 2 ap, us and 3 more" in shown


@pytest.mark.parametrize(
    "status", [{}, {"attempt": 1, "plan": {**PLAN, "layout": {"data": 4}, "schedule": "", "stages": []}}]
)
def test_a_job_without_stages_shows_none_of_it(status: dict[str, Any]) -> None:
    assert not any("STAGE" in line or "schedule" in line or "bubble" in line for line in lines(status))


def test_a_plan_from_files_has_the_stages_and_their_schedule() -> None:
    found = HulkJob.model_validate(job({"parallelism": {"pipeline": 2}, "workers": {"min": 4, "max": 4}}))
    nodes = [{"name": name, "region": "eu", "accelerators": 1} for name in "abcd"]
    link = {"source": "eu", "target": "eu", "rttMicroseconds": 200, "bandwidthBytesPerSecond": 1_000_000_000}
    (plan,) = plan_from_files([found], HulkTopologySpec.model_validate({"nodes": nodes, "links": [link]}), {})
    assert plan.details is not None
    assert (plan.details.data, plan.details.pipeline) == (2, 2)
    printed = plain(tables.plans(PlanReports(jobs=(plan,))))
    assert f"ring, 2 x 2 stages by {plan.details.schedule}" in printed
    assert "sends to" not in printed.lower()
