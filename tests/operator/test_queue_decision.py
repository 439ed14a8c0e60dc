"""What a decision means for each job: orders, grants, places, reasons and shares; when there is nothing to decide."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hulk_operator.api import HulkJob, HulkJobStatus
from hulk_operator.handlers.settings import from_environment
from hulk_operator.planning import process
from hulk_operator.planning.fleet_jobs import Contestant
from hulk_operator.planning.queue_decision import Contest, is_contested
from hulk_placement.fleet import decide as policy
from hulk_placement.fleet.quotas import Quotas
from hulk_placement.fleet.types import Allocation, Job, Move, MoveKind, Settings
from hulk_placement.fleet.utility import Utility
from hulk_placement.topology import Machine, Topology
from views import GENERATION, job, running, status

from bench.fleet_simulator import run as simulation

KEPT = {"checkpoint": {"storage": {"url": "s3://bucket/x"}}}
CLUSTER = Topology(tuple(Machine(name, "eu", num_accelerators=2) for name in "abc"))
PLAN: Any = None  # of no matter: a mapping comes from the decision


def one(name: str, *, found: HulkJobStatus | None = None, namespace: str = "lab", **spec: Any) -> HulkJob:
    made = job(workers={"min": 1, "max": 4}, **{**KEPT, **spec})
    metadata = made.metadata.model_copy(update={"name": name, "namespace": namespace})
    return made.model_copy(update={"metadata": metadata, "status": found or HulkJobStatus()})


def wish(key: str, **fields: Any) -> Job:
    given = {"candidates": dict.fromkeys("abc", 9), "max_workers": 4, "namespace": key.split("/")[0], **fields}
    return Job(key=key, utility=Utility(), total_work=1000.0, **given)


def contest(
    jobs: list[HulkJob], wishes: list[Job], waiting: set[str], free: dict[str, int], **settings: Any
) -> Contest:
    return Contest(
        contestants={made.key: Contestant(made, PLAN, PLAN) for made in jobs},
        waiting=frozenset(waiting),
        jobs={made.key: made for made in wishes},
        topology=CLUSTER,
        free=free,
        quotas=Quotas(settings.get("quotas", {})),
        settings=Settings(**settings),
    )


UP = running()


def shrink(first: int = 0, second: int = 5) -> tuple[list[HulkJob], list[Job], Allocation]:
    jobs = [one("first", found=UP), one("second")]
    wishes = [wish("lab/first", priority=first), wish("lab/second", priority=second)]
    moves = (
        Move("lab/first", MoveKind.SHRINK, {"a": 2, "b": 2}, {"a": 2}),
        Move("lab/second", MoveKind.START, {}, {"b": 2}),
    )
    said = {"lab/first": "shrinks from 4 to 2 workers", "lab/second": "starts with 2 workers"}
    return jobs, wishes, Allocation({"lab/first": {"a": 2}, "lab/second": {"b": 2}}, moves, said)


def test_who_has_too_much_is_told_to_give_and_the_other_waits_for_that() -> None:
    jobs, wishes, found = shrink()
    verdict = contest(jobs, wishes, {"lab/second"}, {"a": 0, "b": 0, "c": 2}).judge(found)
    order = verdict.orders["lab/first"]
    assert (order.reason, order.attempt, order.generation) == ("Shrunk", 1, GENERATION)
    assert order.message == "shrinks from 4 to 2 workers; there start or grow lab/second"
    assert (order.share.workers, order.share.of_cluster, order.share.fair) == (2, pytest.approx(1 / 3), 0.5)
    grant = verdict.grants["lab/second"]
    assert grant.machines == {"b": 2}
    assert (grant.making_room.position, grant.making_room.reason) == (1, "MakingRoom")
    assert grant.making_room.message.endswith("given up their machines: lab/first")
    assert verdict.places == {}


@pytest.mark.parametrize(("priority", "reason"), [(5, "PreemptedByPriority"), (0, "PreemptedByUtility")])
def test_who_is_stopped_learns_by_what(priority: int, reason: str) -> None:
    jobs, wishes, _ = shrink(second=priority)
    moves = (
        Move("lab/first", MoveKind.PREEMPT, {"a": 2}, {}),
        Move("lab/second", MoveKind.START, {}, {"a": 2}),
    )
    found = Allocation({"lab/second": {"a": 2}}, moves, {"lab/first": "stopped"}, {"lab/first": 1})
    order = contest(jobs, wishes, {"lab/second"}, {}).judge(found).orders["lab/first"]
    assert (order.reason, order.share.workers) == (reason, 0)


@pytest.mark.parametrize(("free", "ordered"), [({"b": 2}, True), ({"b": 1}, False), ({}, False)])
def test_nobody_stops_for_machines_that_others_still_have(free: dict[str, int], ordered: bool) -> None:
    jobs, wishes, _ = shrink()
    moves = (Move("lab/first", MoveKind.GROW, {"a": 2}, {"a": 2, "b": 2}),)
    found = Allocation({"lab/first": {"a": 2, "b": 2}}, moves)
    assert ("lab/first" in contest(jobs, wishes, set(), free).judge(found).orders) == ordered


@pytest.mark.parametrize(
    ("name", "found", "spec"),
    [
        ("it keeps no checkpoint", UP, {"checkpoint": None}),
        ("its gang is not up", status(1, Planned=(True, "Planned"), Deployed=(False, "Deploying")), {}),
    ],
)
def test_a_gang_that_cannot_be_moved_gets_no_order(name: str, found: HulkJobStatus, spec: dict[str, Any]) -> None:
    _, wishes, decision = shrink()
    jobs = [one("first", found=found, **spec), one("second")]
    assert contest(jobs, wishes, {"lab/second"}, {}).judge(decision).orders == {}, name


@pytest.mark.parametrize(
    ("name", "fields", "quotas", "reason"),
    [
        ("others have them", {}, {}, "Queued"),
        ("more than all machines hold", {"min_workers": 7, "max_workers": 7}, {}, "ClusterTooSmall"),
        ("nodes admit fewer", {"min_workers": 3, "candidates": {"a": 2, "b": 0}}, {}, "ClusterTooSmall"),
        ("more than its namespace may have", {"min_workers": 3}, {"lab": 2}, "QuotaTooSmall"),
    ],
)
def test_why_a_job_waits_is_one_word(name: str, fields: dict[str, Any], quotas: dict[str, int], reason: str) -> None:
    waiting = wish("lab/second", **fields)
    found = Allocation({}, (), {"lab/second": "because"}, {"lab/second": 3}, {"lab/second": 1_000_000.0})
    place = contest([one("second")], [waiting], {"lab/second"}, {}, quotas=quotas).judge(found).places["lab/second"]
    assert (place.position, place.reason, place.message) == (3, reason, "because"), name
    assert place.expected_start == datetime.fromtimestamp(1_000_000, UTC)


def test_a_start_beyond_all_calendars_is_not_known() -> None:
    found = Allocation({}, (), {}, {"lab/second": 1}, {"lab/second": 1e18})
    place = contest([one("second")], [wish("lab/second")], {"lab/second"}, {}).judge(found).places["lab/second"]
    assert place.expected_start is None


def test_fair_shares_go_by_the_weights_of_namespaces_that_have_jobs() -> None:
    jobs = [one("a"), one("b"), one("c", namespace="other")]
    wishes = [wish("lab/a"), wish("lab/b"), wish("other/c")]
    found = Allocation({key: {"a": 1} for key in ("lab/a", "lab/b", "other/c")})
    grants = contest(jobs, wishes, set(found.workers), {}, shares={"other": 3.0, "absent": 9.0}).judge(found).grants
    assert {key: grant.share.fair for key, grant in grants.items()} == {"lab/a": 0.125, "lab/b": 0.125, "other/c": 0.75}


DECLARED: dict[str, Any] = {"utility": {"type": "sqrt"}, "checkpoint": None}
PLAIN: dict[str, Any] = {"checkpoint": None}


@pytest.mark.parametrize(
    ("name", "holding", "wishing", "num_free", "contested"),
    [
        ("nobody is there", [], [], 9, False),
        ("all have room", [(one("a", **DECLARED), 2)], [(one("b", **DECLARED), 4)], 4, False),
        ("not all have room", [(one("a", **DECLARED), 2)], [(one("b", **DECLARED), 4)], 3, True),
        ("nobody declares, nobody can be moved", [(one("a", **PLAIN), 2)], [(one("b", **PLAIN), 4)], 3, False),
        ("one can be moved", [(one("a", found=UP), 2)], [(one("b", **PLAIN), 4)], 3, True),
        ("one is alone", [], [(one("b", **DECLARED), 4)], 3, False),
        ("one of two could grow", [(one("a", found=UP), 2), (one("b", **PLAIN), 4)], [], 1, True),
        ("there is nothing to grow into", [(one("a", found=UP), 2), (one("b", **PLAIN), 4)], [], 0, False),
        ("both have all they want", [(one("a", found=UP), 4), (one("b", **PLAIN), 4)], [], 9, False),
        ("alone, as no queue has touched it", [(one("a", found=UP), 2)], [], 9, False),
    ],
)
def test_when_there_is_something_to_decide(
    name: str, holding: list[tuple[HulkJob, int]], wishing: list[tuple[HulkJob, int]], num_free: int, contested: bool
) -> None:
    assert is_contested(holding, wishing, num_free, Quotas({})) == contested, name


@pytest.mark.parametrize(
    ("name", "limit", "taken", "running", "waiting", "contested"),
    [
        ("the quota admits all that is wanted", 4, 2, [(one("a", found=UP), 2)], [(one("b"), 2)], False),
        ("it does not", 3, 2, [(one("a", found=UP), 2)], [(one("b"), 2)], True),
        ("it leaves nothing to grow into", 4, 4, [(one("a", found=UP), 2), (one("b"), 2)], [], False),
        ("one alone has more than it admits", 1, 2, [(one("a", found=UP), 2)], [], True),
        ("who has more than it admits cannot be moved", 1, 2, [(one("a", **DECLARED), 2)], [], False),
    ],
)
def test_a_quota_is_something_to_decide_where_machines_are_not(
    name: str,
    limit: int,
    taken: int,
    running: list[tuple[HulkJob, int]],
    waiting: list[tuple[HulkJob, int]],
    contested: bool,
) -> None:
    assert bool(is_contested(running, waiting, 9, Quotas({"lab": limit}, {"lab": taken}))) == contested, name


@pytest.mark.parametrize(("taken", "ordered"), [(2, True), (3, False)])
def test_nobody_stops_to_grow_beyond_what_pods_leave_of_a_quota(taken: int, ordered: bool) -> None:
    jobs, wishes, _ = shrink()
    moves = (Move("lab/first", MoveKind.GROW, {"a": 2}, {"a": 2, "b": 2}),)
    asked = contest(jobs, wishes, set(), {"b": 2})
    asked = replace(asked, quotas=Quotas({"lab": 4}, {"lab": taken}))
    assert ("lab/first" in asked.judge(Allocation({"lab/first": {"a": 2, "b": 2}}, moves)).orders) == ordered


def test_the_policy_is_the_function_that_the_simulator_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    assert simulation.decide is policy.decide  # type: ignore[attr-defined]
    monkeypatch.setattr(policy, "decide", lambda *asked: asked)
    competition = process.Competition(5.0, (), Topology(()), {}, {}, Settings())
    assert process._decide(competition)[0] == 5.0  # type: ignore[index]


def test_settings_of_namespaces_come_from_the_environment() -> None:
    given = {"HULK_QUEUE_QUOTAS": '{"lab": 4}', "HULK_QUEUE_SHARES": '{"lab": 2.5}', "HULK_QUEUE_SETTLE_SECONDS": "7"}
    found = from_environment(given, "me").fleet
    assert (found.quotas, found.shares, found.settle_s) == ({"lab": 4}, {"lab": 2.5}, 7)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("POLICY", "las", "'las' must be one of gadget, drf, srpt, fifo"),
        ("QUOTAS", "4", "'4' must be a JSON object of numbers by namespace"),
        ("QUOTAS", "{", "'{' is no JSON"),
        ("QUOTAS", '{"lab": -1}', "lab: -1.0 must be a whole number of at least 0"),
        ("QUOTAS", '{"lab": 1.5}', "lab: 1.5 must be a whole number of at least 0"),
        ("SHARES", '{"lab": 0}', "lab: 0.0 must be a number above 0"),
        ("SHARES", '{"lab": true}', "must be a JSON object of numbers by namespace"),
        ("SETTLE_SECONDS", "-1", "-1 must be at least 0"),
    ],
)
def test_wrong_settings_of_the_queue_are_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"HULK_QUEUE_{name}: ") as refused:
        from_environment({f"HULK_QUEUE_{name}": value}, "me")
    assert message in str(refused.value)
