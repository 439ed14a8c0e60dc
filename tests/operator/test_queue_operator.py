"""Whole jobs that compete, under the planner and the reconciler: who waits, starts, grows, shrinks and is stopped."""

from datetime import timedelta
from typing import Any

import pytest
from depth import spread
from hulk_operator.planning.process import Search
from hulk_placement.fleet.types import Settings
from queue_world import KillPoint, Make, QueueWorld, high, nodes, want

SQRT = {"utility": {"type": "sqrt"}}


async def shrinking(make: Make, **second: Any) -> QueueWorld:
    """One job trains on all four nodes when another one comes."""
    world = make(*nodes(4), want("first", 1, 4, launched=True, **SQRT))
    await world.until(lambda: world.num_workers("first") == 4)
    await world.turns(12)
    world.add(want("second", 1, 4, after_s=20, launched=True, **(SQRT | second)))
    return world


def both_run(world: QueueWorld) -> bool:
    return all(world.num_workers(name) > 0 for name in ("first", "second"))


@pytest.mark.parametrize("launched", [False, True])
async def test_one_shrinks_for_another_and_grows_when_that_is_done(make: Make, launched: bool) -> None:
    world = make(*nodes(4), want("first", 1, 4, launched=launched, utility={"type": "sqrt"}))
    await world.until(lambda: world.num_workers("first") == 4, "it has all")
    await world.turns(12)
    world.add(want("second", 1, 4, after_s=20, launched=launched, utility={"type": "sqrt"}))
    await world.until(lambda: world.num_workers("first") > 0 and world.num_workers("second") > 0, "both run")
    assert world.num_workers("first") + world.num_workers("second") == 4
    assert ("lab/first", "shrink") in world.moves
    assert ("lab/second", "start") in world.moves
    assert world.job("first").status.failures == 0
    world.change("second", {"suspend": True})
    await world.until(lambda: world.num_workers("first") == 4, "it has all again")
    assert ("lab/first", "grow") in world.moves


async def test_a_more_important_job_stops_another_which_goes_on_later(make: Make) -> None:
    world = make(*nodes(2), high(1000), want("low", 2, 2))
    await world.until(lambda: world.num_workers("low") == 2)
    await world.turns(12)
    world.add(want("urgent", 2, 2, after_s=20, priorityClassName="high"))
    await world.until(lambda: world.num_workers("urgent") == 2)
    await world.until(lambda: world.job("low").status.queue is not None)
    low = world.job("low").status
    assert world.why("low") == "PreemptedByPriority"
    assert (low.failures, low.queue.position if low.queue else 0) == (0, 1)
    assert ("lab/low", "preempt") in world.moves
    world.change("urgent", {"suspend": True})
    await world.until(lambda: world.num_workers("low") == 2)
    assert world.job("low").status.queue is None


async def test_who_is_stopped_does_not_begin_again_before_the_more_important_job_has_begun(make: Make) -> None:
    """One of the two has no pods left while those of the other still end: their machines are nobody else's."""
    world = make(*nodes(4), high(1000), want("low", 2, 2), want("other", 2, 2))
    await world.until(lambda: all(world.num_workers(name) == 2 for name in ("low", "other")))
    await world.turns(12)
    world.add(want("urgent", 4, 4, after_s=20, priorityClassName="high"))
    reasons = set()

    def has_begun() -> bool:
        queue = world.job("urgent").status.queue
        reasons.add(queue.reason if queue else "")
        return world.num_workers("urgent") == 4

    await world.until(has_begun)
    assert [world.job(name).status.attempt for name in ("low", "other")] == [1, 1]
    assert reasons >= {"MakingRoom"}
    assert "ClusterTooSmall" not in reasons


MID_MOVE = [
    KillPoint(step, write, number, moment)
    for moment in ("before", "after")
    for step, write, number in (
        ("status", "patch hulkjobs/status", 1),
        ("status", "patch hulkjobs/status", 2),
        ("status", "patch hulkjobs/status", 3),
        ("deploy", "create configmaps", 1),
        ("deploy", "patch pods", 1),
        ("sweep", "delete pods", 1),
    )
]
"""An operator dies while one gang gives up machines for another, before or after it has written something."""


@pytest.mark.parametrize(
    "point", spread(MID_MOVE, 4), ids=lambda point: f"{point.step}-{point.write}-{point.number}-{point.moment}"
)
async def test_an_operator_that_dies_in_the_middle_of_a_move_is_followed_by_one_that_ends_it(
    make: Make, point: KillPoint
) -> None:
    """Not a word is lost of what was kept (`QueueWorld` checks after each turn), and nothing counts as a failure."""
    world = await shrinking(make)
    await world.until(lambda: world.planner.order("lab/first") is not None)
    world.cluster.point = point
    await world.until(lambda: point.is_over and both_run(world), f"{point} and both run")
    assert world.num_kills == 1
    assert world.num_workers("first") + world.num_workers("second") == 4
    first = world.job("first").status
    assert (first.failures, first.disruptions) == (0, 0)
    assert world.saved["lab/first"] > 0


async def test_a_gangs_machines_are_given_to_another_only_when_its_pods_are_gone(make: Make) -> None:
    world = await shrinking(make)
    world.holds_pods.add("lab/first")
    await world.until(lambda: world.why("second") == "MakingRoom")
    queue = world.job("second").status.queue
    assert queue is not None
    assert "as soon as others have given up their machines: lab/first" in queue.message
    await world.turns(30)
    assert world.num_workers("second") == 0
    world.holds_pods.clear()
    await world.until(lambda: both_run(world))


async def test_a_worker_that_is_lost_while_its_gang_shrinks_costs_nobody_anything(make: Make) -> None:
    world = await shrinking(make)
    await world.until(lambda: world.why("first") == "Shrunk")
    world.lose_pod("first")
    await world.until(lambda: both_run(world))
    assert world.num_workers("first") + world.num_workers("second") <= 4
    assert world.job("first").status.failures == 0


async def test_a_job_that_the_cluster_cannot_hold_says_so_and_blocks_nobody(make: Make) -> None:
    world = make(*nodes(3), want("huge", 4, 4, **SQRT), want("small", 1, 2, after_s=10, **SQRT))
    await world.until(lambda: world.num_workers("small") > 0 and world.job("huge").status.queue is not None)
    queue = world.job("huge").status.queue
    assert queue is not None
    assert queue.reason == "ClusterTooSmall"
    assert "its least is 4 workers" in queue.message


async def test_what_quotas_promise_beyond_what_there_is_comes_to_nobodys_harm(make: Make) -> None:
    settings = Settings(slot_s=10.0, quotas={"lab": 50, "other": 60})
    world = make(*nodes(3), want("one", 1, 3, **SQRT), want("two", 1, 3, after_s=1, **SQRT), settings=settings)
    await world.until(lambda: world.num_workers("one") > 0 and world.num_workers("two") > 0)
    assert world.num_workers("one") + world.num_workers("two") == 3


async def test_a_quota_holds_a_job_back_and_is_named(make: Make) -> None:
    settings = Settings(slot_s=10.0, quotas={"lab": 2})
    world = make(*nodes(4), want("one", 2, 2, **SQRT), want("two", 2, 4, after_s=1, **SQRT), settings=settings)
    await world.until(lambda: world.num_workers("one") == 2 and world.job("two").status.queue is not None)
    await world.turns(10)
    queue = world.job("two").status.queue
    assert queue is not None
    assert "quota of namespace lab" in queue.message
    assert world.num_workers("two") == 0


UNMOVABLE: dict[str, Any] = {"checkpoint": None}


@pytest.mark.parametrize("spec", [SQRT, UNMOVABLE], ids=["movable", "unmovable"])
async def test_a_quota_holds_where_there_is_room_for_all(make: Make, spec: dict[str, Any]) -> None:
    """`QueueWorld` counts the pods after each turn."""
    settings = Settings(slot_s=10.0, quotas={"lab": 3})
    world = make(*nodes(8), want("one", 1, 2, **spec), want("two", 1, 2, after_s=1, **spec), settings=settings)
    await world.until(lambda: all(world.num_workers(name) > 0 for name in ("one", "two")))
    await world.turns(20)
    assert world.num_workers("one") + world.num_workers("two") == 3


@pytest.mark.parametrize("most", [2, 9])
async def test_who_a_quota_keeps_waiting_is_told_and_starts_when_it_is_free(make: Make, most: int) -> None:
    settings = Settings(slot_s=10.0, quotas={"lab": 2})
    alone = want("never", 3, 3, after_s=2, **UNMOVABLE)
    jobs = [want("one", 2, 2, **UNMOVABLE), want("two", 1, most, after_s=1, **UNMOVABLE), alone]
    world = make(*nodes(8), *jobs, settings=settings)
    await world.until(lambda: world.num_workers("one") == 2 and world.job("never").status.queue is not None)
    await world.turns(5)
    told = {name: world.job(name).status.queue for name in ("two", "never")}
    two, never = told["two"], told["never"]
    assert two is not None
    assert never is not None
    assert (two.reason, two.position, never.reason, never.position) == ("Queued", 1, "QuotaTooSmall", 2)
    assert "of the quota of namespace lab 0 accelerators are left" in two.message
    assert "the quota of namespace lab, 2 accelerators, admits 2 of them" in never.message
    world.change("one", {"suspend": True})
    await world.until(lambda: world.num_workers("two") == min(2, most))
    assert world.num_workers("never") == 0


async def test_a_job_that_finds_no_machines_keeps_nobody_from_a_quota(make: Make) -> None:
    jobs = [want("large", 4, 4, **UNMOVABLE), want("small", 1, 1, after_s=1, **UNMOVABLE)]
    world = make(*nodes(2), *jobs, settings=Settings(slot_s=10.0, quotas={"lab": 4}))
    await world.until(lambda: world.num_workers("small") == 1)


async def test_pods_that_are_about_to_end_count_for_the_quota(make: Make) -> None:
    settings = Settings(slot_s=10.0, quotas={"lab": 2})
    world = make(*nodes(6), want("one", 2, 2, **UNMOVABLE), settings=settings)
    await world.until(lambda: world.num_workers("one") == 2)
    world.holds_pods.add("lab/one")
    world.change("one", {"suspend": True})
    world.add(want("two", 2, 2, after_s=5, **UNMOVABLE))
    await world.until(lambda: world.job("two").status.queue is not None)
    await world.turns(10)
    world.holds_pods.clear()
    await world.until(lambda: world.num_workers("two") == 2)


async def lower_quota(world: QueueWorld, accelerators: int) -> None:
    """An operator that starts again with another quota of the jobs' namespace."""
    await world.stop()
    world.settings = Settings(slot_s=10.0, quotas={"lab": accelerators})
    world.restart()


@pytest.mark.parametrize(("spec", "left"), [(UNMOVABLE, 4), (SQRT, 2)], ids=["unmovable", "movable"])
async def test_a_lower_quota_takes_only_from_jobs_that_can_be_moved(
    make: Make, spec: dict[str, Any], left: int
) -> None:
    world = make(*nodes(6), want("one", 1, 4, **spec))
    await world.until(lambda: world.num_workers("one") == 4)
    await world.turns(12)
    await lower_quota(world, 2)
    world.add(want("two", 2, 2, after_s=30, **SQRT))
    world.add(want("three", 1, 1, after_s=40, namespace="other", **SQRT))
    await world.until(lambda: world.num_workers("three") == 1)
    await world.turns(20)
    await world.until(lambda: sum(world.num_workers(name) for name in ("one", "two")) == left)
    assert world.job("one").status.failures == 0
    if spec is UNMOVABLE:
        assert (world.num_workers("one"), world.job("one").status.attempt) == (4, 1)
        queue = world.job("two").status.queue
        assert queue is not None
        assert "of the quota of namespace lab 0 accelerators are left" in queue.message


async def test_a_lower_quota_shrinks_a_job_that_is_alone(make: Make) -> None:
    world = make(*nodes(4), want("one", 1, 4, **SQRT))
    await world.until(lambda: world.num_workers("one") == 4)
    await world.turns(12)
    await lower_quota(world, 3)
    await world.until(lambda: world.num_workers("one") == 3)
    assert ("lab/one", "shrink") in world.moves


async def test_a_decision_that_fails_lets_nobody_past_a_quota(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> None:
        raise ArithmeticError("no optimum")

    monkeypatch.setattr(Search, "decide", fail)
    jobs = [want("one", 2, 4, **SQRT), want("two", 2, 4, after_s=1, **SQRT)]
    world = make(*nodes(4), *jobs, settings=Settings(slot_s=10.0, quotas={"lab": 3}))
    await world.until(lambda: world.num_workers("one") == 3)
    await world.turns(10)
    assert world.num_workers("two") == 0


async def test_machines_that_only_the_planner_knows_to_be_of_no_use_hold_nobody_up(make: Make) -> None:
    """One has no cpu for a second worker beside another job's; the policy counts each job's alone."""
    cluster = nodes(3, accelerators=2)
    cluster[0][1]["status"]["allocatable"]["cpu"] = "1"
    world = make(*cluster, want("one", 1, 6, **SQRT), want("two", 1, 6, after_s=1, **SQRT))
    await world.until(lambda: world.num_workers("one") > 0 and world.num_workers("two") > 0)
    assert world.num_workers("one") + world.num_workers("two") >= 4


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
async def test_a_clock_that_jumps_moves_nobody_and_ends_nothing(make: Make, jump_s: float) -> None:
    world = await shrinking(make)
    await world.until(lambda: both_run(world))
    moves = len(world.moves)
    world.now += timedelta(seconds=jump_s)
    await world.turns(30)
    assert both_run(world)
    assert len(world.moves) == moves


@pytest.mark.parametrize("spec", [SQRT, UNMOVABLE], ids=["movable", "unmovable"])
async def test_a_cordon_takes_no_node_from_the_job_on_it(make: Make, spec: dict[str, Any]) -> None:
    world = make(*nodes(3), want("first", 2, 2, **spec))
    await world.until(lambda: world.num_workers("first") == 2)
    await world.turns(12)
    for name in "abc":
        world.cluster.objects["nodes", None, name]["spec"]["unschedulable"] = True
    world.add(want("second", 1, 2, after_s=20, **SQRT))
    await world.until(lambda: world.job("second").status.queue is not None)
    await world.turns(10)
    assert (world.num_workers("first"), world.num_workers("second")) == (2, 0)
    assert (world.job("first").status.attempt, world.planner.order("lab/first")) == (1, None)


@pytest.mark.parametrize(
    "kept_out", [{"unschedulable": True}, {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}], ids=["cordon", "taint"]
)
async def test_nodes_that_take_no_pods_are_no_room_for_the_urgent(make: Make, kept_out: dict[str, Any]) -> None:
    """What is free on them would be enough, and nobody had to make room."""
    cluster = nodes(4)
    for _, one in cluster[2:4]:
        one["spec"] |= kept_out
    world = make(*cluster, high(1000), want("low", 2, 2))
    await world.until(lambda: world.num_workers("low") == 2)
    await world.turns(12)
    world.add(want("urgent", 2, 2, after_s=20, priorityClassName="high"))
    await world.until(lambda: world.num_workers("urgent") == 2)
    assert world.why("low") == "PreemptedByPriority"


async def test_foreign_and_suspended_jobs_are_left_alone(make: Make) -> None:
    foreign = want("foreign", 1, 4, managedBy="example.com/other", **SQRT)
    world = make(*nodes(2), foreign, want("asleep", 1, 4, suspend=True, **SQRT), want("awake", 1, 2, **SQRT))
    await world.until(lambda: world.num_workers("awake") == 2)
    await world.turns(10)
    assert world.job("foreign").status.wire().get("conditions", []) == []
    assert (world.job("asleep").status.attempt, world.job("asleep").status.queue) == (0, None)


async def test_where_nobody_declares_anything_or_can_be_moved_the_queue_is_as_before(make: Make) -> None:
    world = make(*nodes(2), want("one", 2, 2, checkpoint=None), want("two", 2, 2, after_s=5, checkpoint=None))
    await world.until(lambda: world.num_workers("one") == 2 and world.why("two") != "")
    await world.turns(10)
    assert world.why("two") == "NotEnoughAccelerators"
    assert world.moves == []
    assert world.job("one").status.share is None


async def test_people_are_told_why(make: Make) -> None:
    world = await shrinking(make)
    await world.until(lambda: both_run(world))
    said = world.events("first")
    assert any("there start or grow lab/second" in message for message in said["Shrunk"]), said
    assert any("a fair share is 50%" in message for message in world.events("second")["Planned"])
    share = world.job("first").status.share
    assert share is not None
    assert (share.workers, share.fair) == (world.num_workers("first"), "0.5000")
