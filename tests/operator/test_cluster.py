"""The cluster room against a real API server: eight verbs, errors with the server's words, one lease holder."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from hulk_operator.cluster import (
    CONFIG_MAPS,
    LEASES,
    PODS,
    AlreadyExists,
    ApiCluster,
    ApiResource,
    ClusterError,
    Conflict,
    Forbidden,
    Invalid,
    Lease,
    LeaseLost,
    NamespaceEnds,
    NotFound,
    Object,
    QuotaExceeded,
    Unavailable,
    connect,
)

pytestmark = pytest.mark.controlplane

NAMESPACES = ApiResource("", "v1", "namespaces", "Namespace", False)
QUOTAS = ApiResource("", "v1", "resourcequotas", "ResourceQuota")
WAIT_S = 60


@pytest_asyncio.fixture
async def cluster(control_plane: Path) -> AsyncIterator[ApiCluster]:
    connected = await connect(str(control_plane))
    try:
        yield connected
    finally:
        await connected.close()


@pytest_asyncio.fixture
async def namespace(cluster: ApiCluster) -> AsyncIterator[str]:
    """A namespace of this test alone."""
    name = f"cluster-{uuid4().hex[:8]}"
    await cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    await cluster.delete(NAMESPACES, name)


def config_map(namespace: str, name: str = "a", **labels: str) -> Object:
    meta = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"k": "v"}}


def pod(namespace: str, **spec: Any) -> Object:
    containers = [{"name": "c", "image": "none"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": namespace},
        "spec": {"containers": containers, **spec},
    }


async def test_create_get_list_patch_delete(cluster: ApiCluster, namespace: str) -> None:
    made = await cluster.create(CONFIG_MAPS, config_map(namespace, team="x"))
    assert (await cluster.get(CONFIG_MAPS, "a", namespace))["data"] == {"k": "v"}
    found = await cluster.list(CONFIG_MAPS, namespace, labels="team=x")
    assert [(item["kind"], item["metadata"]["name"]) for item in found.items] == [("ConfigMap", "a")]
    assert int(found.resource_version) >= int(made["metadata"]["resourceVersion"])
    changed = await cluster.patch(CONFIG_MAPS, "a", namespace, {"data": {"k": None, "n": "w"}})
    assert changed["data"] == {"n": "w"}
    await cluster.delete(CONFIG_MAPS, "a", namespace, uid=made["metadata"]["uid"])
    with pytest.raises(NotFound, match='configmaps "a" not found'):
        await cluster.get(CONFIG_MAPS, "a", namespace)


async def test_a_precondition_that_does_not_hold_is_a_conflict(cluster: ApiCluster, namespace: str) -> None:
    made = await cluster.create(CONFIG_MAPS, config_map(namespace))
    version = made["metadata"]["resourceVersion"]
    await cluster.patch(CONFIG_MAPS, "a", namespace, {"data": {"k": "1"}}, resource_version=version)
    with pytest.raises(Conflict):
        await cluster.patch(CONFIG_MAPS, "a", namespace, {"data": {"k": "2"}}, resource_version=version)
    with pytest.raises(Conflict):
        await cluster.delete(CONFIG_MAPS, "a", namespace, uid="another")
    with pytest.raises(AlreadyExists):
        await cluster.create(CONFIG_MAPS, config_map(namespace))


async def test_the_servers_words_are_kept(cluster: ApiCluster, namespace: str) -> None:
    with pytest.raises(Invalid, match=r"spec\.containers"):
        await cluster.create(PODS, pod(namespace, containers=[]))
    with pytest.raises(Forbidden, match='serviceaccount "gone" not found'):
        await cluster.create(PODS, pod(namespace, serviceAccountName="gone"))
    with pytest.raises(NotFound):
        await cluster.list(ApiResource("none.example", "v1", "things", "Thing"))


async def create_many(cluster: ApiCluster, namespace: str) -> None:
    """More than the quota; the root CA's ConfigMap may count as well."""
    for number in range(3):
        await cluster.create(CONFIG_MAPS, config_map(namespace, f"n{number}"))


async def test_a_quota_is_told_apart(cluster: ApiCluster, namespace: str) -> None:
    quota = {"metadata": {"name": "q", "namespace": namespace}, "spec": {"hard": {"configmaps": "1"}}}
    await cluster.create(QUOTAS, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    async with asyncio.timeout(WAIT_S):
        while not (await cluster.get(QUOTAS, "q", namespace)).get("status", {}).get("used"):
            await asyncio.sleep(0.05)
    with pytest.raises(QuotaExceeded, match="exceeded quota: q"):
        await create_many(cluster, namespace)


async def test_a_namespace_that_ends_is_told_apart(cluster: ApiCluster) -> None:
    name = f"cluster-{uuid4().hex[:8]}"
    await cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    held = config_map(name)
    held["metadata"]["finalizers"] = ["example.com/held"]
    await cluster.create(CONFIG_MAPS, held)
    try:
        await cluster.delete(NAMESPACES, name)
        with pytest.raises(NamespaceEnds, match="because it is being terminated"):
            await cluster.create(CONFIG_MAPS, config_map(name, "late"))
    finally:
        await cluster.patch(CONFIG_MAPS, "a", name, {"metadata": {"finalizers": None}})


async def test_a_watch_tells_what_follows_a_listing(cluster: ApiCluster, namespace: str) -> None:
    listed = await cluster.list(CONFIG_MAPS, namespace, labels="team=x")
    await cluster.create(CONFIG_MAPS, config_map(namespace, team="x"))
    await cluster.create(CONFIG_MAPS, config_map(namespace, "other"))
    await cluster.delete_all(CONFIG_MAPS, namespace, labels="team=x")
    seen = []
    async with asyncio.timeout(WAIT_S):
        async for change in cluster.watch(
            CONFIG_MAPS, namespace, labels="team=x", resource_version=listed.resource_version
        ):
            seen.append((change.type, change.object["metadata"]["name"]))
            if change.type == "DELETED":
                break
    assert seen == [("ADDED", "a"), ("DELETED", "a")]
    assert await cluster.get(CONFIG_MAPS, "other", namespace)


async def test_two_managers_own_their_own_fields(cluster: ApiCluster, namespace: str) -> None:
    await cluster.apply(CONFIG_MAPS, "a", namespace, {"data": {"x": "1"}}, field_manager="one")
    await cluster.apply(CONFIG_MAPS, "a", namespace, {"data": {"y": "2"}}, field_manager="two")
    left = await cluster.apply(CONFIG_MAPS, "a", namespace, {"data": {}}, field_manager="one")
    assert left["data"] == {"y": "2"}


async def test_every_write_is_counted(control_plane: Path, namespace: str) -> None:
    counted: list[tuple[str, str]] = []
    connected = await connect(str(control_plane), wrote=lambda verb, plural: counted.append((verb, plural)))
    try:
        await connected.create(CONFIG_MAPS, config_map(namespace))
        await connected.get(CONFIG_MAPS, "a", namespace)
        await connected.delete(CONFIG_MAPS, "a", namespace)
    finally:
        await connected.close()
    assert counted == [("create", "configmaps"), ("delete", "configmaps")]


async def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(ClusterError) as missing:
        await connect(str(tmp_path / "none"))
    assert missing.value.reason == "NoKubeconfig"
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}],"
        " clusters: [{name: x, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: x, user: {}}]}"
    )
    connected = await connect(str(kubeconfig))
    try:
        with pytest.raises(Unavailable):
            await connected.get(PODS, "p", "default")
    finally:
        await connected.close()


def lease(cluster: ApiCluster, namespace: str, identity: str) -> Lease:
    return Lease(cluster, namespace, identity, lambda: datetime.now(UTC), duration_s=2)


async def test_one_holder_at_a_time_and_a_dead_ones_lease_is_taken_over(cluster: ApiCluster, namespace: str) -> None:
    first, second = lease(cluster, namespace, "first"), lease(cluster, namespace, "second")
    async with asyncio.timeout(WAIT_S):
        await first.acquire()
        assert first.held
        holding, waiting = asyncio.create_task(first.hold()), asyncio.create_task(second.acquire())
        done, _ = await asyncio.wait({waiting}, timeout=4)
        assert not done  # it is renewed
        holding.cancel()
        await waiting
        with pytest.raises(LeaseLost):
            await first.hold()
    assert not first.held
    assert (await cluster.get(LEASES, "hulk-operator", namespace))["spec"]["holderIdentity"] == "second"


async def test_a_released_lease_is_free_at_once(cluster: ApiCluster, namespace: str) -> None:
    first, second = lease(cluster, namespace, "first"), lease(cluster, namespace, "second")
    async with asyncio.timeout(WAIT_S):
        await first.acquire()
        await first.release()
        await second.acquire()
    assert second.held
    found = (await cluster.get(LEASES, "hulk-operator", namespace))["spec"]
    assert (found["holderIdentity"], found["leaseTransitions"]) == ("second", 2)
