"""Who may take the place of others in the queue: as Kubernetes lets a PriorityClass do it, and no further."""

import threading
from typing import Any

import pytest
from hulk_operator.api import HulkJob
from hulk_operator.cluster import RESOURCE_QUOTAS, ApiResource, Object
from hulk_operator.inputs.priority import NO_CLASS, class_of, priority_class
from hulk_operator.inputs.resource_quotas import Asking, admitted, first_objects, resource_quota
from hulk_operator.planning.dispatcher import Dispatcher
from hulk_operator.planning.process import Competition, Search
from hulk_operator.planning.queue_decision import Contest
from hulk_placement.fleet.types import Allocation
from queue_world import Make, QueueWorld, high, nodes, want

TURNS = 30  # in which a job that may would have stopped another
IN_HIGH = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> tuple[ApiResource, Object]:
    meta = {"name": "limit", "namespace": "evil"}
    return RESOURCE_QUOTAS, {
        "metadata": meta,
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used or {}},
    }


async def victim(make: Make, *objects: tuple[ApiResource, Object], **spec: Any) -> QueueWorld:
    """A job of another namespace has both nodes, for so long that it may be moved."""
    world = make(*nodes(2), *objects, want("victim", 2, 2, **spec))
    await world.until(lambda: world.num_workers("victim") == 2)
    await world.turns(12)
    return world


async def goes_on(world: QueueWorld, *others: str) -> None:
    await world.turns(TURNS)
    assert world.num_workers("victim") == 2
    assert world.job("victim").status.attempt == 1
    assert [world.num_workers(name) for name in others] == [0] * len(others)


async def test_a_class_that_never_preempts_stops_nobody_and_goes_first_when_there_is_room(make: Make) -> None:
    polite = high(1000, preemptionPolicy="Never")
    world = await victim(make, polite, high(500, "middle"), priorityClassName="middle")
    world.add(want("older", 2, 2, after_s=10))
    world.add(want("polite", 2, 2, after_s=20, priorityClassName="high"))
    await goes_on(world, "older", "polite")
    waits = world.job("polite").status.queue
    assert waits is not None
    assert waits.message.endswith("it stops no other job: PriorityClass high never preempts")
    world.change("victim", {"suspend": True})
    await world.until(lambda: world.num_workers("polite") == 2)
    assert world.num_workers("older") == 0


async def test_a_class_that_never_preempts_takes_nothing_of_others_to_grow(make: Make) -> None:
    world = make(*nodes(4), high(1000, preemptionPolicy="Never"), want("victim", 2, 2))
    await world.until(lambda: world.num_workers("victim") == 2)
    world.add(want("polite", 1, 4, after_s=5, priorityClassName="high"))
    await world.until(lambda: world.num_workers("polite") == 2)
    await world.turns(TURNS)
    assert (world.num_workers("victim"), world.num_workers("polite")) == (2, 2)


async def test_a_class_that_never_preempts_has_its_turn_though_others_are_stopped_at_the_same_time(make: Make) -> None:
    """`urgent` needs the victim's machine, `polite` finds room on the other one, before `plain` by its class."""
    classes = [high(1000, preemptionPolicy="Never"), high(2000, "urgent"), high(-5, "low")]
    large, *links = nodes(1, accelerators=2)
    world = make(large, *links, *classes, want("victim", 2, 2, priorityClassName="low"))
    await world.until(lambda: world.num_workers("victim") == 2)
    await world.turns(12)
    both = {"min": 1, "max": 1, "acceleratorsPerWorker": 2}
    world.add(want("plain", 1, 1, after_s=19))
    world.add(want("polite", 1, 1, after_s=20, priorityClassName="high"))
    world.add(want("urgent", 1, 1, after_s=20, priorityClassName="urgent", workers=both))
    for one in nodes(2)[1:]:
        world.add(one)
    await world.until(lambda: world.num_workers("plain") + world.num_workers("polite") > 0)
    assert (world.num_workers("polite"), world.num_workers("plain")) == (1, 0)
    await world.until(lambda: world.num_workers("urgent") == 1)
    assert (world.num_workers("polite"), world.num_workers("victim")) == (1, 0)


async def test_a_class_below_the_default_one_stops_no_job_without_a_class(make: Make) -> None:
    """A pod without a class has the default's priority: 500 is less, however it is asked for."""
    world = await victim(make, high(1000, "usual", globalDefault=True), high(500))
    world.add(want("pushy", 2, 2, after_s=20, priorityClassName="high", namespace="evil"))
    await goes_on(world, "pushy")


async def test_a_job_without_a_class_stops_those_below_the_default_one(make: Make) -> None:
    world = make(*nodes(2), high(1000, "usual", globalDefault=True), high(500, "low"))
    world.add(want("low", 2, 2, priorityClassName="low"))
    await world.until(lambda: world.num_workers("low") == 2)
    await world.turns(12)
    world.add(want("usual", 2, 2, after_s=20))
    await world.until(lambda: world.num_workers("usual") == 2)
    assert world.why("low") == "PreemptedByPriority"


async def test_a_default_class_that_never_preempts_holds_for_jobs_without_a_class(make: Make) -> None:
    usual = high(1000, "usual", globalDefault=True, preemptionPolicy="Never")
    world = make(*nodes(2), usual, high(500, "low"), want("victim", 2, 2, priorityClassName="low"))
    await world.until(lambda: world.num_workers("victim") == 2)
    await world.turns(12)
    world.add(want("usual", 2, 2, after_s=20))
    await goes_on(world, "usual")


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("none of the class", quota({"pods": "0"}, scopeSelector=IN_HIGH)),
        ("fewer than the job has at least", quota({"pods": "1"}, scopeSelector=IN_HIGH)),
        ("accelerators that are used up", quota({"requests.nvidia.com/gpu": "4"}, {"requests.nvidia.com/gpu": "3"})),
        ("limits that are used up", quota({"limits.cpu": "9"}, {"limits.cpu": "7500m"})),
        ("Services that are used up", quota({"services": "5"}, {"services": "5"})),
        ("no ConfigMaps at all", quota({"count/configmaps": "0"})),
    ],
)
async def test_a_class_that_the_namespaces_quota_does_not_admit_stops_nobody(
    make: Make, name: str, limit: tuple[ApiResource, Object]
) -> None:
    """The API server would refuse the pods, but only when others have been stopped for them."""
    world = await victim(make, high(1000), limit)
    world.add(want("pushy", 2, 2, after_s=20, priorityClassName="high", namespace="evil", template=LIMITED))
    await goes_on(world, "pushy")
    more = {"pods": "9", "requests.nvidia.com/gpu": "9"}
    world.cluster._store(*quota(more, scopeSelector=IN_HIGH))
    await world.until(lambda: world.num_workers("pushy") == 2, name)


LIMITED = {"spec": {"containers": [{"name": "w", "image": "i", "resources": {"limits": {"cpu": "1"}}}]}}


def granted(namespace: str, num_pods: int = 9, **spec: Any) -> tuple[ApiResource, Object]:
    kind, body = quota({"pods": str(num_pods)}, **(spec or {"scopeSelector": IN_HIGH}))
    return kind, {**body, "metadata": {"name": "grant", "namespace": namespace}}


@pytest.mark.parametrize(
    ("name", "of", "objects"),
    [
        ("another namespace is granted the class", "high", [granted("team")]),
        ("its own quota is for all pods", "high", [granted("team"), quota({"pods": "9"})]),
        ("a class of Kubernetes, which every cluster has", "system-node-critical", []),
        ("quotas of its own grant and deny it", "high", [granted("evil"), quota({"pods": "0"}, scopeSelector=IN_HIGH)]),
    ],
)
async def test_a_class_that_is_not_granted_to_the_namespace_ranks_as_none(
    make: Make, name: str, of: str, objects: list[tuple[ApiResource, Object]]
) -> None:
    objects = [high(1000), high(500, "middle"), high(2_000_000_000, "system-node-critical"), *objects]
    world = await victim(make, *objects, priorityClassName="middle")
    world.add(want("pushy", 2, 2, after_s=20, priorityClassName=of, namespace="evil"))
    await goes_on(world, "pushy")
    waits = world.job("pushy").status.queue
    assert waits is not None
    assert any(why in waits.message for why in ("no ResourceQuota of namespace evil grants it", "admit 0 pods")), name


@pytest.mark.parametrize(
    ("name", "objects"),
    [
        ("no quota names classes", []),
        ("it is granted by name", [granted("team"), granted("evil")]),
        ("every class is granted", [granted("team"), granted("evil", scopes=["PriorityClass"])]),
        ("another namespace is denied it", [granted("team", 0)]),
    ],
)
async def test_a_class_that_the_namespace_may_use_stops_others(
    make: Make, name: str, objects: list[tuple[ApiResource, Object]]
) -> None:
    world = await victim(make, high(1000), *objects)
    world.add(want("pushy", 2, 2, after_s=20, priorityClassName="high", namespace="evil"))
    await world.until(lambda: world.num_workers("pushy") == 2, name)
    assert world.why("victim") == "PreemptedByPriority"


async def test_limits_that_cannot_be_read_hold_up_nobody_else(make: Make) -> None:
    world = await victim(make, high(1000))
    odd = {"limits": {"cpu": "two"}, "requests": {"cpu": "1"}}
    template = {"spec": {"containers": [{"name": "w", "image": "i", "resources": odd}]}}
    world.add(want("odd", 1, 1, after_s=20, template=template))
    world.add(want("pushy", 2, 2, after_s=20, priorityClassName="high"))
    await world.until(lambda: world.num_workers("pushy") == 2)


async def test_many_jobs_together_stop_no_more_than_the_quota_admits(make: Make) -> None:
    """Each of them alone would be admitted."""
    world = make(*nodes(6), high(1000), quota({"pods": "2"}, scopeSelector=IN_HIGH))
    for name in ("victim", "other", "third"):
        world.add(want(name, 2, 2))
    await world.until(lambda: all(world.num_workers(name) == 2 for name in ("victim", "other", "third")))
    await world.turns(12)
    for name in ("x", "y", "z"):
        world.add(want(name, 2, 2, after_s=20, priorityClassName="high", namespace="evil"))

    def running() -> dict[str, int]:
        num_pods = sum(key[:2] == ("pods", "evil") for key in world.cluster.objects)
        world.cluster._store(*quota({"pods": "2"}, {"pods": str(num_pods)}, scopeSelector=IN_HIGH))
        return {name: world.num_workers(name) for name in ("x", "y", "z", "victim", "other", "third")}

    await world.until(lambda: running()["x"] == 2)
    for _ in range(TURNS):
        assert (running()["y"], running()["z"]) == (0, 0)
        await world.turn()
    await world.until(lambda: sorted(running().values()) == [0, 0, 0, 2, 2, 2])
    assert running()["x"] == 2


async def test_a_job_grows_no_further_than_the_quota_admits(make: Make) -> None:
    """With the higher class it would take all six, of which the API server admits three."""
    world = make(*nodes(6), high(1000), quota({"pods": "3"}, scopeSelector=IN_HIGH), want("victim", 1, 6))
    await world.until(lambda: world.num_workers("victim") == 6)
    await world.turns(12)
    world.add(want("pushy", 1, 6, after_s=20, priorityClassName="high", namespace="evil"))
    await world.until(lambda: world.num_workers("pushy") == 3)
    await world.until(lambda: world.num_workers("victim") == 3)


@pytest.mark.parametrize(
    ("spec", "of", "expected"),
    [
        ({}, "high", 1),
        ({}, "", 1),
        ({"scopeSelector": IN_HIGH}, "high", 1),
        ({"scopeSelector": IN_HIGH}, "low", 4),
        ({"scopeSelector": IN_HIGH}, "", 4),
        ({"scopes": ["PriorityClass"]}, "low", 1),
        ({"scopes": ["PriorityClass"]}, "", 4),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]}}, "", 1),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]}}, "x", 4),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "NotIn", "values": ["x"]}]
                }
            },
            "x",
            4,
        ),
    ],
)
def test_a_quota_counts_the_pods_of_its_classes(spec: dict[str, Any], of: str, expected: int) -> None:
    found = resource_quota(quota({"pods": "3"}, {"pods": "2"}, **spec)[1])
    assert admitted([Asking("a/x", "a", of, 4, {"pods": 1})], {"a": [found]}) == {"a/x": expected}


def test_quotas_with_other_scopes_are_left_to_the_api_server() -> None:
    found = resource_quota(quota({"pods": "0"}, scopes=["BestEffort"])[1])
    assert admitted([Asking("a/x", "a", "high", 4, {"pods": 1})], {"a": [found]}) == {"a/x": 4}


def test_all_that_a_pod_takes_is_counted() -> None:
    hard = {
        "requests.cpu": "3",
        "count/pods": "9",
        "requests.nvidia.com/gpu": "8",
        "limits.memory": "1",
        "limits.cpu": "8",
        "services": "1",
    }
    found = {"a": [resource_quota(quota(hard, {"requests.cpu": "500m", "limits.cpu": "3"})[1])]}
    each = {"cpu": 1000, "memory": 1 << 30, "pods": 1, "nvidia.com/gpu": 2}
    assert admitted([Asking("a/x", "a", "", 9, each)], found) == {"a/x": 2}
    assert admitted([Asking("a/x", "a", "", 9, {**each, "limits.cpu": 4000})], found) == {"a/x": 1}
    assert admitted([Asking("a/x", "a", "", 9, {**each, "limits.memory": 2})], found) == {"a/x": 0}
    two = [Asking(key, "a", "", 1, {"pods": 1}, {"services": 1}) for key in ("a/x", "a/y")]
    assert admitted(two, found) == {"a/x": 1, "a/y": 0}, "the first one takes the only Service"


def test_only_a_jobs_first_attempt_needs_objects_that_are_not_there() -> None:
    body = want("x", 1, 1)[1]
    assert first_objects(HulkJob.model_validate(body)) == {
        "configmaps": 1,
        "services": 1,
        "secrets": 1,
        "networkpolicies.networking.k8s.io": 1,
    }
    assert first_objects(HulkJob.model_validate({**body, "status": {"attempt": 1}})) == {}


def test_the_default_class_is_the_smaller_one_where_there_are_two() -> None:
    classes = {name: priority_class(high(value, name, globalDefault=True)[1]) for name, value in (("a", 5), ("b", 3))}
    found = class_of(None, classes)
    assert found is not None
    assert (found.name, found.preempts) == ("b", True)
    assert class_of(None, {}) is NO_CLASS
    assert class_of("c", classes) is None


async def test_a_decision_about_many_jobs_is_prepared_and_read_beside_the_event_loop(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that are alike also share one mapping of candidates: with thousands of nodes it is all that there is."""
    asked: list[Competition] = []
    threads: dict[str, threading.Thread] = {}
    decide, judge, prepare = Search.decide, Contest.judge, Dispatcher._admitted

    async def decided(self: Search, competition: Competition) -> Allocation:
        asked.append(competition)
        return await decide(self, competition)

    def judged(self: Contest, found: Allocation) -> Any:
        threads["read"] = threading.current_thread()
        return judge(self, found)

    def prepared(self: Dispatcher, *of: Any) -> Any:
        threads["prepared"] = threading.current_thread()
        return prepare(self, *of)

    monkeypatch.setattr(Search, "decide", decided)
    monkeypatch.setattr(Contest, "judge", judged)
    monkeypatch.setattr(Dispatcher, "_admitted", prepared)
    world = await victim(make)
    for number in range(3):
        world.add(want(f"later-{number}", 2, 2, after_s=20))
    await world.until(lambda: any(len(one.jobs) >= 3 for one in asked) and len(threads) == 2)
    of_waiting = [id(job.candidates) for job in asked[-1].jobs if job.key != "lab/victim"]
    assert len(of_waiting) >= 3
    assert len(set(of_waiting)) == 1
    assert threading.main_thread() not in threads.values()
