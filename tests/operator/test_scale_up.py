"""Jobs that ask for nodes: what lacks, what is made, whom it counts for, and when it ends, pass by pass."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fake_cluster import selected
from hulk_operator import names
from hulk_operator.api import Condition, ConditionType, HulkJob
from hulk_operator.cluster import (
    HULK_JOBS,
    HULK_TOPOLOGIES,
    PODS,
    PROVISIONING_REQUESTS,
    ClusterError,
    Forbidden,
    NotFound,
    Object,
    QuotaExceeded,
)
from hulk_operator.inputs.pod_size import requests
from hulk_operator.inputs.shortage import Shortage, shortage_words
from hulk_operator.inputs.topology import worker_amounts
from hulk_operator.pods import is_placeholder, is_worker, owner_reference, placeholders, pods
from hulk_operator.reconcile.recipe import SCALE_UP, decide, writes
from hulk_operator.reconcile.types import Create, Memory, Place, Unplanned
from hulk_operator.status import condition, holds
from hulk_operator.watched import Store
from hulk_placement.fleet.types import Settings
from queue_world import QueueWorld, nodes, want
from test_kueue_pass import QueueWorld as QueueOfKueue
from test_kueue_workload import condition as said
from test_planning import job as planned_job
from test_planning import machines, node, planning_over
from test_reconcile_pass import KEY, World, up
from views import GENERATION, NOW, decision, full, job, plan, status, view

LACK = Shortage(3, 1)
LACKS = Unplanned(GENERATION, "NotEnoughAccelerators", "1 is free, and 3 are needed.", shortage=LACK)
BOUND_S = 600
TERMS = ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")


class ScaleUpWorld(World):
    """A job that may ask for nodes, of which two are lacking."""

    def __init__(self, mode: str = "placeholders", **spec: Any) -> None:
        policy = {"scaleUpTimeoutSeconds": BOUND_S}
        super().__init__(LACKS, placement={"allowScaleUp": mode}, runPolicy=policy, **spec)

    async def passes(self, number: int = 1) -> float | None:
        """What is deleted is gone at the next pass, when the planning pass has answered again."""
        due = None
        for _ in range(number):
            due = await super().passes()
            for key, body in list(self.cluster.objects.items()):
                if key[0] == "pods" and body.get("deleted"):
                    del self.cluster.objects[key]
                    self.store.pods.delete(body)
        return due

    def made(self, plural: str = "pods") -> list[Object]:
        """Objects of a kind."""
        return [body for (kind, _, _), body in self.cluster.objects.items() if kind == plural]

    def asks(self) -> Condition | None:
        """Whether the job asks for nodes, and why."""
        return condition(self.job().status, ConditionType.SCALING_UP)

    def why(self) -> tuple[str, str]:
        """The condition in short."""
        found = self.asks()
        assert found is not None
        return found.status, found.reason

    def bind(self, number: int, node_name: str) -> None:
        """kube-scheduler finds a node for a placeholder."""
        body = self.cluster.objects["pods", "lab", names.placeholder("demo", number)]
        body["spec"]["nodeName"] = node_name
        self.store.pods.put(self.cluster._store(PODS, body))

    def change(self, **spec: Any) -> None:
        """Somebody changes the job."""
        body = self.cluster.objects["hulkjobs", "lab", "demo"]
        body["spec"] |= spec
        body["metadata"]["generation"] += 1
        self.store.jobs.put(self.cluster._store(HULK_JOBS, body))

    def deletes(self) -> None:
        """From now on collections are deleted in truth."""

        async def delete_all(resource: Any, namespace: str, *, labels: str) -> None:
            self.cluster._write(f"delete {resource.plural}", {"labels": labels})
            for body in self.made(resource.plural):
                if selected(body, labels):
                    body["deleted"] = True

        self.cluster.delete_all = delete_all  # type: ignore[method-assign]


@pytest.fixture
def world() -> ScaleUpWorld:
    found = ScaleUpWorld()
    found.deletes()
    return found


async def test_placeholders_ask_for_the_gangs_room_and_are_gone_before_its_pods(world: ScaleUpWorld) -> None:
    await world.passes(2)
    assert [body["metadata"]["name"] for body in world.made()] == [f"demo-scaleup-{number}" for number in range(3)]
    assert world.why() == ("True", "Placeholders")
    planned = condition(world.job().status, ConditionType.PLANNED)
    assert planned is not None
    assert planned.message.startswith("1 is free, and 3 are needed. Room is lacking for 2 of 3 workers, each of nvidia")
    world.bind(0, "node-0")
    await world.passes()
    assert "3 placeholder pods ask for room, 1 found a node" in (world.asks() or Condition).message
    world.plans.answer = decision()
    await world.passes()  # commits
    await world.passes()
    assert world.why() == ("False", "RoomFound")
    assert world.made() == [], "neither placeholders nor workers"
    await world.passes()
    assert all(is_worker(body) for body in world.made())
    assert len(world.made()) == 3
    world.pods_become(up)
    await world.passes()
    assert holds(world.job().status, ConditionType.RUNNING)
    assert set(world.cluster.writes) <= set(writes())
    assert {step for step, write in world.cluster.writes if write == "delete pods"} <= SCALE_UP | {"sweep"}


async def test_a_job_that_may_not_ask_says_what_it_lacks_and_makes_nothing() -> None:
    world = ScaleUpWorld("none")
    await world.passes(3)
    assert (world.made(), world.asks()) == ([], None)
    found = condition(world.job().status, ConditionType.PLANNED)
    assert found is not None
    assert "Room is lacking for 2 of 3 workers, each of nvidia.com/gpu 1." in found.message


@pytest.mark.parametrize("reason", ["OnlyUnknownLinks", "NoMemory", "MakingRoom"])
async def test_what_no_node_would_help_asks_for_none(reason: str) -> None:
    world = ScaleUpWorld()
    world.plans.answer = Unplanned(GENERATION, reason, "No.", Place(1, reason, "waits"))
    await world.passes(3)
    assert (world.made(), world.asks()) == ([], None)


async def test_nodes_that_came_are_held_until_their_links_are_known(world: ScaleUpWorld) -> None:
    await world.passes(2)
    world.plans.answer = Unplanned(GENERATION, "OnlyUnknownLinks", "Nothing is known of their links.")
    await world.passes(3)
    assert len(world.made()) == 3
    assert world.why()[0] == "True"


async def test_it_is_given_up_after_a_while_and_the_job_waits_on(world: ScaleUpWorld) -> None:
    await world.passes(2)
    world.now += timedelta(seconds=BOUND_S - 1)
    assert await world.passes() == 1.0
    assert len(world.made()) == 3
    world.now += timedelta(seconds=1)
    await world.passes(4)
    assert world.why() == ("False", "ScaleUpTimedOut")
    assert world.made() == []
    assert not holds(world.job().status, ConditionType.FAILED)
    world.plans.answer = decision()  # nodes came all the same
    await world.passes(2)
    assert holds(world.job().status, ConditionType.PLANNED)
    assert world.why() == ("False", "RoomFound"), "another attempt may ask again"


async def test_a_suspended_job_asks_for_nothing_and_asks_anew_when_it_goes_on(world: ScaleUpWorld) -> None:
    await world.passes(2)
    world.change(suspend=True)
    await world.passes(2)
    assert (world.why(), world.made()) == (("False", "Suspended"), [])
    world.change(suspend=False)
    world.plans.answer = Unplanned(GENERATION + 2, LACKS.reason, LACKS.message, shortage=LACK)
    await world.passes(4)
    assert {body["metadata"]["labels"][names.LABEL_PLACEHOLDER] for body in world.made()} == {str(GENERATION + 2)}
    assert world.why()[0] == "True"


async def test_a_change_of_the_job_replaces_its_placeholders(world: ScaleUpWorld) -> None:
    await world.passes(2)
    world.change(workers={"min": 2, "max": 3})
    world.plans.answer = Unplanned(GENERATION + 1, LACKS.reason, LACKS.message, shortage=Shortage(2, 1))
    await world.passes(4)
    assert len(world.made()) == 2
    assert {body["metadata"]["labels"][names.LABEL_PLACEHOLDER] for body in world.made()} == {str(GENERATION + 1)}


async def test_a_job_that_kueue_evicts_asks_for_nothing() -> None:
    world = QueueOfKueue()
    body = world.cluster.objects["hulkjobs", "lab", "demo"]
    body["spec"]["placement"] = {"allowScaleUp": "placeholders"}
    world.store.jobs.put(world.cluster._store(HULK_JOBS, body))
    world.plans.answer = LACKS
    await world.passes(3)
    assert world.store.placeholders_of(KEY) == (), "it has no quota yet"
    world.admit(3)
    world.plans.answer = LACKS
    await world.passes(3)
    (label,) = {pod["metadata"]["labels"].get(names.LABEL_POD_SET) for pod in pods_of(world)}
    assert (len(world.store.placeholders_of(KEY)), label) == (3, None), "they take none of its quota"
    world.kueue_says(said("Evicted", True, "Preempted"))
    await world.passes()
    found = condition(world.job().status, ConditionType.SCALING_UP)
    assert found is not None
    assert (found.status, found.reason) == ("False", "QueuedByKueue")
    assert ("scale-up-end", "delete pods") in world.cluster.writes


def pods_of(world: World) -> list[Object]:
    return [body for (kind, _, _), body in world.cluster.objects.items() if kind == "pods"]


async def test_one_that_was_preempted_is_made_again_and_a_new_operator_goes_on(world: ScaleUpWorld) -> None:
    await world.passes(2)
    gone = world.cluster.objects.pop(("pods", "lab", "demo-scaleup-1"))
    world.store.pods.delete(gone)
    await world.passes()
    assert len(world.made()) == 3
    world.reconciler.memory.clear()
    began = (world.asks() or Condition).last_transition_time
    world.now += timedelta(seconds=60)
    await world.passes(2)
    assert len(world.made()) == 3
    assert (world.asks() or Condition).last_transition_time == began, "the bound counts from the first one"


async def test_one_that_ended_is_replaced(world: ScaleUpWorld) -> None:
    """Its node was shut down: it holds nothing any more, and has its name still."""
    await world.passes(2)
    body = world.cluster.objects["pods", "lab", "demo-scaleup-0"]
    world.store.pods.put(world.cluster._store(PODS, {**body, "status": {"phase": "Failed"}}))
    await world.passes(3)
    assert [(pod.get("status") or {}).get("phase") for pod in world.made()] == [None] * 3


async def test_a_quota_that_placeholders_fill_does_not_hold_up_the_plan(world: ScaleUpWorld) -> None:
    """The API server is asked about a worker's pod again, by an operator that was started anew."""
    await world.passes(2)
    world.reconciler.memory.clear()
    full = QuotaExceeded(403, "Forbidden", "exceeded quota: team")
    world.cluster.refuse = lambda write, body: full if write == "try pods" else None
    world.plans.answer = decision()
    await world.passes(2)
    assert holds(world.job().status, ConditionType.PLANNED)


async def test_a_quota_that_admits_no_placeholders_is_said_and_tried_again_later(world: ScaleUpWorld) -> None:
    def refuse(write: str, body: Object) -> ClusterError | None:
        last = write == "create pods" and body["metadata"]["name"].endswith("-2")
        return QuotaExceeded(403, "Forbidden", "exceeded quota: team") if last else None

    world.cluster.refuse = refuse
    await world.passes(3)
    assert world.why() == ("False", "Forbidden")
    assert "exceeded quota: team" in (world.asks() or Condition).message
    assert world.made() == [], "a part of a gang is of no use"
    tried = world.cluster.writes.count(("scale-up", "create pods"))
    await world.passes(3)
    assert world.cluster.writes.count(("scale-up", "create pods")) == tried
    world.cluster.refuse = lambda write, body: None
    world.now += timedelta(seconds=61)
    await world.passes(2)
    assert (world.why()[0], len(world.made())) == ("True", 3)


async def test_a_provisioning_request_is_made_followed_and_ended() -> None:
    world = ScaleUpWorld("provisioningRequest")
    await world.passes(2)
    (request,), (template,) = world.made("provisioningrequests"), world.made("podtemplates")
    name = names.provisioning_request("demo", GENERATION)
    assert request["spec"] == {
        "provisioningClassName": names.PROVISIONING_CLASS,
        "podSets": [{"count": 3, "podTemplateRef": {"name": name}}],
    }
    assert template["template"]["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "1"}
    assert (world.why(), world.made()) == (("True", "ProvisioningRequested"), [])
    says(world, Provisioned="capacity is there")
    await world.passes(2)
    assert world.why() == ("True", "Provisioned")
    assert "capacity is there" in (world.asks() or Condition).message
    world.plans.answer = decision()
    await world.passes(3)
    assert world.why() == ("False", "RoomFound")
    assert (world.made("provisioningrequests"), world.made("podtemplates")) == ([], [])
    assert set(world.cluster.writes) <= set(writes())


def says(world: ScaleUpWorld, **conditions: str) -> None:
    """Cluster Autoscaler writes the request's status; the operator looks 11 s later."""
    body = world.made("provisioningrequests")[0]
    told = [{"type": kind, "status": "True", "message": message} for kind, message in conditions.items()]
    world.cluster._store(PROVISIONING_REQUESTS, {**body, "status": {"conditions": told}})
    world.now += timedelta(seconds=11)


@pytest.mark.parametrize(("kind", "reason"), [("Failed", "ProvisioningFailed"), ("BookingExpired", "BookingExpired")])
async def test_a_request_that_came_to_nothing_is_ended(kind: str, reason: str) -> None:
    world = ScaleUpWorld("provisioningRequest")
    await world.passes(2)
    says(world, Accepted="yes", **{kind: "no node group fits"})
    await world.passes(4)
    assert world.why() == ("False", reason)
    assert "no node group fits" in (world.asks() or Condition).message
    assert world.made("provisioningrequests") == []
    world.now += timedelta(seconds=3600)
    await world.passes(2)
    assert world.made("provisioningrequests") == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NotFound(404, "NotFound", "the server could not find the requested resource"), "install the Provisioning"),
        (Forbidden(403, "Forbidden", "podtemplates is forbidden"), "--set scaleUp.provisioningRequests=true"),
    ],
)
async def test_a_cluster_without_requests_or_rights_is_named(error: ClusterError, words: str) -> None:
    world = ScaleUpWorld("provisioningRequest")
    world.cluster.refuse = lambda write, body: error if write.startswith(("create prov", "create podt")) else None
    await world.passes(3)
    assert world.why() == ("False", "ScaleUpUnavailable")
    assert words in (world.asks() or Condition).message
    assert world.made("podtemplates") == []


FULL: Any = {
    "metadata": {"labels": {"app": "mine", "kueue.x-k8s.io/podset": "main"}, "annotations": {"a": "b"}},
    "spec": {
        "initContainers": [{"name": "i", "image": "i", "resources": {"requests": {"cpu": "3"}}}],
        "containers": [
            {"name": "w", "image": "i", "command": ["train"], "resources": {"requests": {"cpu": "1500m"}}},
            {"name": "s", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "2Gi"}}},
        ],
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "rented", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "podAntiAffinity": {"x": []},
            "nodeAffinity": {TERMS[1]: {TERMS[2]: [{"matchExpressions": [{"key": "a"}]}, {"matchFields": [{"k": 1}]}]}},
        },
        "schedulerName": "mine",
        "serviceAccountName": "me",
        "volumes": [{"name": "v", "emptyDir": {}}],
        "hostNetwork": True,
    },
}


def test_a_placeholder_lacks_the_room_of_a_worker_and_is_nothing_else() -> None:
    one = job(template=FULL, priorityClassName="high", workers={"max": 3, "acceleratorsPerWorker": 8})
    (body,) = placeholders(one, Shortage(1, 0, ("eu",)), [0], ["node-9"], "pause")
    spec, worker = body["spec"], pods(one, plan(), [0])[0]
    assert requests(spec) == worker_amounts(one.spec.template.pod_spec(), "nvidia.com/gpu", 8)
    assert requests(spec) == requests(worker["spec"])
    for key in ("nodeSelector", "tolerations", "schedulerName"):
        assert spec[key] == FULL["spec"][key]
    assert spec["affinity"]["podAntiAffinity"] == {"x": []}
    eu = {"key": names.NODE_REGION, "operator": "In", "values": ["eu"]}
    avoided = {"key": "metadata.name", "operator": "NotIn", "values": ["node-9"]}
    assert terms(body) == [
        {"matchExpressions": [{"key": "a"}, eu], "matchFields": [avoided]},
        {"matchFields": [{"k": 1}, avoided], "matchExpressions": [eu]},
    ]
    assert spec["priorityClassName"] == names.PLACEHOLDER_CLASS
    assert spec.keys() & {"volumes", "hostNetwork", "serviceAccountName", "initContainers"} == set()
    assert [container["image"] for container in spec["containers"]] == ["pause"]
    labels = body["metadata"]["labels"]
    assert labels == {"app": "mine", **names.placeholder_labels("demo", GENERATION)}
    assert not names.attempt_labels("demo", 1).items() <= labels.items(), "no Service and no fence selects it"
    assert (is_placeholder(body), is_worker(body)) == (True, False)


def terms(body: Object) -> Any:
    found = body["spec"]["affinity"]
    for key in TERMS:
        found = found[key]
    return found


def test_regions_that_a_job_denies_and_those_of_pins_narrow_its_placeholders() -> None:
    pin = {"layers": "0", "regions": ["us"]}
    (body,) = placeholders(job(placement={"deniedRegions": ["ap"], "pins": [pin]}), Shortage(1, 0), [0], [], "i")
    expressions = [(one["operator"], one["values"]) for one in terms(body)[0]["matchExpressions"]]
    assert expressions == [("NotIn", ["ap"]), ("In", ["us"])]
    (body,) = placeholders(job(), Shortage(1, 0), [0], [], "i")
    assert body["spec"]["affinity"] == {}


def test_a_shortage_in_words_names_size_and_places() -> None:
    one = job(template=FULL, placement={"deniedRegions": ["ap"]})
    assert shortage_words(one, Shortage(3, 1)) == (
        "Room is lacking for 2 of 3 workers, each of nvidia.com/gpu 1, cpu 3, memory 2 GiB, on nodes with labels "
        "pool=gpu; the template's node affinity; a region other than ap; no taints but rented:NoSchedule."
    )
    assert "; region eu, us;" in shortage_words(one, Shortage(3, 1, ("eu", "us")))


@pytest.mark.parametrize(
    "change",
    [
        {"priorityClassName": "high"},
        {"labels": {names.LABEL_JOB: "demo"}},
        {"ownerReferences": []},
    ],
    ids=["it gives way to nobody", "no label", "nobody's"],
)
def test_a_pod_that_only_looks_like_a_placeholder_takes_its_room(change: Object) -> None:
    (body,) = placeholders(job(), LACK, [0], [], "i")
    where = body["spec"] if "priorityClassName" in change else body["metadata"]
    where |= change
    body["metadata"] |= {"uid": "p", "resourceVersion": "1"}
    body["spec"]["nodeName"] = "a"
    store = Store()
    store.pods.put(body)
    assert store.snapshot().taken["a"]["nvidia.com/gpu"] == 1
    assert store.placeholders_of(KEY) == ()


def stored_job(uid: str = "u1", mode: str = "placeholders") -> Object:
    body = job(placement={"allowScaleUp": mode}).wire()
    return {**body, "metadata": {**body["metadata"], "uid": uid, "resourceVersion": "1"}}


DELETED = {"deletionTimestamp": "now", "deletionGracePeriodSeconds": 1}


@pytest.mark.parametrize(
    ("name", "owner", "metadata", "spec", "seen_for_s"),
    [
        ("its job is not there", None, {}, {}, 0),
        ("its job is another one of the name", stored_job("u2"), {}, {}, 0),
        ("its job asks for nodes otherwise", stored_job(mode="provisioningRequest"), {}, {}, 0),
        ("it is long in ending", stored_job(), {}, {"terminationGracePeriodSeconds": 31_536_000}, 0),
        ("it has the usual grace period", stored_job(), {}, {"terminationGracePeriodSeconds": None}, 0),
        ("it is to end late", stored_job(), {**DELETED, "deletionGracePeriodSeconds": 3600}, {}, 0),
        ("a finalizer keeps it", stored_job(), {"finalizers": ["evil/stay"]}, {}, 0),
        ("its end does not come", stored_job(), DELETED, {}, 31),
    ],
)
def test_a_placeholder_that_would_not_give_way_takes_its_room(
    name: str, owner: Object | None, metadata: Object, spec: Object, seen_for_s: float
) -> None:
    """Who may create pods in one namespace could make a node look free to everyone's jobs."""
    (body,) = placeholders(job(), LACK, [0], [], "i")
    body["metadata"] |= {"uid": "p", "resourceVersion": "1", **metadata}
    body["spec"] |= {"nodeName": "a", **spec}
    now = [NOW]
    freed: list[str] = []
    store = Store(lambda: now[0])
    store.news = type(store.news)(room=lambda: freed.append("room"))
    if owner is not None:
        store.jobs.put(owner)
    store.pods.put(body)
    assert (store.snapshot().taken == {}) == bool(seen_for_s), name
    store.pods.put({**body, "status": {"phase": "Succeeded"}, "metadata": {**body["metadata"], "resourceVersion": "2"}})
    assert store.snapshot().taken == {}, "what has ended takes nothing"
    now[0] += timedelta(seconds=seen_for_s)
    body["metadata"]["resourceVersion"] = "3"  # news of it do not begin that anew
    store.pods.put(body)
    assert store.snapshot().taken["a"]["nvidia.com/gpu"] == 1, name
    assert len(store.placeholders_of(KEY)) == 1, "a job goes on to clear away what is its own"
    store.pods.delete(body)
    assert (store.snapshot().taken, freed) == ({}, ["room"])


def test_a_placeholder_takes_nothing_and_its_job_is_told_of_it() -> None:
    (body,) = placeholders(job(), LACK, [1], [], "i")
    body["metadata"] |= {"uid": "p", "resourceVersion": "1"}
    body["spec"]["nodeName"] = "a"
    told: list[str] = []
    store = Store()
    store.jobs.put(stored_job())
    store.news = type(store.news)(job=told.append)
    store.pods.put(body)
    assert store.snapshot().taken == {}
    (found,) = store.placeholders_of(KEY)
    assert (found.number, found.node, found.generation, store.pods_of(KEY)) == (1, "a", GENERATION, ())
    store.pods.delete(body)
    assert (told, store.placeholders_of(KEY)) == ([KEY, KEY], ())


def test_a_placeholder_on_a_dead_node_does_not_hold_up_the_gang_for_good() -> None:
    (body,) = placeholders(job(), LACK, [0], [], "i")
    body["metadata"] |= {"uid": "p", "resourceVersion": "1", "deletionTimestamp": "now"}
    store = Store()
    store.pods.put(body)

    def creates(since_s: float) -> bool:
        found = status(1, since_s=since_s, Planned=(True, "Planned"), Deployed=(False, "Deploying"))
        made = decide(view(found, placeholders=store.placeholders_of(KEY), full=full(), memory=Memory(swept_to=1)))
        return any(isinstance(action, Create) for _, action in made.actions)

    assert (creates(since_s=29), creates(since_s=31)) == (False, True)


IN_EU = [{"namespace": "lab", "regions": ["eu"]}]
RESIDENCY = {"metadata": {"name": names.TOPOLOGY_NAME}, "spec": {"residency": IN_EU}}
PLAIN = {"containers": [{"name": "w", "image": "i"}]}
TALL = {"containers": [{"name": "w", "image": "i", "resources": {"requests": {"cpu": "500"}}}]}
TWO, FOUR = {"min": 2, "max": 2}, {"min": 4, "max": 9}
OTHER = {**TWO, "resourceName": "amd.com/gpu"}


@pytest.mark.parametrize(
    ("spec", "num_nodes", "reason", "lack"),
    [
        ({}, 1, "NotEnoughAccelerators", (2, 1)),
        ({"workers": FOUR}, 3, "NotEnoughAccelerators", (4, 3)),
        ({"parallelism": {"data": 4}, "workers": {"min": 2, "max": 9}}, 3, "NotEnoughAccelerators", (4, 3)),
        ({"template": {"spec": {**PLAIN, "nodeSelector": {"pool": "gpu"}}}}, 2, "NoCandidates", (2, 0)),
        ({"template": {"spec": TALL}}, 2, "NotEnoughResources", (2, 0)),
        ({"workers": OTHER}, 2, "NoCandidates", (2, 0)),
        ({"placement": {"allowUnknownLinks": False}}, 2, "OnlyUnknownLinks", None),
        ({"parallelism": {"tensor": 2}}, 1, "UnsupportedLayout", None),
    ],
    ids=["too few", "of many", "replicas", "labels", "a taller node", "another resource", "links", "never"],
)
async def test_what_a_job_lacks(spec: Any, num_nodes: int, reason: str, lack: tuple[int, int] | None) -> None:
    there = [node(chr(ord("a") + number)) for number in range(num_nodes)]
    async with planning_over(*there, (HULK_TOPOLOGIES, RESIDENCY), planned_job("one", **spec)) as world:
        world.planner.request("lab/one")
        found = await world.answer("one")
        assert isinstance(found, Unplanned)
        assert (found.reason, found.shortage) == (reason, lack and Shortage(*lack, ("eu",)))


@pytest.mark.parametrize(
    ("pins", "reason", "num_fitting", "untrusted"),
    [
        ({"a": "eu", "b": "us"}, "NotEnoughAccelerators", 1, ("b",)),
        ({"a": "eu"}, "NotEnoughAccelerators", 1, ("b",)),
        ({"a": "us", "b": "us"}, "RegionContradicted", 0, ("a", "b")),
        ({"z": "eu"}, "RegionNotPinned", 0, ("a", "b")),
    ],
    ids=["one contradicts", "one is not pinned", "all contradict", "none is pinned"],
)
async def test_room_on_nodes_that_are_not_trusted_is_none(
    pins: dict[str, str], reason: str, num_fitting: int, untrusted: tuple[str, ...]
) -> None:
    pinned = [{"node": name, "region": region} for name, region in pins.items()]
    body = {"metadata": RESIDENCY["metadata"], "spec": {"residency": IN_EU, "pinnedRegions": pinned}}
    async with planning_over(node("a"), node("b"), (HULK_TOPOLOGIES, body), planned_job("one")) as world:
        world.planner.request("lab/one")
        found = await world.answer("one")
        assert isinstance(found, Unplanned)
        assert (found.reason, found.shortage) == (reason, Shortage(2, num_fitting, ("eu",), untrusted))


async def test_placeholders_keep_off_nodes_that_are_not_trusted(world: ScaleUpWorld) -> None:
    lack = replace(LACKS, shortage=replace(LACK, untrusted=("node-9",)))
    world.plans.answer = lack
    await world.passes(3)
    fields = [one["matchFields"] for body in world.made() for one in terms(body)]
    assert fields == 3 * [[{"key": "metadata.name", "operator": "NotIn", "values": ["node-9"]}]]


async def test_nodes_that_only_placeholders_hold_are_planned_on() -> None:
    (kind, body) = planned_job("one", placement={"allowUnknownLinks": True, "allowScaleUp": "placeholders"})
    body["metadata"]["uid"] = "u"
    owner = owner_reference(HulkJob.model_validate(body))
    held = []
    for number, where in enumerate("ab"):
        (pod,) = placeholders(HulkJob.model_validate(body), LACK, [number], [], "i")
        pod["metadata"] |= {"ownerReferences": [owner]}
        pod["spec"]["nodeName"] = where
        held.append((PODS, pod))
    async with planning_over(node("a"), node("b"), *held, (kind, body)) as world:
        world.planner.request("lab/one")
        assert machines(await world.answer("one")) == ["a", "b"]


def shortage(world: QueueWorld) -> Shortage | None:
    """What the second job is said to lack at the moment."""
    answer = world.planner.decision("lab/second")
    return answer.shortage if isinstance(answer, Unplanned) else None


@pytest.mark.parametrize(("quotas", "expected"), [({}, Shortage(2, 0)), ({"lab": 2}, None)], ids=["room", "quota"])
async def test_who_waits_in_the_queue_for_room_lacks_it_and_not_who_waits_for_its_quota(
    quotas: dict[str, int], expected: Shortage | None
) -> None:
    """Somebody else's machines are busy: new ones would do. A quota admits none of them."""
    world = QueueWorld(*nodes(2), want("first", 2, 2), settings=Settings(slot_s=10.0, quotas=quotas))
    try:
        await world.until(lambda: world.num_workers("first") == 2)
        world.add(want("second", 2, 2, after_s=20))
        await world.until(lambda: world.why("second") in ("Queued", "NotEnoughAccelerators"))
        if expected is not None:  # while room is made for it, nothing is said to lack
            await world.until(lambda: shortage(world) == expected)
        for _ in range(20):
            await world.turns(1)
            assert shortage(world) in (expected, None)
    finally:
        await world.stop()
