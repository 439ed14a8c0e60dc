"""Whole passes over a fake cluster: what is written, in which order, in whose name, and what a refusal leaves."""

from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from fake_cluster import FakeCluster
from hulk_operator.api import ConditionType, HulkJob
from hulk_operator.cluster import (
    HULK_JOBS,
    NODE_PROFILES,
    PODS,
    SECRETS,
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    LeaseLost,
    Listing,
    NamespaceEnds,
    NotFound,
    Object,
    QuotaExceeded,
    Unavailable,
)
from hulk_operator.observation import Expected, Observation, Preflight
from hulk_operator.pods import owner_reference
from hulk_operator.pods.orders import Orders
from hulk_operator.reconcile.recipe import KUEUE, RECIPE, SCALE_UP, writes
from hulk_operator.reconcile.reconciler import Reconciler
from hulk_operator.reconcile.types import (
    Calibration,
    FullPlan,
    KeepSpeeds,
    Memory,
    Order,
    Planned,
    Poll,
    Review,
    Timing,
    Unplanned,
    View,
)
from hulk_operator.status import holds
from hulk_operator.watched import Store
from hulk_operator.worker_client import MAX_KNOCK_SECONDS, MAX_SECONDS, ObserveError
from views import CALIBRATION, NODES, NOW, carry_out, decision, failure_of, full, job

KEY = "lab/demo"


class Plans:
    """A planning pass that has one answer."""

    def __init__(self, answer: Planned | Unplanned | None, preflight: FullPlan | None = None) -> None:
        self.answer, self.full = answer, preflight
        self.reviewed: Review | None = None
        self.ordered: Order | None = None
        self.requests: list[str] = []
        self.failure: Exception | None = None
        self.calibration = CALIBRATION

    def request(self, key: str) -> None:
        self.requests.append(key)

    def decision(self, key: str) -> Planned | Unplanned | None:
        return self.answer

    def review(self, key: str) -> Review | None:
        return self.reviewed

    def order(self, key: str) -> Order | None:
        return self.ordered

    def forget(self, key: str) -> None:
        if isinstance(self.answer, Planned):
            self.full = self.answer.full
        self.answer = None

    async def full_plan(self, one: HulkJob) -> FullPlan | None:
        return self.full

    async def calibrate(self, view: View, preflight: Preflight) -> Calibration | None:
        if self.failure is not None:
            raise self.failure
        return self.calibration


class Workers:
    """Rank 0 that answers a preflight, and what it says by address, or nothing; the dead are waited for."""

    def __init__(self, wait: Callable[[float], None]) -> None:
        self.started: list[int] = []
        self.orders: list[str] = []
        self.says: dict[str, Observation] = {}
        self.dead: set[str] = set()
        self.wait = wait

    async def metrics(self, address: str, expected: Expected) -> Observation:
        if address in self.dead:
            self.wait(MAX_SECONDS)
        if address not in self.says:
            raise ObserveError("silent")
        return self.says[address]

    async def preflight(self, address: str, expected: Expected) -> Preflight | None:
        return Preflight(1, (0.5, 0.5, 0.5))

    async def start(self, address: str, attempt: int, order: str) -> None:
        self.started.append(attempt)
        self.orders.append(order)

    async def answers(self, address: str) -> bool:
        if address in self.dead:
            self.wait(MAX_KNOCK_SECONDS)
        return address not in self.dead


class World:
    """An operator over a fake cluster, driven pass by pass."""

    def __init__(self, answer: Planned | Unplanned | None = None, **spec: Any) -> None:
        profiles = [(NODE_PROFILES, {"metadata": {"name": node}, "spec": {}}) for node in NODES]
        raw = job(**spec).wire()
        raw["status"] = {}
        self.cluster = FakeCluster((HULK_JOBS, raw), *profiles)
        self.store, self.plans, self.workers = Store(), Plans(answer), Workers(self._wait)
        self.acts, self.now = True, NOW
        self.woken: list[str] = []
        for name in NODES:
            self.store.nodes.put({"metadata": {"name": name, "resourceVersion": "1"}})
        self.store.jobs.put(self.cluster.objects["hulkjobs", "lab", "demo"])
        self.reconciler = Reconciler(
            self.cluster,
            self.store,
            self.plans,
            self.workers,
            lambda: self.now,
            Timing(),
            self._observed,
            lambda: self.acts,
            orders=Orders(b"key"),
            wake=self.woken.append,
        )

    def _wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    async def _observed(self, view: View, seen: Observation) -> None:
        assert seen in self.workers.says.values(), "nobody said so"

    async def passes(self, number: int = 1) -> float | None:
        """Some passes, each with what it asks of workers; when the last asks for the next.

        One that asks whether a pod would be taken is followed at once.
        """
        due = None
        for _ in range(number):
            asked = len(self.cluster.tried)
            due = await self._pass()
            if len(self.cluster.tried) > asked and due == 0:
                due = await self._pass()
        return due

    async def _pass(self) -> float | None:
        self.woken.clear()
        waits = [await self.reconciler.reconcile(KEY), await carry_out(self.reconciler.calls)]
        return 0.0 if self.woken else min((wait for wait in waits if wait is not None), default=None)

    def job(self) -> HulkJob:
        """The job as the API server has it."""
        return HulkJob.model_validate(self.cluster.objects["hulkjobs", "lab", "demo"])

    def pods_become(self, status: Callable[[int], Object]) -> None:
        """Every pod gets a status, bound to its node."""
        for (plural, _, _), pod in list(self.cluster.objects.items()):
            if plural == "pods":
                worker = int(pod["metadata"]["labels"]["hulk.dev/worker"])
                pod["spec"]["nodeName"] = NODES[worker]
                pod["status"] = status(worker)
                self.store.pods.put(self.cluster._store(PODS, pod))

    def end_pods(self) -> None:
        """Every pod is gone."""
        for (plural, namespace, name), pod in list(self.cluster.objects.items()):
            if plural == "pods":
                del self.cluster.objects[plural, namespace, name]
                self.store.pods.delete(pod)


def up(worker: int) -> Object:
    return {
        "phase": "Running",
        "podIP": f"10.0.0.{worker + 1}",
        "containerStatuses": [{"name": "worker", "state": {"running": {}}}],
    }


async def test_the_commit_comes_before_the_first_child_and_every_write_has_its_step() -> None:
    world = World(decision())
    await world.passes(2)
    order = [write for _, write in world.cluster.writes if write != "create events"]
    assert order[0] == "patch hulkjobs/status"  # that it was seen
    assert order[1:9] == [
        "patch hulkjobs/status",
        "create configmaps",
        "create services",
        "create networkpolicies",
        "create secrets",
        "create pods",
        "create pods",
        "create pods",
    ]
    assert set(world.cluster.writes) <= set(writes())


async def test_a_pass_that_changes_nothing_writes_nothing() -> None:
    world = World(decision())
    await world.passes(3)
    written = len(world.cluster.writes)
    await world.passes(3)
    assert len(world.cluster.writes) == written


async def test_a_commit_on_an_old_version_creates_nothing() -> None:
    world = World(decision())
    await world.cluster.patch(HULK_JOBS, "demo", "lab", {"metadata": {"labels": {"changed": "meanwhile"}}})
    assert await world.passes() == pytest.approx(0.1)
    assert world.job().status.attempt == 0
    assert not [write for _, write in world.cluster.writes if write == "create pods"]


async def test_a_preflight_becomes_a_prediction_and_speeds_before_the_start() -> None:
    world = World(decision())
    world.plans.answer = Planned(3, full(calibrated=False), decision().summary, None)
    await world.passes(2)
    world.pods_become(up)
    await world.passes(3)
    assert world.job().status.prediction is not None
    assert world.workers.started == []
    speeds = world.cluster.objects["nodeprofiles", None, "node-0"]["status"]["accelerators"]
    assert [(entry["product"], entry["flopsPerSecond"]) for entry in speeds] == [("lab-cpu", 10**9)]
    await world.passes(2)
    assert world.workers.started == [1]
    pod = world.cluster.objects["pods", "lab", "demo-1-0"]
    (digest,) = [
        entry["value"] for entry in pod["spec"]["containers"][0]["env"] if entry["name"] == "HULK_START_DIGEST"
    ]
    assert sha256(world.workers.orders[0].encode()).hexdigest() == digest, "the pods know the operator's order"


@pytest.mark.parametrize(
    ("name", "new", "failure", "kept"),
    [
        ("a node that was not known", {"node-1"}, None, ["node-1"]),
        ("all were known", set(), None, []),
        ("the model is gone", {"node-1"}, NotFound(404, "NotFound", "no ConfigMap"), []),
    ],
)
async def test_first_steps_become_speeds_of_nodes_of_which_none_is_known(
    name: str, new: set[str], failure: Exception | None, kept: list[str]
) -> None:
    world = World(decision())
    world.plans.calibration = replace(
        CALIBRATION, flops_per_s=dict.fromkeys(NODES, 2e9), products=dict.fromkeys(NODES, "x"), new=frozenset(new)
    )
    world.plans.failure = failure
    step = next(step for step in RECIPE if step.name == "preflight")
    keep = KeepSpeeds(Preflight(1, (0.5, 0.5, 0.5)))
    await world.reconciler._executor.run(await world.reconciler._gather(world.job()), [(step, keep)])
    found = {node: world.cluster.objects["nodeprofiles", None, node].get("status") for node in NODES}
    assert [node for node, status in found.items() if status] == kept, name
    assert world.reconciler.memory[KEY].kept == 1


@pytest.mark.parametrize(
    ("name", "says", "believed"),
    [
        ("nobody answers", {}, None),
        ("rank 0 alone", {0: Observation(1, step=3, epoch=0)}, 0),
        ("others have nothing to tell", {0: Observation(1, step=3, epoch=0), 1: Observation(), 2: Observation()}, 0),
        ("rank 0 is silent", {1: Observation(1, step=4, epoch=1), 2: Observation()}, 1),
        ("rank 0 was cut off, and does not know", {0: Observation(1, step=3), 2: Observation(1, step=4, epoch=1)}, 2),
        ("the latest epoch", {1: Observation(1, step=4, epoch=1), 2: Observation(1, step=5, epoch=2)}, 2),
        ("another attempt's", {0: Observation(1, step=3), 2: Observation(9, step=4, epoch=1)}, 0),
    ],
)
async def test_the_rank_of_the_latest_membership_is_believed(
    name: str, says: dict[int, Observation], believed: int | None
) -> None:
    world = World(decision())
    world.workers.says = {f"10.0.0.{worker + 1}:9400": seen for worker, seen in says.items()}
    poll = Poll("10.0.0.1:9400", 1, preflight=False, others=("10.0.0.2:9400", "10.0.0.3:9400"))
    observe = next(step for step in RECIPE if step.name == "observe")
    world.reconciler.calls.ask(await world.reconciler._gather(world.job()), [(observe, poll)])
    await carry_out(world.reconciler.calls)
    sighting = world.reconciler.memory[KEY].sighting
    assert sighting is not None
    assert sighting.observation == (None if believed is None else says[believed]), name
    assert bool(sighting.error) is (believed is None)


@pytest.mark.parametrize("dead", [0, 1], ids=["rank 0's", "another one's"])
async def test_a_node_that_falls_silent_is_lost_within_ten_seconds(dead: int) -> None:
    """The clock goes on by what passes ask for and by the polls that wait for the dead."""
    world, timing = World(decision()), Timing()
    await world.passes(3)
    world.pods_become(lambda worker: {"phase": "Running", "podIP": f"10.0.0.{worker + 1}"})
    rank_0, others = Observation(1, step=3, step_s=0.5, epoch=0), Observation(own_attempt=1, own_step=4)
    world.workers.says = {"10.0.0.1:9400": rank_0, "10.0.0.2:9400": others, "10.0.0.3:9400": others}
    await world.passes(4)
    world.now += timedelta(seconds=timing.poll_s)
    assert await world.passes() == 0.0  # at once when workers have answered
    assert await world.passes() == timing.poll_s
    killed, waited = world.now, []
    world.workers.dead = {f"10.0.0.{dead + 1}:9400"}
    del world.workers.says[f"10.0.0.{dead + 1}:9400"]
    world.now += timedelta(seconds=timing.poll_s)
    while world.job().status.last_failure is None:
        waited.append(await world.passes() or 0.0)
        world.now += timedelta(seconds=waited[-1])
    assert waited == [0.0] * 5  # a knock at the dead takes as long as the pause
    assert (world.now - killed).total_seconds() == 7
    last = failure_of(world.job().status)
    assert (last.reason, last.node) == ("NodeLost", NODES[dead])
    assert f"after step {3 if dead else 4}" in last.message
    assert [node.name for node in world.job().status.avoided_nodes] == [NODES[dead]]


async def test_a_quota_halfway_releases_the_gang_and_keeps_the_servers_words() -> None:
    world = World(decision())
    words = 'pods "demo-1-2" is forbidden: exceeded quota: team, requested: pods=1, used: pods=2, limited: pods=2'

    def refuse(write: str, body: Object) -> ClusterError | None:
        last = write == "create pods" and body["metadata"]["name"] == "demo-1-2"
        return QuotaExceeded(403, "Forbidden", words) if last else None

    world.cluster.refuse = refuse
    await world.passes(3)
    found = world.job().status
    assert not holds(found, "Planned")
    assert found.last_failure is not None
    assert (found.last_failure.reason, found.last_failure.message) == ("QuotaExceeded", words)
    assert (found.failures, found.disruptions) == (0, 0)
    assert ("sweep", "delete pods") in world.cluster.writes


def secrets_of(world: World) -> list[bytes]:
    """The values of all Secrets."""
    found = [body for (plural, _, _), body in world.cluster.objects.items() if plural == "secrets"]
    return [b64decode(secret["data"]["secret"]) for secret in found]


async def test_a_job_gets_one_secret_of_32_random_bytes_and_keeps_it_over_its_attempts() -> None:
    world, other = World(decision()), World(decision())
    await world.passes(2)
    await other.passes(2)
    (value,), (another,) = secrets_of(world), secrets_of(other)
    assert len(value) == 32
    assert value != another
    world.pods_become(up)
    await world.passes()
    world.pods_become(lambda worker: {"phase": "Failed", "reason": "Evicted"})
    await world.passes()
    world.plans.answer = decision(2)
    world.store.pods.replace(Listing((), "1000"))
    await world.passes(4)
    assert world.job().status.attempt == 2
    assert world.cluster.writes.count(("deploy", "create secrets")) == 2  # the second is told that it is there
    assert secrets_of(world) == [value]


async def test_the_stock_ring_needs_no_secret_unless_it_signs_checkpoints() -> None:
    saves = World(decision(), sync={"mode": "ring"}, checkpoint={"storage": {"url": "s3://bucket"}})
    await saves.passes(3)
    assert len(secrets_of(saves)) == 1
    world = World(decision(), sync={"mode": "ring"})
    await world.passes(3)
    assert secrets_of(world) == []
    assert len(world.store.pods_of(KEY)) == 3


async def test_the_secret_of_a_deleted_job_of_the_same_name_is_not_taken_for_its_own() -> None:
    world = World(decision())
    await world.cluster.create(
        SECRETS, {"metadata": {"name": "demo-peers-u0", "namespace": "lab"}, "data": {"secret": ""}}
    )
    await world.passes(3)
    assert ("secrets", "lab", "demo-peers-u1") in world.cluster.objects


async def test_an_operator_that_may_not_make_a_secret_releases_the_gang_with_the_servers_words() -> None:
    world = World(decision())
    words = 'secrets is forbidden: User "hulk-operator" cannot create resource "secrets" in API group ""'
    refusal = Forbidden(403, "Forbidden", words)
    world.cluster.refuse = lambda write, _: refusal if write == "create secrets" else None
    await world.passes(3)
    found = world.job().status
    assert not holds(found, "Planned")
    assert (found.last_failure or pytest.fail("no failure")).message == words
    assert not [write for _, write in world.cluster.writes if write == "create pods"]


async def test_in_a_namespace_that_is_being_deleted_a_job_waits_and_tries_nothing_else() -> None:
    world = World(decision())
    await world.passes()
    words = "pods is forbidden: unable to create new content in namespace lab because it is being terminated"
    ends = NamespaceEnds(403, "Forbidden", words)
    world.cluster.refuse = lambda write, _: ends if write.startswith("create") else None
    for _ in range(3):
        assert await world.passes() == 30.0
    found = world.job().status
    assert (found.attempt, found.last_failure, holds(found, "Planned")) == (1, None, True)
    assert {(entry.type, entry.reason, entry.message) for entry in found.conditions if entry.status == "False"} == {
        ("Deployed", "NamespaceTerminating", words)
    }
    assert world.cluster.writes.count(("status", "patch hulkjobs/status")) == 3  # seen, committed, why it waits


async def test_a_server_that_is_down_is_no_reason_to_give_the_plan_up() -> None:
    world = World(decision())
    await world.passes()
    world.cluster.refuse = lambda write, body: Unavailable(503, "", "down") if write == "create pods" else None
    with pytest.raises(Unavailable):
        await world.passes()
    world.cluster.refuse = lambda write, body: None
    await world.passes()
    assert world.job().status.attempt == 1
    assert len(world.store.pods_of(KEY)) == 3


async def test_what_an_earlier_pass_created_is_taken_over_but_nothing_of_another_owner() -> None:
    world = World(decision())
    await world.passes(2)
    world.store.pods.replace(Listing((), "1000"))  # the watch has told nothing yet
    await world.passes()
    assert len(world.store.pods_of(KEY)) == 3
    stranger = World(decision())
    await stranger.cluster.create(PODS, {"metadata": {"name": "demo-1-1", "namespace": "lab"}})
    await stranger.passes()
    await stranger.passes()
    assert (stranger.job().status.last_failure or pytest.fail("no failure")).reason == "NameTaken"
    assert not holds(stranger.job().status, "Planned")
    older = World(decision())
    owner = {**owner_reference(older.job()), "uid": "before"}
    await older.cluster.create(PODS, {"metadata": {"name": "demo-1-1", "namespace": "lab", "ownerReferences": [owner]}})
    await older.passes()
    with pytest.raises(Conflict):  # a predecessor's child goes by itself
        await older.passes()


@pytest.mark.parametrize("write", ["delete pods", "patch nodeprofiles/status"])
async def test_a_refusal_that_is_not_about_the_gang_does_not_release_it(write: str) -> None:
    world = World(decision())
    world.plans.answer = Planned(3, full(calibrated=False), decision().summary, None)
    await world.passes(2)
    world.pods_become(up)
    await world.passes()
    world.reconciler.memory.clear()  # sweeps again
    world.cluster.refuse = lambda sent, _: Forbidden(403, "Forbidden", "no") if sent == write else None
    for _ in range(4):
        with suppress(Forbidden):
            await world.passes()
    found = world.job().status
    assert holds(found, "Planned")
    assert holds(found, "Running")
    assert (found.prediction is not None) is (write == "patch nodeprofiles/status")


async def test_an_operator_whose_lease_is_over_deletes_nothing() -> None:
    world = World(decision())
    await world.passes(2)
    world.acts = False
    world.reconciler.memory.clear()
    with pytest.raises(LeaseLost):
        await world.passes()
    assert not [write for _, write in world.cluster.writes if write.startswith("delete")]


async def test_nothing_is_remembered_of_a_job_that_had_the_same_name() -> None:
    world = World(decision())
    world.plans.answer = Planned(3, full(calibrated=False), decision().summary, None)
    await world.passes(2)
    world.pods_become(up)
    await world.passes(4)
    assert world.workers.started == [1]
    raw = world.cluster.objects["hulkjobs", "lab", "demo"]
    raw["metadata"] |= {"uid": "u2", "resourceVersion": "5000"}
    world.store.jobs.put(raw)
    again = world.store.job(KEY) or pytest.fail("no job")
    known = (await world.reconciler._gather(again)).memory
    assert known == Memory("u2")


async def test_a_model_that_is_gone_does_not_stop_the_passes() -> None:
    world = World(decision())
    world.plans.answer = Planned(3, full(calibrated=False), decision().summary, None)
    world.plans.failure = NotFound(404, "NotFound", "no configmap")
    await world.passes(2)
    world.pods_become(up)
    assert await world.passes(6) is not None
    assert world.job().status.prediction is None


async def test_events_are_told_once_and_never_hold_up_a_job() -> None:
    world = World(Unplanned(3, "NotEnoughAccelerators", "Needs 3, has 2."))
    await world.passes(3)
    told = [body for (plural, _, _), body in world.cluster.objects.items() if plural == "events"]
    assert [(event["type"], event["reason"]) for event in told] == [("Warning", "NotEnoughAccelerators")]
    silent = World(decision())
    silent.cluster.refuse = lambda write, _: AlreadyExists(409, "", "") if write == "create events" else None
    await silent.passes()
    assert silent.job().status.attempt == 1


async def test_a_deleted_job_is_forgotten() -> None:
    world = World(decision())
    world.store.jobs.delete({**world.cluster.objects["hulkjobs", "lab", "demo"]})
    assert await world.passes() is None
    assert world.cluster.writes == []
    assert world.plans.answer is None


def test_steps_that_write_say_what() -> None:
    writing = {step.name for step in RECIPE if step.writes}
    assert writing - KUEUE - SCALE_UP == {"sweep", "finish", "deploy", "preflight", "observe"}


async def test_a_gang_that_hangs_is_ended_by_what_its_logs_say_whatever_their_clocks_do() -> None:
    world = World(decision(), runPolicy={"stallSeconds": 60})
    await world.passes(2)
    world.pods_become(up)
    for worker in range(3):
        world.cluster.logs[f"demo-1-{worker}"] = ["2001-01-01T00:00:00Z step 4"]
    for second in range(120):  # it prints, with a clock that is years off; then it does not any more
        if second < 60:
            world.cluster.logs["demo-1-0"].append(f"2001-01-01T00:00:{second:02}Z step 5")
        await world.passes()
        world.now += timedelta(seconds=1)
    assert holds(world.job().status, ConditionType.RUNNING), "60 s are not over"
    world.cluster.writing.add("demo-1-2")
    for _ in range(20):
        await world.passes()
        world.now += timedelta(seconds=1)
    failure = failure_of(world.job().status)
    assert (failure.reason, world.job().status.failures) == ("Stalled", 1)
    assert "silent: rank 0, rank 1 of 3 workers" in failure.message
    assert "rank 1 (node node-1): 2001-01-01T00:00:00Z step 4" in failure.message


async def test_a_log_that_cannot_be_read_ends_nothing() -> None:
    world = World(decision(), runPolicy={"stallSeconds": 60})
    await world.passes(2)
    world.pods_become(up)
    for _ in range(200):
        await world.passes()
        world.now += timedelta(seconds=1)
    assert holds(world.job().status, ConditionType.RUNNING)
