"""A HulkJob as Kueue's Workload, an admission as what plans and pods keep to, and what Kueue is told."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hulk_operator import names
from hulk_operator.api import HulkJob, format_time
from hulk_operator.cluster import Object
from hulk_operator.inputs.placement_constraints import UnusableJobError
from hulk_operator.kueue import (
    Domain,
    Flavor,
    Placement,
    WorkloadState,
    admission_dropped,
    as_admitted,
    differs,
    finished,
    fits,
    placement,
    pods_ready,
    within,
    workload,
    workload_name,
    workload_state,
    wrong_priority,
)
from hulk_operator.kueue.admission import PodUpdate
from hulk_operator.pods import pods
from views import NOW, ago, job, plan

QUEUE = {names.LABEL_QUEUE: "team"}
REGION = {names.NODE_REGION: "eu"}
NOBODY = PodUpdate({}, {}, {}, ())
TOLERATION = {"key": "rented", "operator": "Exists"}


def queued(labels: dict[str, str] | None = None, **spec: Any) -> HulkJob:
    one = job(**spec)
    metadata = one.metadata.model_copy(update={"labels": {**QUEUE, **(labels or {})}})
    return one.model_copy(update={"metadata": metadata})


def stored(one: HulkJob, status: Object | None = None, **spec: Any) -> WorkloadState:
    """The job's Workload as the API server has it."""
    body = workload(one)
    metadata = {**body["metadata"], "uid": "w1", "resourceVersion": "5"}
    return workload_state({**body, "metadata": metadata, "spec": {**body["spec"], **spec}, "status": status or {}})


def condition(kind: str, value: bool, reason: str = "Because", since_s: float = 100.0) -> Object:
    time = format_time(ago(since_s))
    return {"type": kind, "status": str(value), "reason": reason, "message": "words", "lastTransitionTime": time}


def told(change: Any, kind: str) -> tuple[str, str]:
    (found,) = (one for one in change["status"]["conditions"] if one["type"] == kind)
    return found["status"], found["reason"]


def test_a_job_is_one_pod_set_of_most_workers_and_may_be_admitted_in_part() -> None:
    body = workload(queued(workers={"min": 2, "max": 4, "acceleratorsPerWorker": 8}))
    (pod_set,) = body["spec"]["podSets"]
    assert (pod_set["name"], pod_set["count"], pod_set["minCount"]) == ("main", 4, 2)
    resources = pod_set["template"]["spec"]["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"] == {"nvidia.com/gpu": "8"}
    assert body["spec"]["queueName"] == "team"
    assert body["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert "minCount" not in workload(queued(workers={"min": 3, "max": 3}))["spec"]["podSets"][0]


def test_stages_make_the_counts_multiples_of_them_or_no_workload() -> None:
    staged = {"min": 2, "max": 5}
    (pod_set,) = workload(queued(workers=staged, parallelism={"pipeline": 2}))["spec"]["podSets"]
    assert (pod_set["count"], pod_set["minCount"]) == (4, 2)
    with pytest.raises(UnusableJobError):
        workload(queued(workers={"min": 3, "max": 3}, parallelism={"pipeline": 2}))


@pytest.mark.parametrize(
    ("annotation", "value", "asked"),
    [
        (names.ANNOTATION_REQUIRED_TOPOLOGY, names.NODE_REGION, {"required": names.NODE_REGION}),
        (names.ANNOTATION_PREFERRED_TOPOLOGY, names.NODE_ZONE, {"preferred": names.NODE_ZONE}),
        (names.ANNOTATION_ANY_TOPOLOGY, "true", {"unconstrained": True}),
        ("example.com/other", "x", None),
    ],
)
def test_the_templates_annotations_ask_for_a_topology(annotation: str, value: str, asked: Object | None) -> None:
    template = {"metadata": {"annotations": {annotation: value}}, "spec": {"containers": [{"name": "w", "image": "i"}]}}
    (pod_set,) = workload(queued(template=template))["spec"]["podSets"]
    assert pod_set.get("topologyRequest") == asked


def test_kueues_own_class_comes_before_that_of_the_pods() -> None:
    labels = {names.LABEL_WORKLOAD_PRIORITY: "urgent", names.LABEL_MAX_EXECUTION: "60"}
    spec = workload(queued(labels, priorityClassName="high"))["spec"]
    assert spec["priorityClassRef"] == {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "urgent"}
    assert spec["maximumExecutionTimeSeconds"] == 60
    assert workload(queued(priorityClassName="high"))["spec"]["priorityClassRef"]["kind"] == "PriorityClass"
    assert "priorityClassRef" not in workload(queued())["spec"]


def test_a_workload_is_named_after_its_very_job_and_never_too_long() -> None:
    def named(**fields: str) -> HulkJob:
        return first.model_copy(update={"metadata": first.metadata.model_copy(update=fields)})

    first = queued()
    long, again = named(name="j" * names.MAX_JOB_NAME_LENGTH), named(uid="u2")
    assert workload_name(first).startswith("hulkjob-demo-")
    assert workload_name(first) != workload_name(again)
    assert len(workload_name(long)) <= names.DNS_LABEL_LENGTH


def test_what_the_api_server_fills_in_is_no_change_and_what_the_user_changes_is() -> None:
    one = queued()
    filled = workload(one)["spec"]["podSets"][0]
    filled["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
    state = stored(one, podSets=[filled])
    assert not differs(state, workload(one))
    assert differs(state, workload(queued(workers={"min": 3, "max": 4})))
    assert differs(state, workload(queued({names.LABEL_QUEUE: "other"})))


@pytest.mark.parametrize(
    ("before", "after", "reserved", "tells"),
    [
        ("", "urgent", False, True),
        ("", "urgent", True, False),  # the API refuses a class that comes or goes
        ("idle", "urgent", True, True),
        ("idle", "idle", False, False),
    ],
)
def test_another_class_is_told_where_kueue_takes_it(before: str, after: str, reserved: bool, tells: bool) -> None:
    def of(name: str) -> HulkJob:
        return queued({names.LABEL_WORKLOAD_PRIORITY: name} if name else {})

    state = stored(of(before), {"conditions": [condition("QuotaReserved", reserved)]})
    assert wrong_priority(state, workload(of(after))) == tells


ADMITTED = {
    "clusterQueue": "shared",
    "podSetAssignments": [
        {"name": "main", "count": 2, "flavors": {"cpu": "spot", "nvidia.com/gpu": "spot"}},
    ],
}
UP = [condition("QuotaReserved", True), condition("Admitted", True)]
FLAVORS = {"spot": Flavor(REGION, (TOLERATION,))}


def test_an_admission_reaches_the_pods_and_bounds_the_workers() -> None:
    template = {"spec": {"containers": [{"name": "w", "image": "i"}], "nodeSelector": {"disk": "fast"}}}
    one = queued(workers={"min": 1, "max": 3}, training={"steps": 10}, template=template)
    placed = placement(stored(one, {"conditions": UP, "admission": ADMITTED}), FLAVORS)
    found = as_admitted(one, placed)
    assert (found.spec.workers.min, found.spec.workers.max) == (1, 2)
    assert found.spec.global_batch == one.spec.global_batch == 3  # what is trained stays the same
    (pod,) = pods(found, plan(), [0])
    assert pod["spec"]["nodeSelector"] == {"disk": "fast", **REGION}
    assert pod["spec"]["tolerations"] == [TOLERATION]
    assert (
        pod["metadata"]["labels"].items()
        >= {
            names.LABEL_POD_SET: "main",
            names.LABEL_LOCAL_QUEUE: "team",
            names.LABEL_CLUSTER_QUEUE: "shared",
        }.items()
    )
    assert pod["metadata"]["annotations"][names.ANNOTATION_WORKLOAD] == workload_name(one)
    assert names.ANNOTATION_ANY_TOPOLOGY not in pod["metadata"]["annotations"]


def test_pods_of_a_topology_are_marked_so_that_kueue_does_not_count_them_twice() -> None:
    hosts = {"levels": ["host"], "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "a"}]}]}
    hosts["slices"][0]["podCounts"] = {"universal": 2}
    assignment = {**ADMITTED["podSetAssignments"][0], "topologyAssignment": hosts}
    status = {"conditions": UP, "admission": {**ADMITTED, "podSetAssignments": [assignment]}}
    placed = placement(stored(queued(), status), FLAVORS)
    assert placed is not None
    assert placed.domains == (Domain({"host": "a"}, 2),)
    marked = as_admitted(queued(), placed).spec.template.metadata.annotations
    assert marked[names.ANNOTATION_ANY_TOPOLOGY] == "true"


def test_what_an_admission_check_adds_counts_too() -> None:
    update = {"name": "main", "nodeSelector": {"pool": "new"}, "annotations": {"request": "r1"}}
    checks = [{"name": "provision", "state": "Ready", "podSetUpdates": [update]}]
    placed = placement(stored(queued(), {"conditions": UP, "admission": ADMITTED, "admissionChecks": checks}), FLAVORS)
    assert placed is not None
    assert placed.pods.node_selector == {**REGION, "pool": "new"}
    assert placed.pods.annotations["request"] == "r1"


def test_an_admission_to_a_flavor_that_is_not_known_says_nothing_yet() -> None:
    assert placement(stored(queued(), {"conditions": UP, "admission": ADMITTED}), {}) is None


NODES = {
    "a": {names.NODE_REGION: "eu", "zone": "1"},
    "b": {names.NODE_REGION: "eu", "zone": "1"},
    "c": {names.NODE_REGION: "eu", "zone": "2"},
    "d": {names.NODE_REGION: "us", "zone": "3"},
}
EVERYWHERE = {"a": 1, "b": 2, "c": 4, "d": 8}


@pytest.mark.parametrize(
    ("name", "selector", "domains", "left"),
    [
        ("no flavor binds", {}, (), EVERYWHERE),
        ("one region", REGION, (), {"a": 1, "b": 2, "c": 4}),
        ("zones by their counts", REGION, (("1", 2), ("2", 3)), {"b": 2, "c": 3}),
        ("more than one node of a zone", REGION, (("1", 3),), {"a": 1, "b": 2}),
        ("less room than was given", REGION, (("2", 9),), {"c": 4}),
        ("outside of the flavor", REGION, (("3", 1),), {}),
    ],
)
def test_candidates_within_an_admission(
    name: str, selector: dict[str, str], domains: tuple[tuple[str, int], ...], left: dict[str, int]
) -> None:
    places = tuple(Domain({"zone": zone}, num) for zone, num in domains)
    given = Placement(3, replace(NOBODY, node_selector=selector), places)
    admitting = dict.fromkeys(EVERYWHERE, 100)  # by cpu, memory and pod slots
    assert within(given, EVERYWHERE, EVERYWHERE, NODES) == left, name
    assert not domains or within(given, admitting, EVERYWHERE, NODES) == left, name
    assert within(None, EVERYWHERE, {}, NODES) == EVERYWHERE


@pytest.mark.parametrize(
    ("workers", "keeps"),
    [(("a", "c"), True), (("b", "b"), False), (("a", "d"), False), (("a", "gone"), True), (("b", "a"), False)],
)
def test_a_plan_that_an_admission_has_moved_away_from_is_seen(workers: tuple[str, ...], keeps: bool) -> None:
    places = (Domain({"zone": "1"}, 1), Domain({"zone": "2"}, 1))
    assert fits(Placement(2, replace(NOBODY, node_selector=REGION), places), workers, NODES) == keeps


def test_readiness_is_told_where_it_changes_and_a_gang_that_was_up_recovers() -> None:
    def at(*conditions: Object) -> WorkloadState:
        return stored(queued(), {"conditions": [*UP, *conditions]})

    assert pods_ready(at(), 0, NOW) is None
    assert told(pods_ready(at(), 3, NOW), "PodsReady") == ("True", "Started")
    assert pods_ready(at(condition("PodsReady", True)), 3, NOW) is None
    assert told(pods_ready(at(condition("PodsReady", True)), 0, NOW), "PodsReady") == ("False", "WaitForRecovery")
    recovering = condition("PodsReady", False, "WaitForRecovery")
    assert pods_ready(at(recovering), 0, NOW) is None
    assert told(pods_ready(at(recovering), 3, NOW), "PodsReady") == ("True", "Recovered")


def test_quota_that_the_first_plan_leaves_is_given_back_and_no_later_plan_has_it() -> None:
    """Of 3 workers that are asked for 2 are admitted, and 1 is up: Kueue counts from those that are asked for."""

    def at(*conditions: Object, **fields: Any) -> WorkloadState:
        return stored(queued(), {"conditions": [*UP, *conditions], "admission": ADMITTED, **fields})

    two = [{"name": "main", "count": 2}]
    change = pods_ready(at(), 1, NOW)
    assert change is not None
    assert change["status"]["reclaimablePods"] == two
    recovering = pods_ready(at(condition("PodsReady", False, "WaitForRecovery")), 1, NOW)  # its node may come back
    for other in (recovering, pods_ready(at(), 2, NOW)):
        assert other is not None
        assert "reclaimablePods" not in other["status"]
    placed = placement(at(reclaimablePods=two), FLAVORS)
    assert placed is not None
    assert placed.num_workers == 1
    evicted = at(condition("Evicted", True), reclaimablePods=two)
    assert admission_dropped(evicted, NOW)["status"]["reclaimablePods"] is None


def test_the_end_is_told_once() -> None:
    change = finished(stored(queued(), {"conditions": UP}), False, "boom", NOW)
    assert told(change, "Finished") == ("True", "Failed")
    assert told(change, "Admitted") == ("True", "Because")  # a patch replaces all conditions
    assert finished(stored(queued(), {"conditions": [condition("Finished", True)]}), False, "boom", NOW) is None


@pytest.mark.parametrize(
    ("reason", "requeued"), [("Preempted", "True"), ("NodeFailures", "True"), ("PodsReadyTimeout", "False")]
)
def test_an_admission_that_is_given_back_leaves_what_kueue_goes_on_from(reason: str, requeued: str) -> None:
    conditions = [*UP, condition("Evicted", True, reason), condition("PodsReady", True)]
    state = stored(
        queued(), {"conditions": conditions, "admission": ADMITTED, "accumulatedPastExecutionTimeSeconds": 5}
    )
    change = admission_dropped(state, NOW + timedelta(seconds=0.5))
    assert change["status"]["admission"] is None
    assert change["status"]["accumulatedPastExecutionTimeSeconds"] == 105
    assert told(change, "Requeued") == (requeued, reason)
    assert told(change, "QuotaReserved") == ("False", "Pending")
    assert told(change, "Admitted") == ("False", "NoReservation")
    assert told(change, "PodsReady") == ("False", "WaitForStart")
    assert told(change, "Evicted") == ("True", reason)


def test_a_workload_of_somebody_else_is_not_read() -> None:
    body = workload(queued())
    strange = {**body["metadata"], "uid": "w", "resourceVersion": "1", "ownerReferences": []}
    with pytest.raises(ValueError, match="no HulkJob"):
        workload_state({**body, "metadata": strange})
