"""The stub answers as the real API server does: each test runs against both, through the operator's own client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from aiohttp import web
from hulk_operator.api.crds import crds
from hulk_operator.cluster import (
    CONFIG_MAPS,
    NODE_PROFILES,
    NODES,
    PODS,
    AlreadyExists,
    ApiCluster,
    ApiResource,
    Change,
    Conflict,
    Gone,
    Invalid,
    NotFound,
    Object,
    connect,
)

from bench.api_server import Bare
from bench.api_server import connect as connect_bare
from bench.scale import access
from bench.scale.meter import METER_PATH, OPERATOR
from bench.scale.stub.controllers import Controllers
from bench.scale.stub.kinds import NAMESPACES, SERVED
from bench.scale.stub.server import Server
from bench.scale.stub.store import Store
from bench.simulated import free_port

CRDS = ApiResource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
OF_PROFILES = {"apiVersion": NODE_PROFILES.api_version, "kind": NODE_PROFILES.kind}
WAIT_S = 60
WINDOW = 20
BOOKMARK_S = 0.1


@dataclass(frozen=True, slots=True)
class Api:
    """A server, seen by the operator's client and by a bare one, and a namespace in it."""

    cluster: ApiCluster
    bare: Bare
    namespace: str

    @property
    def path(self) -> str:
        """Of the namespace's ConfigMaps."""
        return CONFIG_MAPS.path(self.namespace)

    async def get(self, path: str, **query: str) -> tuple[int, Object]:
        """Status and body of a request."""
        async with self.bare.session.get(self.bare.url + path, params=query) as answer:
            return answer.status, await answer.json(content_type=None) if answer.status != 404 else {}


async def stub(folder: Path) -> AsyncIterator[Path]:
    """A kubeconfig of a stub in this process."""
    port, store = free_port(), Store(SERVED, window=WINDOW)
    paths = access.kubeconfigs(folder, port)
    Controllers(store)
    runner = web.AppRunner(Server(store, BOOKMARK_S).app(), handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, access.HOST, port, ssl_context=access.server_context(folder)).start()
    yield paths[OPERATOR]
    await runner.cleanup()


async def opened(kubeconfig: Path) -> AsyncIterator[Api]:
    """Both clients, and a namespace of the test's own."""
    cluster, name = await connect(str(kubeconfig)), f"scale-{uuid4().hex[:8]}"
    try:
        await cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        async with connect_bare(kubeconfig) as bare:
            yield Api(cluster, bare, name)
        await cluster.delete(NAMESPACES, name)
    finally:
        await cluster.close()


@pytest_asyncio.fixture
async def stubbed(tmp_path: Path) -> AsyncIterator[Api]:
    async for kubeconfig in stub(tmp_path):
        async for api in opened(kubeconfig):
            yield api


async def serve_profiles(api: Api) -> None:
    """Have the real server know NodeProfiles."""
    crd = next(found for found in crds() if found["spec"]["names"]["kind"] == NODE_PROFILES.kind)
    await api.cluster.apply(CRDS, crd["metadata"]["name"], None, crd, field_manager="test")
    async with asyncio.timeout(WAIT_S):
        while (await api.get(NODE_PROFILES.path()))[0] != 200:
            await asyncio.sleep(0.1)


@pytest_asyncio.fixture(params=["stub", pytest.param("real", marks=pytest.mark.controlplane)])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Api]:
    """The stub, and the lab's API server."""
    if request.param == "real":
        async for found in opened(request.getfixturevalue("control_plane")):
            await serve_profiles(found)
            yield found
        return
    async for kubeconfig in stub(tmp_path):
        async for found in opened(kubeconfig):
            yield found


def config_map(api: Api, name: str, **labels: str) -> Object:
    meta = {"name": name, "namespace": api.namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"k": "v"}}


def named(listing: Object) -> list[str]:
    return [item["metadata"]["name"] for item in listing["items"]]


async def changes(api: Api, resource: ApiResource, version: str, num: int, labels: str = "") -> list[Change]:
    """So many changes after a version."""
    found: list[Change] = []
    async with asyncio.timeout(WAIT_S):
        async for change in api.cluster.watch(resource, api.namespace, labels=labels, resource_version=version):
            if change.type != "BOOKMARK":
                found.append(change)
            if len(found) == num:
                break
    return found


async def test_the_pages_of_a_list_are_of_one_moment(api: Api) -> None:
    for number in range(5):
        await api.cluster.create(CONFIG_MAPS, config_map(api, f"a{number}", team="x"))
    selector = {"labelSelector": "team=x", "limit": "2"}
    _, first = await api.get(api.path, **selector)
    await api.cluster.create(CONFIG_MAPS, config_map(api, "a3-late", team="x"))
    await api.cluster.delete(CONFIG_MAPS, "a4", api.namespace)
    _, second = await api.get(api.path, **selector, **{"continue": first["metadata"]["continue"]})
    _, third = await api.get(api.path, **selector, **{"continue": second["metadata"]["continue"]})
    assert [named(page) for page in (first, second, third)] == [["a0", "a1"], ["a2", "a3"], ["a4"]]
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {
        first["metadata"]["resourceVersion"]
    }
    assert not third["metadata"].get("continue")
    assert "remainingItemCount" not in first["metadata"]
    assert "kind" not in first["items"][0]


async def test_a_list_without_a_selector_says_how_many_are_left(api: Api) -> None:
    for number in range(4):
        await api.cluster.create(CONFIG_MAPS, config_map(api, f"a{number}"))
    _, page = await api.get(api.path, limit="1")
    _, whole = await api.get(api.path)
    assert page["metadata"]["remainingItemCount"] == len(whole["items"]) - 1
    _, cached = await api.get(api.path, limit="1", resourceVersion="0")
    assert named(cached) == named(whole)  # the watch cache knows no pages
    status, _ = await api.get(api.path, limit="1", **{"continue": "garbage"})
    assert status == 400


async def test_a_watch_tells_what_follows_a_listing(api: Api) -> None:
    listed = await api.cluster.list(CONFIG_MAPS, api.namespace, labels="team=x")
    await api.cluster.create(CONFIG_MAPS, config_map(api, "a", team="x"))
    await api.cluster.create(CONFIG_MAPS, config_map(api, "other"))
    await api.cluster.patch(CONFIG_MAPS, "a", api.namespace, {"data": {"k": "w"}})
    await api.cluster.patch(CONFIG_MAPS, "a", api.namespace, {"metadata": {"labels": {"team": "y"}}})
    await api.cluster.patch(CONFIG_MAPS, "a", api.namespace, {"metadata": {"labels": {"team": "x"}}})
    await api.cluster.delete(CONFIG_MAPS, "a", api.namespace)
    found = await changes(api, CONFIG_MAPS, listed.resource_version, 5, "team=x")
    assert [change.type for change in found] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
    versions = [int(change.object["metadata"]["resourceVersion"]) for change in found]
    assert versions == sorted(set(versions))
    assert found[1].object["data"] == {"k": "w"}


async def test_a_watch_can_send_what_is_there_first(api: Api) -> None:
    await api.cluster.create(CONFIG_MAPS, config_map(api, "a", team="x"))
    query = {
        "watch": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
        "labelSelector": "team=x",
    }
    lines = []
    async with asyncio.timeout(WAIT_S), api.bare.session.get(api.bare.url + api.path, params=query) as answer:
        async for line in answer.content:
            lines.append(json.loads(line))
            if lines[-1]["type"] == "BOOKMARK":
                break
    assert [line["type"] for line in lines] == ["ADDED", "BOOKMARK"]
    assert lines[-1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_preconditions(api: Api) -> None:
    made = await api.cluster.create(CONFIG_MAPS, config_map(api, "a"))
    version = made["metadata"]["resourceVersion"]
    same = await api.cluster.patch(CONFIG_MAPS, "a", api.namespace, {"data": {"k": "v"}}, resource_version=version)
    assert same["metadata"]["resourceVersion"] == version  # a write that changes nothing is none
    await api.cluster.patch(CONFIG_MAPS, "a", api.namespace, {"data": {"k": "1"}}, resource_version=version)
    with pytest.raises(Conflict, match="the object has been modified"):
        await api.cluster.patch(CONFIG_MAPS, "a", api.namespace, {"data": {"k": "2"}}, resource_version=version)
    with pytest.raises(Conflict, match="does not match the UID in record"):
        await api.cluster.delete(CONFIG_MAPS, "a", api.namespace, uid="another")
    with pytest.raises(AlreadyExists, match='configmaps "a" already exists'):
        await api.cluster.create(CONFIG_MAPS, config_map(api, "a"))
    with pytest.raises(AlreadyExists):
        await api.cluster.try_create(CONFIG_MAPS, config_map(api, "a"))
    await api.cluster.try_create(CONFIG_MAPS, config_map(api, "b"))
    with pytest.raises(NotFound, match='configmaps "b" not found'):
        await api.cluster.get(CONFIG_MAPS, "b", api.namespace)


async def test_selectors_of_a_collection_that_is_deleted(api: Api) -> None:
    for number in range(4):
        await api.cluster.create(CONFIG_MAPS, config_map(api, f"a{number}", attempt=str(number), job="x"))
    await api.cluster.delete_all(CONFIG_MAPS, api.namespace, labels="job=x,attempt in (1,2)")
    await api.cluster.delete_all(CONFIG_MAPS, api.namespace, labels="job,attempt!=3")
    assert [item["metadata"]["name"] for item in (await api.cluster.list(CONFIG_MAPS, labels="job=x")).items] == ["a3"]
    by_name = await api.cluster.list(CONFIG_MAPS, api.namespace, fields="metadata.name=a3")
    assert len(by_name.items) == 1
    with pytest.raises(Invalid, match="field label not supported"):
        await api.cluster.list(PODS, api.namespace, fields="spec.volumes=x")


async def test_what_an_object_owns_goes_with_it(api: Api) -> None:
    owner = await api.cluster.create(CONFIG_MAPS, config_map(api, "owner", mine="yes"))
    owned = config_map(api, "owned", mine="yes")
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    ]
    listed = await api.cluster.create(CONFIG_MAPS, owned)
    await api.cluster.delete(CONFIG_MAPS, "owner", api.namespace)
    found = await changes(api, CONFIG_MAPS, listed["metadata"]["resourceVersion"], 2, "mine=yes")
    assert [(change.type, change.object["metadata"]["name"]) for change in found] == [
        ("DELETED", "owner"),
        ("DELETED", "owned"),
    ]


async def test_managers_own_their_own_fields(api: Api) -> None:
    space = api.namespace
    await api.cluster.apply(CONFIG_MAPS, "a", space, {"data": {"x": "1", "both": "1"}}, field_manager="one")
    await api.cluster.apply(CONFIG_MAPS, "a", space, {"data": {"y": "2", "both": "2"}}, field_manager="two")
    await api.cluster.patch(CONFIG_MAPS, "a", space, {"data": {"z": "3"}})
    left = await api.cluster.apply(CONFIG_MAPS, "a", space, {"data": {}}, field_manager="one")
    assert left["data"] == {"y": "2", "both": "2", "z": "3"}
    owners = {(row["manager"], row["operation"]): row["fieldsV1"] for row in left["metadata"]["managedFields"]}
    assert owners["two", "Apply"] == {"f:data": {"f:y": {}, "f:both": {}}}
    assert owners["hulk-operator", "Update"] == {"f:data": {"f:z": {}}}


def link(target: str, rtt_us: int, *, under_load: bool = False) -> Object:
    time = "2026-11-01T00:00:00Z"
    return {"target": target, "underLoad": under_load, "rttP50Microseconds": rtt_us, "samples": 1, "time": time}


async def test_managers_own_their_own_entries_of_a_list_with_keys(api: Api) -> None:
    name = api.namespace
    await api.cluster.create(NODE_PROFILES, {**OF_PROFILES, "metadata": {"name": name}, "spec": {}})

    async def applied(manager: str, *links: Object, **more: Any) -> Object:
        body = {"metadata": {"name": name}, "status": {**more, "links": list(links)}}
        return await api.cluster.apply(NODE_PROFILES, name, None, body, field_manager=manager, subresource="status")

    await applied("agent", link("b", 1), link("c", 2), lastId=3)
    await applied("operator", link("b", 9, under_load=True))
    left = await applied("agent", link("b", 4), lastId=5)
    assert left["status"]["lastId"] == 5
    assert left["metadata"]["generation"] == 1
    found = {(row["target"], row["underLoad"]): row["rttP50Microseconds"] for row in left["status"]["links"]}
    assert found == {("b", False): 4, ("b", True): 9}
    own = next(row for row in left["metadata"]["managedFields"] if row["manager"] == "agent")
    assert own["subresource"] == "status"
    assert own["fieldsV1"]["f:status"]["f:links"].keys() == {'k:{"target":"b","underLoad":false}'}
    await api.cluster.delete(NODE_PROFILES, name)


async def test_the_documents_of_discovery_name_the_operators_kinds(api: Api) -> None:
    _, core = await api.get("/api/v1")
    found = {row["name"]: (row["kind"], row["namespaced"]) for row in core["resources"]}
    assert found["pods"] == ("Pod", True)
    assert found["nodes"] == ("Node", False)
    with pytest.raises(NotFound):
        await api.cluster.list(ApiResource("none.example", "v1", "things", "Thing"))


# What only the stub is asked.


async def test_a_watch_that_began_too_long_ago_is_gone(stubbed: Api) -> None:
    for number in range(3 * WINDOW):
        await stubbed.cluster.create(CONFIG_MAPS, config_map(stubbed, f"a{number}"))
    with pytest.raises(Gone):
        await changes(stubbed, CONFIG_MAPS, "1", 1)


async def test_bookmarks_come_by_themselves(stubbed: Api) -> None:
    listed = await stubbed.cluster.list(CONFIG_MAPS, stubbed.namespace)
    await stubbed.cluster.create(NAMESPACES, {"metadata": {"name": "later"}})
    async with asyncio.timeout(WAIT_S):
        async for change in stubbed.cluster.watch(
            CONFIG_MAPS, stubbed.namespace, resource_version=listed.resource_version
        ):
            assert change.type == "BOOKMARK"
            assert int(change.object["metadata"]["resourceVersion"]) > int(listed.resource_version)
            break


async def test_a_pod_is_bound_where_it_says_runs_at_an_address_of_this_machine_and_ends(stubbed: Api) -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    spec = {"containers": [{"name": "c", "image": "i"}], "affinity": affinity}
    meta = {"name": "p", "namespace": stubbed.namespace}
    made = await stubbed.cluster.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    bound, started = await changes(stubbed, PODS, made["metadata"]["resourceVersion"], 2)
    assert bound.object["spec"]["nodeName"] == "n1"
    assert bound.object["status"]["phase"] == "Pending"
    assert started.object["status"]["phase"] == "Running"
    assert started.object["status"]["podIP"].startswith("127.")
    await stubbed.cluster.delete(PODS, "p", stubbed.namespace)
    ending, ended = await changes(stubbed, PODS, started.object["metadata"]["resourceVersion"], 2)
    assert (ending.type, ended.type) == ("MODIFIED", "DELETED")
    assert "deletionTimestamp" in ending.object["metadata"]


async def test_status_and_spec_are_written_apart(stubbed: Api) -> None:
    await stubbed.cluster.create(
        NODES, {"metadata": {"name": "n"}, "status": {"phase": "new"}, "spec": {"podCIDR": "x"}}
    )
    await stubbed.cluster.patch(NODES, "n", None, {"spec": {"unschedulable": True}, "status": {"phase": "no"}})
    found = await stubbed.cluster.patch(
        NODES, "n", None, {"spec": {"podCIDR": "no"}, "status": {"phase": "yes"}}, subresource="status"
    )
    assert (found["spec"], found["status"]) == ({"podCIDR": "x", "unschedulable": True}, {"phase": "yes"})
    assert found["metadata"]["generation"] == 2


@pytest.mark.parametrize("query", [{"pretty": "true"}, {"fieldSelector": "data.k=v"}])
async def test_what_the_stub_does_not_know_it_refuses(stubbed: Api, query: dict[str, str]) -> None:
    status, body = await stubbed.get(stubbed.path, **query)
    assert status == 400
    assert body["kind"] == "Status"


async def test_large_lists_are_compressed_and_counted_as_sent(stubbed: Api) -> None:
    for number in range(8):
        item = config_map(stubbed, f"a{number}")
        item["data"] = {"k": "x" * 30_000}
        await stubbed.cluster.create(CONFIG_MAPS, item)
    listed = await stubbed.cluster.list(CONFIG_MAPS, stubbed.namespace)
    assert len(listed.items) == 8
    _, counted = await stubbed.get(METER_PATH)
    rows: dict[tuple[str, str], Any] = {(verb, kind): rest for verb, kind, *rest in counted["rows"]}
    assert rows["create", "configmaps"][0] == 8
    num_requests, num_bytes = rows["list", "configmaps"]
    assert num_requests == 1
    assert 0 < num_bytes < 30_000
