"""Events -> store and queue: which event wakes whom, and what the operator's settings are."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from fake_cluster import FakeCluster
from hulk_operator import names
from hulk_operator.cluster import (
    LEASES,
    NODE_PROFILES,
    NODES,
    PODS,
    ApiResource,
    Change,
    ClusterError,
    Gone,
    Informer,
    Listing,
    Object,
    Unavailable,
    informer,
)
from hulk_operator.handlers.operator import Parts, run
from hulk_operator.handlers.settings import Settings, from_environment
from hulk_operator.handlers.watches import Watches, settings
from hulk_operator.metrics import Health
from hulk_operator.pods import Instrumentation, pods
from hulk_operator.probing import Budget, Prober, runner
from hulk_operator.reconcile.polling import Workers
from hulk_operator.watched import News, NodeState, Snapshot, Store
from hulk_operator.watched import informers as watched_informers
from hulk_operator.watched.informers import Informers
from hulk_operator.watched.nodes import Node
from views import NOW, job, plan


class World:
    """Watches over an empty store, with what they asked for."""

    def __init__(self) -> None:
        self.added: list[str] = []
        self.num_changes = self.num_measured = 0
        self.store = Store()
        self.watches = Watches(self.store, self.added.append, self._changed)
        self.store.news = News(self.added.append, self._changed, self._measured)

    def _changed(self) -> None:
        self.num_changes += 1

    def _measured(self) -> None:
        self.num_measured += 1

    def asked(self) -> tuple[list[str], int]:
        """What was asked for since the last question."""
        asked = self.added[:], self.num_changes
        self.added.clear()
        self.num_changes = 0
        return asked


def worker(version: int, phase: str = "Pending", node: str = "") -> dict[str, Any]:
    (pod,) = pods(job(), plan(), [0])
    metadata = {**pod["metadata"], "uid": "p", "resourceVersion": str(version)}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node}, "status": {"phase": phase}}


def node(version: int, ready: str = "True", heartbeat: str = "1", **spec: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": heartbeat}
    status = {"conditions": [condition], "allocatable": {"nvidia.com/gpu": "1"}}
    return {"metadata": {"name": "n", "resourceVersion": str(version)}, "spec": spec, "status": status}


def test_a_job_is_looked_at_whenever_it_changes() -> None:
    world = World()
    world.watches.on_job(None, job().wire())
    assert world.asked() == (["lab/demo"], 0)
    assert world.store.job("lab/demo") is not None
    world.watches.on_job("DELETED", job().wire())
    assert world.asked() == (["lab/demo"], 1)
    assert world.store.job("lab/demo") is None


def test_a_pod_that_ends_or_goes_may_make_room() -> None:
    world = World()
    pods = world.store.pods
    pods.put(worker(1))
    assert world.asked() == (["lab/demo"], 0)
    pods.put(worker(1))  # known from its creation
    assert world.asked() == ([], 0)
    pods.put(worker(2, "Succeeded"))
    assert world.asked() == (["lab/demo"], 1)
    pods.delete(worker(3, "Succeeded"))
    assert world.asked() == (["lab/demo"] * 2, 2)  # as it was in the end, and that it is gone


def other(version: int, where: str, devices: str = "1", phase: str = "Running", **labels: str) -> dict[str, Any]:
    spec = {"nodeName": where, "containers": [{"resources": {"limits": {"nvidia.com/gpu": devices, "cpu": "2"}}}]}
    status = {"phase": phase, "podIP": "10.0.0.9"}
    metadata = {"name": "x", "namespace": "hulk-system", "resourceVersion": str(version), "labels": labels}
    return {"metadata": metadata, "spec": spec, "status": status}


def test_pods_of_others_are_sums_by_node() -> None:
    world = World()
    world.store.others.put(other(1, ""))
    assert world.store.snapshot().taken == {}
    world.store.others.put(other(2, "n"))
    assert world.store.snapshot().taken == {"n": {"nvidia.com/gpu": 1, "cpu": 2000, "pods": 1}}
    assert world.asked() == ([], 0)
    world.store.others.delete(other(3, "n"))
    assert world.store.snapshot().taken == {}
    assert world.asked() == ([], 1)  # devices are free again
    assert world.num_measured == 0


def test_agents_say_where_they_are_in_their_own_namespace_only() -> None:
    world, agent = World(), dict(term.split("=") for term in names.AGENT_SELECTOR.split(","))
    labels = {"app.kubernetes.io/name": "hulk", "app.kubernetes.io/component": "agent"}
    assert agent == labels
    world.store.others.put(other(1, "n", **labels))
    assert world.store.snapshot().agents == {"n": {"10.0.0.9"}}
    assert world.num_measured == 1
    elsewhere = other(2, "m", **labels)
    elsewhere["metadata"]["namespace"] = "lab"
    world.store.others.put(elsewhere)
    assert world.store.snapshot().agents == {"n": {"10.0.0.9"}}


class Streams(FakeCluster):
    """A cluster whose watches say what the test says; an error ends one."""

    def __init__(self, listings: list[Listing], streams: list[list[Change | ClusterError]]) -> None:
        super().__init__()
        self.listings, self.streams = listings, streams
        self.now = "0"  # the version that the server has
        self.watched_from: list[str] = []
        self.over = asyncio.Event()

    async def version(self, *_: Any, **__: Any) -> str:
        return self.now

    async def pages(self, *_: Any, **__: Any) -> AsyncIterator[Listing]:
        yield self.listings.pop(0)

    async def watch(self, *_: Any, resource_version: str = "", **__: Any) -> AsyncIterator[Change]:
        self.watched_from.append(resource_version)
        if not self.streams:
            self.over.set()
            await asyncio.Event().wait()
        for said in self.streams.pop(0):
            if isinstance(said, ClusterError):
                raise said
            yield said


async def test_a_watch_goes_on_where_it_ended_and_lists_again_when_it_cannot() -> None:
    listings = [Listing((worker(1),), "1"), Listing((), "9")]
    streams: list[list[Change | ClusterError]] = [
        [Change("MODIFIED", worker(2, "Running"))],  # the server ends it after a while
        [Gone(410, "Expired", "too old")],
    ]
    cluster, world = Streams(listings, streams), World()
    heard: list[None] = []
    task = asyncio.create_task(Informer(cluster, PODS, world.store.pods, lambda: heard.append(None)).run())
    await asyncio.wait_for(cluster.over.wait(), 5)
    task.cancel()
    assert len(heard) == 4  # a listing, a change, the end of a quiet watch, a listing; nothing for an error
    assert cluster.watched_from == ["1", "2", "9"]
    assert world.store.pods_of("lab/demo") == ()  # its deletion was never told
    assert set(world.added) == {"lab/demo"}


async def test_an_informer_says_that_it_hears() -> None:
    bookmark = Change("BOOKMARK", {"metadata": {"resourceVersion": "3"}})
    cluster = Streams([Listing((), "1")], [[bookmark]])
    heard: list[str] = []
    task = asyncio.create_task(Informer(cluster, NODES, Store().nodes, lambda: heard.append("nodes")).run())
    await asyncio.wait_for(cluster.over.wait(), 5)
    task.cancel()
    assert heard == ["nodes"] * 3  # a listing, that nothing changed, the end of a quiet watch
    assert cluster.watched_from == ["1", "3"]


async def test_a_server_that_is_back_in_time_is_believed() -> None:
    """As after a backup was restored: what is kept has higher versions than what is true."""
    listings = [Listing((node(90), {**node(80), "metadata": {"name": "m", "resourceVersion": "80"}}), "100")]
    listings.append(Listing((node(50, ready="Unknown"),), "60"))
    cluster = Streams(listings, [[Gone(410, "Expired", "too old")]])
    store = Store()
    await followed(cluster, store)
    assert readiness(store) == {"n": "Unknown"}


async def test_a_version_that_is_too_old_as_soon_as_it_was_listed_is_not_listed_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    too_old: list[Change | ClusterError] = [Gone(410, "Expired", "too old")]
    cluster = Streams([Listing((node(number),), str(number)) for number in range(1, 6)], [too_old] * 4)
    pauses_s: list[float] = []

    async def paused(pause_s: float) -> None:
        pauses_s.append(pause_s)

    monkeypatch.setattr(informer.asyncio, "sleep", paused)
    monkeypatch.setattr(informer.random, "uniform", lambda low, high: high)
    task = asyncio.create_task(Informer(cluster, NODES, Store().nodes).run())
    await asyncio.wait_for(cluster.over.wait(), 5)
    task.cancel()
    assert [pause_s for pause_s in pauses_s if pause_s] == [1.0, 2.0, 4.0, 8.0]  # 0: a turn for others


async def followed(cluster: Streams, store: Store) -> None:
    """Until its streams are over."""
    following = Informer(cluster, NODES, store.nodes)
    following._retry_s = 0.01
    task = asyncio.create_task(following.run())
    await asyncio.wait_for(cluster.over.wait(), 5)
    task.cancel()


def readiness(store: Store) -> dict[str, str]:
    return {name: state.ready for name, state in store.node_states().items()}


async def test_a_watch_that_broke_is_not_resumed_from_a_version_that_is_to_come() -> None:
    """A restored server would tell nothing until it has counted so far."""
    listings = [Listing((node(90),), "100"), Listing((node(50, ready="Unknown"),), "60")]
    cluster = Streams(listings, [[Unavailable(0, "NoConnection", "broke")]])
    cluster.now, store = "60", Store()
    await followed(cluster, store)
    assert cluster.watched_from == ["100", "60"]
    assert readiness(store) == {"n": "Unknown"}


async def test_a_watch_that_broke_goes_on_where_the_server_did() -> None:
    cluster = Streams([Listing((node(90),), "100")], [[Unavailable(0, "NoConnection", "broke")]])
    cluster.now = "100"
    await followed(cluster, Store())
    assert cluster.watched_from == ["100", "100"]


async def test_a_backup_whose_versions_were_raised_is_believed() -> None:
    """As etcd's own restore does it: the listing is newer than all that is known, and what is in it is older."""
    gone = {**node(80), "metadata": {"name": "m", "resourceVersion": "80"}}
    again = {**node(40), "metadata": {"name": "again", "resourceVersion": "40"}}
    deleted = Change("DELETED", {**again, "metadata": {"name": "again", "resourceVersion": "101"}})
    listings = [Listing((node(90), gone, again), "100"), Listing((node(50, ready="Unknown"), again), "1000100")]
    cluster, store = Streams(listings, [[deleted, Gone(410, "Expired", "compacted")]]), Store()
    await followed(cluster, store)
    assert set(readiness(store)) == {"n", "again"}
    assert readiness(store)["n"] == "Unknown"


def test_a_listing_that_was_made_before_a_write_is_not_believed() -> None:
    store = Store()
    store.nodes.put(node(90, ready="Unknown"))
    assert store.nodes.replace(Listing((node(50),), "80")) == set()
    assert readiness(store) == {"n": "Unknown"}


def test_a_nodes_heartbeat_wakes_nobody_but_its_health_and_a_cordon_do() -> None:
    world = World()
    world.store.pods.put(worker(1, "Running", "n"))
    world.store.nodes.put(node(1))
    world.asked()
    world.store.nodes.put(node(2, heartbeat="2"))
    assert world.asked() == ([], 0)
    world.store.nodes.put(node(3, ready="Unknown"))
    assert world.asked() == (["lab/demo"], 1)
    world.store.nodes.put(node(4, ready="Unknown", unschedulable=True))
    assert world.asked() == (["lab/demo"], 1)
    world.store.nodes.delete(node(5, ready="Unknown", unschedulable=True))
    assert world.asked() == (["lab/demo"], 1)


def profile(version: int, **link: Any) -> dict[str, Any]:
    row = {"target": "m", "time": "2026-05-04T12:00:00Z", **link}
    return {"metadata": {"name": "n", "resourceVersion": str(version)}, "spec": {}, "status": {"links": [row]}}


def test_a_link_that_becomes_known_wakes_the_planning_pass() -> None:
    world = World()
    world.store.profiles.put(profile(1))
    world.store.profiles.put(profile(2))
    assert world.asked() == ([], 1)


def test_a_link_that_became_another_one_wakes_the_planning_pass() -> None:
    world = World()
    for version, (rate, asked) in enumerate(((1_000_000, 1), (1_010_000, 0), (10_000_000, 1)), 1):
        world.store.profiles.put(profile(version, bandwidthBytesPerSecond=rate))
        assert world.asked() == ([], asked)
    world.store.profiles.delete(profile(4, bandwidthBytesPerSecond=rate))
    world.store.profiles.put(profile(5, bandwidthBytesPerSecond=rate))
    assert world.asked() == ([], 1)


def test_a_profile_that_cannot_be_read_is_told_of() -> None:
    store = Store()
    store.profiles.put({"metadata": {"name": "n", "resourceVersion": "1"}, "status": {"links": "none"}})
    seen = store.snapshot()
    assert seen.profiles == {}
    assert "status.links" in seen.unreadable["n"]


def test_what_is_declared_wakes_the_planning_pass() -> None:
    world = World()
    declared = {"apiVersion": names.API_VERSION, "kind": names.TOPOLOGY_KIND, "spec": {}}
    world.store.topologies.put({**declared, "metadata": {"name": "cluster", "resourceVersion": "1"}})
    assert world.asked() == ([], 1)


async def test_sigterm_ends_an_operator_that_waits_for_the_lease() -> None:
    lease = {"metadata": {"name": names.LEASE, "namespace": "system"}, "spec": {"holderIdentity": "another"}}
    asked = asyncio.Event()

    class Waiting(FakeCluster):
        async def get(self, *given: Any, **options: Any) -> Object:
            asked.set()
            return await super().get(*given, **options)

    async def serve(_: Parts) -> None:
        await asyncio.Event().wait()

    class Nobody:
        """No worker runs."""

    mine = Settings("me", lease_namespace="system", lease_s=3600)
    cluster = Waiting((LEASES, lease))
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("not handled"))
    try:
        running = asyncio.ensure_future(run(cluster, cast(Workers, Nobody()), mine, Health(), serve, lambda: NOW))
        await asyncio.wait_for(asked.wait(), 10)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(running, 10)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [write for _, write in cluster.writes if "leases" in write] == []  # it is another's still


async def test_a_probing_pass_that_fails_is_counted_and_ends_nothing() -> None:
    failures: list[int] = []

    async def seen() -> Snapshot:
        return Snapshot({"n": Node({"metadata": {}}, NodeState())})  # no node has no name

    prober = Prober(FakeCluster(), seen, tuple, failed=lambda: failures.append(1))
    await prober._try_tick()
    assert failures == [1]
    assert prober.state.num_errors == 1


class LateWatch(FakeCluster):
    """Lists what there is; of what happens later its watches tell nothing."""

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[Change]:
        await asyncio.Event().wait()
        raise AssertionError
        yield


def agent_on(index: int) -> tuple[tuple[ApiResource, Object], tuple[ApiResource, Object]]:
    """A node in a region of its own, and the profile of its agent."""
    address, name = f"10.0.0.{index}", f"n{index}"
    labels = {"topology.kubernetes.io/region": f"r{index}"}
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": address}],
    }
    profile = {"apiVersion": names.API_VERSION, "kind": names.PROFILE_KIND, "metadata": {"name": name}, "spec": {}}
    echo = {"address": address, "port": 9403}
    return (NODES, {"metadata": {"name": name, "labels": labels}, "status": status}), (
        NODE_PROFILES,
        {**profile, "status": {"echo": echo}},
    )


async def test_a_pass_knows_what_was_ordered_before_a_watch_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would take its orders back, as it did in the first seconds of a CRD, and try again a minute later."""
    monkeypatch.setattr(runner, "MIN_INTERVAL_S", 0.0)
    monkeypatch.setattr(runner, "MAX_INTERVAL_S", 0.01)
    passes: list[int] = []
    cluster, store = LateWatch(*agent_on(1), *agent_on(2)), Store()
    informers = Informers(cluster, store)
    prober = Prober(cluster, informers.seen, lambda: passes.append(1) or (), wrote=store.profiles.put)
    following = asyncio.create_task(informers.run())
    running = asyncio.create_task(prober.run())
    while len(passes) < 3:
        assert not running.done()
        assert prober.state.num_errors == 0
        await asyncio.sleep(0.01)
    for task in (running, following):
        task.cancel()
    await asyncio.wait([running, following])
    assert (prober.state.num_tests, prober.state.decision.num_pending) == (1, 1)


def test_kopf_only_watches() -> None:
    chosen = settings()
    assert chosen.peering.standalone
    assert not chosen.posting.enabled
    registry = World().watches.registry()
    assert len(registry._watching.get_all_handlers()) == 2
    assert registry._spawning.get_all_handlers() == []
    assert registry._changing.get_all_handlers() == []  # these would write finalizers and annotations


def test_settings_come_from_the_environment() -> None:
    assert from_environment({}, "me") == Settings("me")
    given = {
        "HULK_NAMESPACE": "lab",
        "HULK_LEASE_NAMESPACE": "sys",
        "HULK_LEASE_SECONDS": "3",
        "HULK_METRICS_PORT": "1",
        "HULK_PROBING_MAX_TESTS": "0",
        "HULK_PROBING_BYTES_PER_TEST": "2",
        "HULK_PROBING_BYTES_PER_HOUR": "3",
        "HULK_PROBING_REFRESH_SECONDS": "4",
        "HULK_POD_GROUPS": "true",
        "HULK_INSTRUMENTATION_IMAGE": "small:1",
        "HULK_INSTRUMENTATION_PULL_POLICY": "Never",
    }
    found = from_environment(given, "me")
    assert (found.namespace, found.lease_namespace, found.lease_s, found.metrics_port) == ("lab", "sys", 3, 1)
    assert found.probing == Budget(max_tests=0, max_bytes=2, bytes_per_hour=3, refresh_s=4)
    assert found.pod_groups
    assert found.instrumentation == Instrumentation("small:1", "Never")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LEASE_SECONDS", "0", "0 must be at least 1"),
        ("LEASE_SECONDS", "x", "'x' must be a whole number"),
        ("METRICS_PORT", "99999", "99999 must be at most 65535"),
        ("METRICS_PORT", "-1", "-1 must be at least 0"),
        ("PROBING_BYTES_PER_HOUR", "-1", "-1 must be at least 0"),
        ("PROBING_REFRESH_SECONDS", "0", "0 must be at least 1"),
        ("INSTRUMENTATION_PULL_POLICY", "never", "'never' must be one of Always, IfNotPresent, Never"),
    ],
)
def test_wrong_settings_are_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"HULK_{name}: {message}"):
        from_environment({f"HULK_{name}": value}, "me")


def test_a_wrong_setting_is_told_in_one_line() -> None:
    environment = {**os.environ, "HULK_LEASE_SECONDS": "abc"}
    ended = subprocess.run(
        [sys.executable, "-m", "hulk_operator"], env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (1, "hulk-operator: HULK_LEASE_SECONDS: 'abc' must be a whole number\n")


async def test_a_term_begins_when_what_broke_is_followed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may have been restored from a backup meanwhile: what is known was never, and deletes pods."""
    cluster = Streams([Listing((node(90),), "100")], [[Unavailable(0, "NoConnection", "broke")]])
    cluster.now, store = "100", Store()
    informers = Informers(cluster, store)
    one = Informer(cluster, NODES, store.nodes)
    monkeypatch.setattr(informers, "_found", lambda: asyncio.sleep(0, [one]))
    following = asyncio.create_task(informers.run())
    await informers.seen()
    while one.connected.is_set():
        await asyncio.sleep(0)
    assert informers.synced  # and the operator is ready still
    await asyncio.wait_for(informers.connected(), 5)
    assert cluster.watched_from == ["100", "100"]
    monkeypatch.setattr(watched_informers, "CONNECT_S", 0.01)
    one.connected.clear()  # as of a kind that is not served any more
    await asyncio.wait_for(informers.connected(), 5)
    following.cancel()
