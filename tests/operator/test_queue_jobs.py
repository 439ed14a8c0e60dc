"""HulkJobs as the policy gets them: worth, work, what a move costs, who may be moved, what was observed."""

from dataclasses import replace
from typing import Any

import pytest
from hulk_operator.api import CheckpointStatus, HulkJob, HulkJobStatus, Observed, ShareStatus, Startup
from hulk_operator.inputs.utilities import to_utility
from hulk_operator.inputs.workloads import Situation, to_model, to_workload
from hulk_operator.planning.fleet_jobs import (
    Contestant,
    fleet_job,
    is_concerned,
    is_contestant,
    is_movable,
    observed_steps,
)
from hulk_placement.fleet.predicted import PredictedStepTimes
from hulk_placement.fleet.utility import UtilityKind
from hulk_placement.plan import Plan
from hulk_placement.topology import Link, Machine, Topology
from views import LAUNCHED, NODES, NOW, ago, job, plan, running, status

KEPT = {"checkpoint": {"storage": {"url": "s3://bucket/x"}, "everySteps": 10}}
BATCH = 6.0


def made(found: HulkJobStatus | None = None, **spec: Any) -> HulkJob:
    given = job(workers={"min": 1, "max": 4}, training={"globalBatch": 6, "steps": 100}, **{**KEPT, **spec})
    meta = given.metadata.model_copy(update={"creation_timestamp": ago(500)})
    return given.model_copy(update={"status": found or HulkJobStatus(), "metadata": meta})


def contestant(one: HulkJob, by: Plan | None = None, **fields: Any) -> Contestant:
    workload = to_workload(one, to_model(one.spec), Situation(1, dict.fromkeys(NODES, 8)))
    return Contestant(one, replace(workload, **fields), by)


def trained(step: int, step_us: int | None = 2_000_000, kept: int | None = None, **fields: Any) -> HulkJobStatus:
    seen = Observed(step=step, step_microseconds=step_us, updated_at=NOW)
    saved = CheckpointStatus(step=kept, where="s3://bucket/x") if kept is not None else None
    return running().model_copy(update={"observed": seen, "checkpoint": saved, **fields})


@pytest.mark.parametrize(
    ("declared", "kind", "fields"),
    [
        ({}, UtilityKind.THROUGHPUT, {"weight": 1.0}),
        ({"type": "sqrt", "weight": "2.5"}, UtilityKind.SQRT, {"weight": 2.5}),
        (
            {"type": "sigmoid", "sigmoid": {"steepness": "0.01", "midpoint": 300}},
            UtilityKind.SIGMOID,
            {"steepness": 0.01, "midpoint": 300.0},
        ),
        ({"type": "proportional", "proportional": {"scale": 7}}, UtilityKind.PROPORTIONAL, {"scale": 7.0}),
        ({"type": "proportional"}, UtilityKind.PROPORTIONAL, {"scale": 1.0}),
        (
            {"type": "energy", "energy": {"wattsPerWorker": 300, "powerPrice": "0.001"}},
            UtilityKind.ENERGY,
            {"power_price": 0.001},
        ),
        (
            {"type": "deadline", "deadline": {"afterSeconds": 1000}},
            UtilityKind.DEADLINE,
            {"deadline_s": NOW.timestamp() + 500, "late_share": 0.1},
        ),
        (
            {"type": "deadline", "deadline": {"at": "2026-05-04T13:00:00Z", "lateShare": "0.5"}},
            UtilityKind.DEADLINE,
            {"deadline_s": NOW.timestamp() + 3600, "late_share": 0.5},
        ),
    ],
)
def test_what_is_declared_is_what_counts(declared: dict[str, Any], kind: UtilityKind, fields: dict[str, Any]) -> None:
    found = to_utility(made(utility=declared))
    assert found.kind is kind
    assert {name: getattr(found, name) for name in fields} == fields


def test_work_is_counted_in_sequences_whatever_the_workers() -> None:
    one = fleet_job(contestant(made(trained(40, kept=30)), plan()), NOW)
    assert (one.total_work, one.work_done, one.step_work(1), one.step_work(3)) == (
        100 * BATCH,
        40 * BATCH,
        BATCH,
        BATCH,
    )
    waiting = fleet_job(contestant(made(HulkJobStatus(checkpoint=CheckpointStatus(step=30, where="x")))), NOW)
    assert waiting.work_done == 30 * BATCH


def test_a_gang_in_its_last_step_is_not_done_yet() -> None:
    """Its pods still save, and hold what they have."""
    assert fleet_job(contestant(made(trained(100)), plan()), NOW).left == BATCH


@pytest.mark.parametrize(
    ("name", "spec", "found", "seconds"),
    [
        ("the last start took 33 s, half of 10 steps are made again", {}, trained(9), 33 + 10),
        ("nobody saw a step", {}, running(), 33),
        ("its program saves before it stops", LAUNCHED, trained(9), 33),
    ],
)
def test_what_a_move_costs(name: str, spec: dict[str, Any], found: HulkJobStatus, seconds: float) -> None:
    known = found.model_copy(update={"startup": Startup(attempt=1, seconds=33)})
    one = fleet_job(contestant(made(known, **spec), plan()), NOW)
    assert one.restart_s == pytest.approx(seconds + 3.0), name  # and 3 s to stop


def test_who_waits_pays_nothing_for_a_start_nor_who_has_stopped_already() -> None:
    assert fleet_job(contestant(made()), NOW).restart_s == 0
    between = status(1, Planned=(False, "Shrunk")).model_copy(
        update={"share": ShareStatus(workers=2, of_cluster="0.5", fair="0.5", time=NOW)}
    )
    known = fleet_job(contestant(made(between), plan()), NOW)
    assert (known.restart_s, known.preemptible, known.min_workers, known.max_workers) == (0, True, 1, 4)


def test_an_operator_that_knows_nothing_of_the_plan_before_gives_what_the_status_says() -> None:
    between = status(1, Planned=(False, "Shrunk")).model_copy(
        update={"share": ShareStatus(workers=2, of_cluster="0.5", fair="0.5", time=NOW)}
    )
    one = fleet_job(contestant(made(between)), NOW)
    assert (one.min_workers, one.max_workers) == (2, 2)


@pytest.mark.parametrize(
    ("name", "found", "spec", "movable", "concerned"),
    [
        ("it trains", running(), {}, True, True),
        ("no checkpoint", running(), {"checkpoint": None}, False, False),
        (
            "no checkpoint, but it declares its worth",
            running(),
            {"checkpoint": None, "utility": {"weight": "2"}},
            False,
            True,
        ),
        ("it waits", HulkJobStatus(), {}, False, False),
        ("its gang is not up", status(1, Planned=(True, "Planned"), Deployed=(False, "Deploying")), {}, False, False),
    ],
)
def test_who_may_be_moved(
    name: str, found: HulkJobStatus, spec: dict[str, Any], movable: bool, concerned: bool
) -> None:
    one = made(found, **spec)
    assert (is_movable(one), is_concerned(one)) == (movable, concerned), name


@pytest.mark.parametrize("spec", [{"suspend": True}, {"managedBy": "example.com/other"}])
def test_who_takes_no_part(spec: dict[str, Any]) -> None:
    assert is_contestant(made())
    assert not is_contestant(made(**spec))
    assert not is_contestant(made(status(1, Succeeded=(True, "Succeeded"))))


def test_a_gang_that_cannot_be_moved_keeps_what_it_has() -> None:
    one = fleet_job(contestant(made(running(), checkpoint=None), plan()), NOW)
    assert (one.preemptible, one.min_workers, one.max_workers) == (False, 3, 3)


def test_stages_have_no_other_number_of_workers() -> None:
    staged = contestant(made(running()), plan(), pipeline=3, min_workers=3, max_workers=3)
    assert (fleet_job(staged, NOW).min_workers, fleet_job(staged, NOW).max_workers) == (3, 3)
    waits = contestant(made(), pipeline=2, min_workers=2, max_workers=4)
    assert (fleet_job(waits, NOW).min_workers, fleet_job(waits, NOW).max_workers) == (2, 2)


def test_a_replica_has_a_sequence_at_least() -> None:
    assert fleet_job(contestant(made(), max_workers=4, global_batch=3), NOW).max_workers == 3


def test_a_start_that_lies_ahead_because_the_clock_was_put_back_stays_ahead() -> None:
    """The policy lets it pin nobody; a start that always were now would pin the job until the clock had passed it."""
    one = fleet_job(contestant(made(running(since_s=-3600.0)), plan()), NOW)
    assert one.moved_s == NOW.timestamp() + 3600


def test_an_observed_step_stands_before_a_prediction_and_corrects_others() -> None:
    one = contestant(made(trained(40, step_us=7_000_000)), plan())
    links = {(a, b): Link(0.001, 1e9) for a in NODES for b in NODES if a != b}
    topology = Topology(tuple(Machine(name, "eu", 2) for name in NODES), links)
    asked = fleet_job(one, NOW)
    seen = PredictedStepTimes(topology, observed_steps({one.key: one}))
    unseen = PredictedStepTimes(topology)
    here, elsewhere = dict.fromkeys(NODES, 1), {NODES[0]: 1}
    assert seen.step_s(asked, here) == 7.0
    factor = 7.0 / unseen.step_s(asked, here)
    assert seen.step_s(asked, elsewhere) == pytest.approx(factor * unseen.step_s(asked, elsewhere))


def test_nothing_is_observed_of_who_waits() -> None:
    waits = contestant(made(trained(40)))
    assert observed_steps({waits.key: waits}) == {}


@pytest.mark.parametrize("allowed", [False, True])
def test_links_of_which_nothing_is_known_are_used_only_where_the_job_allows_them(allowed: bool) -> None:
    assert fleet_job(contestant(made(), allow_unknown_links=allowed), NOW).allow_unknown_links is allowed
