"""The store: an object only ever replaces an older version of itself, and what is deleted stays deleted."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hulk_operator import names
from hulk_operator.cluster import Listing, Newest
from hulk_operator.pods import pods
from hulk_operator.pods.termination_record import Farewell
from hulk_operator.watched import Store
from hulk_operator.watched.store import HALF_RESTORED_S
from views import job, plan


def item(version: int, name: str = "a") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "lab", "resourceVersion": str(version)}}


def versions() -> Newest[str]:
    return Newest(lambda found: str(found["metadata"]["resourceVersion"]))


def test_older_versions_are_left_out() -> None:
    seen = versions()
    assert seen.put(item(2))
    assert not seen.put(item(1))
    assert not seen.put(item(2))
    assert seen.get("lab/a") == "2"


def test_a_late_listing_does_not_bring_back_what_was_deleted() -> None:
    seen = versions()
    seen.put(item(2))
    assert seen.delete(item(5))
    assert seen.replace(Listing((item(2),), "3")) == set()
    assert seen.get("lab/a") is None
    assert seen.put(item(9))  # a new object of the name


def test_a_listing_removes_what_a_watch_missed_but_not_what_is_newer() -> None:
    seen = versions()
    seen.put(item(2))
    seen.put(item(8, "new"))
    assert seen.replace(Listing((), "5")) == {"lab/a"}
    assert seen.get("lab/new") == "8"


def stored_pod(version: int, **labels: str) -> dict[str, Any]:
    (pod,) = pods(job(), plan(), [0])
    meta = {**pod["metadata"], "uid": "p", "resourceVersion": str(version)}
    return {
        **pod,
        "metadata": {**meta, "labels": {**meta["labels"], **labels}},
        "spec": {**pod["spec"], "nodeName": "n"},
    }


def test_pods_are_found_by_job_and_by_node() -> None:
    store = Store()
    assert store.pods.put(stored_pod(1))
    assert [pod.name for pod in store.pods_of("lab/demo")] == ["demo-1-0"]
    assert store.jobs_on("n") == {"lab/demo"}
    assert store.jobs_on("other") == set()
    assert store.pods.delete(stored_pod(2))
    assert store.pods_of("lab/demo") == ()


@pytest.mark.parametrize("kind", ["MODIFIED", "DELETED", "listed"])
def test_what_a_pod_said_last_is_kept_when_it_is_gone(kind: str) -> None:
    store = Store()
    store.pods.put(stored_pod(1))
    terminated = {"exitCode": 143, "message": "ended attempt=1 step=40 loss=2.5 checkpoint_bytes=1000"}
    ended = stored_pod(2)
    ended["status"] = {"containerStatuses": [{"name": "worker", "state": {"terminated": terminated}}]}
    if kind == "listed":
        store.pods.replace(Listing((ended,), "2"))
    else:
        (store.pods.delete if kind == "DELETED" else store.pods.put)(ended)
    store.pods.delete(stored_pod(3))
    assert store.pods_of("lab/demo") == ()
    assert store.farewell_of(job()) == Farewell(1, 40, "2.5", 1000)
    again = job().metadata.model_copy(update={"uid": "another"})
    assert store.farewell_of(job().model_copy(update={"metadata": again})) is None
    store.forget("lab/demo")
    assert store.farewell_of(job()) is None


@pytest.mark.parametrize("label", [names.LABEL_ATTEMPT, names.LABEL_WORKER])
def test_a_pod_with_foreign_labels_is_no_worker(label: str) -> None:
    store = Store()
    store.pods.put(stored_pod(1, **{label: "many"}))
    store.pods.replace(Listing((stored_pod(1, **{label: "many"}),), "2"))
    assert store.pods_of("lab/demo") == ()
    assert store.snapshot().taken == {"n": {"pods": 1, "nvidia.com/gpu": 1}}  # but it takes room


def test_a_listing_of_pods_removes_the_ghosts() -> None:
    store = Store()
    store.pods.put(stored_pod(1))
    store.pods.replace(Listing((), "2"))
    assert store.pods_of("lab/demo") == ()


@pytest.mark.parametrize(("ready", "expected"), [("Unknown", "Unknown"), ("True", "True")])
def test_nodes_say_how_they_are(ready: str, expected: str) -> None:
    store = Store()
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-05-04T12:00:00Z"}]
    store.nodes.put({"metadata": {"name": "n", "resourceVersion": "1"}, "status": {"conditions": conditions}})
    found = store.nodes.get("n")
    assert found is not None
    assert found.state.ready == expected
    store.nodes.put({"metadata": {"name": "new", "resourceVersion": "2"}})
    new = store.nodes.get("new")
    assert new is not None
    assert new.state.ready == "True"


def test_nodes_say_what_they_keep_out() -> None:
    store = Store()
    taint = {"key": "mine", "effect": "NoSchedule"}
    spec = {"unschedulable": True, "taints": [taint]}
    store.nodes.put({"metadata": {"name": "n", "resourceVersion": "1"}, "spec": spec})
    found = store.nodes.get("n")
    assert found is not None
    assert (found.state.ready, found.state.cordoned, found.state.taints) == ("True", True, (taint,))


def test_a_pod_that_is_not_bound_yet_may_be_for_any_node() -> None:
    store = Store()
    unbound = stored_pod(1)
    del unbound["spec"]["nodeName"]
    store.pods.put(unbound)
    assert store.jobs_on("any") == {"lab/demo"}


def test_an_unreadable_object_does_not_stop_the_others() -> None:
    jobs = Store().jobs
    bad = {"metadata": {"name": "bad", "namespace": "lab", "resourceVersion": "1"}, "spec": {}}
    good = job().wire()
    changed = jobs.replace(Listing((bad, good), "9"))
    assert changed == {"lab/demo"}
    assert jobs.get("lab/bad") is None


def test_jobs_wait_until_they_are_of_the_restored_backup_whose_pods_are_seen() -> None:
    clock = [datetime(2026, 1, 1, tzinfo=UTC)]
    store = Store(lambda: clock[0])
    assert not store.is_half_restored
    store.pods.restart()
    assert store.is_half_restored
    store.believe_jobs(Listing((), "3"))
    assert not store.is_half_restored
    store.pods.restart()
    assert store.is_half_restored
    clock[0] += timedelta(seconds=HALF_RESTORED_S)
    assert not store.is_half_restored, "nobody reads them: the watches tell"
