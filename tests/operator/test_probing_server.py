"""Probing against a real API server, with real agents on loopback addresses for simulated nodes."""

import asyncio
import base64
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from hulk_operator import names
from hulk_operator.api import NodeProfile
from hulk_operator.cluster import EVENTS, NODE_PROFILES, NODES, ApiCluster, ApiResource, NotFound, Object, connect
from hulk_operator.observation import ObservedLink
from hulk_operator.probing import Budget, Prober, ProbeState, measured
from hulk_operator.watched.informers import read
from served_kinds import serve_kinds

pytestmark = pytest.mark.controlplane

RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLES = ApiResource(RBAC, "v1", "clusterroles", "ClusterRole", False)
CLUSTER_ROLE_BINDINGS = ApiResource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False)
SERVICE_ACCOUNTS = ApiResource("", "v1", "serviceaccounts", "ServiceAccount")
AGENT = "probing-agent"
AGENT_RULES = [
    {"apiGroups": [names.GROUP], "resources": ["nodeprofiles"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [names.GROUP], "resources": ["nodeprofiles/status"], "verbs": ["patch"]},
]
PROGRAM = """
import asyncio, sys
from pathlib import Path
from hulk_runtime.agent import __main__ as agent
from hulk_runtime.agent.settings import Settings
node, host, server, token, authority = sys.argv[1:]
asyncio.run(agent.serve(Settings(node, host, server, Path(token), Path(authority)), agent.logs.configure({})))
"""


def now() -> datetime:
    return datetime.now(UTC)


@pytest_asyncio.fixture
async def cluster(control_plane: Path) -> AsyncIterator[ApiCluster]:
    connected = await connect(str(control_plane))
    await serve_kinds(connected, control_plane)
    await connected.delete_all(NODE_PROFILES, "", labels="")  # those of nodes that are gone may be going just now
    yield connected
    await connected.close()


async def exists(cluster: ApiCluster, name: str) -> bool:
    try:
        await cluster.get(NODE_PROFILES, name)
    except NotFound:
        return False
    return True


async def until(prober: Prober, condition: Callable[[ProbeState], bool], timeout_s: float = 90.0) -> ProbeState:
    """Pass after pass until the state fulfils a condition."""
    async with asyncio.timeout(timeout_s):
        while not condition(await prober.tick()):
            await asyncio.sleep(0.5)
    return prober.state


async def profile(cluster: ApiCluster, name: str) -> NodeProfile:
    return NodeProfile.model_validate(await cluster.get(NODE_PROFILES, name))


async def say(cluster: ApiCluster, name: str, *links: Object, last_id: int = 0) -> None:
    """Write a status as an agent would."""
    status = {"lastId": last_id, "echo": {"address": "127.0.9.9", "port": 9403}, "links": list(links)}
    body = {"metadata": {"name": name}, "status": status}
    await cluster.apply(NODE_PROFILES, name, None, body, field_manager="hulk-agent", subresource="status")


def row(target: str, rtt_us: int = 50_000, rate: int = 1_000_000) -> Object:
    figures = {"rttP50Microseconds": rtt_us, "rttP95Microseconds": rtt_us, "bandwidthBytesPerSecond": rate}
    time = now().isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"target": target, "underLoad": False, "time": time, "bandwidthTime": time, "samples": 9, **figures}


async def test_every_node_gets_a_profile_that_goes_with_it(
    cluster: ApiCluster, kwok_nodes: Callable[..., list[str]]
) -> None:
    nodes = kwok_nodes(2)
    prober = Prober(cluster, partial(read, cluster), list)
    await prober.tick()
    await prober.tick()  # again: nothing to create
    for name in nodes:
        owner = (await profile(cluster, name)).metadata.owner_references[0]
        assert (owner.kind, owner.name) == ("Node", name)
        assert owner.uid == (await cluster.get(NODES, name))["metadata"]["uid"]
    await cluster.delete(NODES, nodes[0])
    async with asyncio.timeout(60):
        while await exists(cluster, nodes[0]):
            await asyncio.sleep(0.2)


async def test_a_lie_is_ignored_and_told_in_an_event(cluster: ApiCluster, kwok_nodes: Callable[..., list[str]]) -> None:
    liar, other = kwok_nodes(2)
    prober = Prober(cluster, partial(read, cluster), list)
    await prober.tick()
    await say(cluster, liar, row(other, rtt_us=-7), row("nowhere"))
    await say(cluster, other, row(liar, rate=10**15))
    state = await prober.tick()
    await prober.tick()
    assert state.accepted.links == ()
    assert {(refused.source, refused.target, refused.reason) for refused in state.accepted.rejections} == {
        (liar, other, "ImpossibleRtt"),
        (liar, "nowhere", "UnknownTarget"),
        (other, liar, "ImpossibleBandwidth"),
        *((name, "", "ForeignAddress") for name in (liar, other)),  # they have no agent's pod
    }
    events = (await cluster.list(EVENTS, "default", fields="involvedObject.kind=NodeProfile")).items
    uids = {(await profile(cluster, name)).metadata.uid for name in (liar, other)}  # an older node had the same name
    told = [event for event in events if event["involvedObject"].get("uid") in uids]
    assert sorted(event["reason"] for event in told) == ["ImpossibleBandwidth", "ImpossibleRtt", "UnknownTarget"]
    assert any("round trip -7 us must be > 0" in event["message"] for event in told)


async def test_links_under_load_live_beside_the_idle_ones(
    cluster: ApiCluster, kwok_nodes: Callable[..., list[str]]
) -> None:
    one, other = kwok_nodes(2)
    prober = Prober(cluster, partial(read, cluster), list)
    await prober.tick()
    await say(cluster, one, row(other, rtt_us=50_000))
    await prober.record_load([ObservedLink(one, other, 0.2, 2e6), ObservedLink(one, "foreign", 0.1, 1e6)], {one, other})
    await say(cluster, one, row(other, rtt_us=60_000))
    found = {link.under_load: link for link in (await profile(cluster, one)).status.links}
    assert len(found) == len((await profile(cluster, one)).status.links) == 2
    assert (found[False].rtt_p50_microseconds, found[True].rtt_p50_microseconds) == (60_000, 200_000)
    assert found[True].bandwidth_bytes_per_second == 2_000_000
    await prober.tick()
    idle = measured(prober.state.accepted.links, prober.state.region_of, now())
    assert idle[one, other].rtt_s == 0.06


@dataclass(frozen=True, slots=True)
class Access:
    """How an agent reaches the API server."""

    server: str
    token: Path
    authority: Path


@pytest_asyncio.fixture
async def access(cluster: ApiCluster, control_plane: Path, tmp_path: Path) -> Access:
    """A service account with an agent's rights and nothing more."""
    account = {"metadata": {"name": AGENT, "namespace": "default"}}
    await cluster.apply(SERVICE_ACCOUNTS, AGENT, "default", account, field_manager="test")
    role = {"metadata": {"name": AGENT}, "rules": AGENT_RULES}
    await cluster.apply(CLUSTER_ROLES, AGENT, None, role, field_manager="test")
    binding = {
        "metadata": {"name": AGENT},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": AGENT},
        "subjects": [{"kind": "ServiceAccount", "name": AGENT, "namespace": "default"}],
    }
    await cluster.apply(CLUSTER_ROLE_BINDINGS, AGENT, None, binding, field_manager="test")
    tokens = ApiResource("", "v1", f"serviceaccounts/{AGENT}/token", "TokenRequest")
    request = {"metadata": {"namespace": "default"}, "spec": {"expirationSeconds": 3600}}
    token = (await cluster.create(tokens, request))["status"]["token"]
    return written(tmp_path, token, control_plane)


def written(directory: Path, token: str, kubeconfig: Path) -> Access:
    """The files that the kubelet would mount into an agent's pod."""
    found = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    access = Access(found["server"], directory / "token", directory / "ca.crt")
    access.token.write_text(token)
    access.authority.write_bytes(base64.b64decode(found["certificate-authority-data"]))
    return access


async def start_agent(node: str, host: str, access: Access) -> asyncio.subprocess.Process:
    what = [node, host, access.server, str(access.token), str(access.authority)]
    return await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, *what)


async def test_the_loop_follows_nodes_that_come_and_go(
    cluster: ApiCluster, kwok_nodes: Callable[..., list[str]]
) -> None:
    prober = Prober(cluster, partial(read, cluster), list)
    running = asyncio.create_task(prober.run())
    try:
        (name,) = kwok_nodes(1)
        async with asyncio.timeout(30):
            while not await exists(cluster, name) or name not in prober.state.region_of:
                await asyncio.sleep(0.1)
            await cluster.delete(NODES, name)
            while name in prober.state.region_of:
                await asyncio.sleep(0.1)
    finally:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_agents_measure_what_the_operator_orders(
    cluster: ApiCluster, kwok_nodes: Callable[..., list[str]], access: Access
) -> None:
    nodes = kwok_nodes(2, regions=2)
    hosts = dict(zip(nodes, ("127.0.7.1", "127.0.7.2"), strict=True))
    jobs: list[set[str]] = []
    for node, host in hosts.items():  # the test's agents are no pods
        places = [{"type": "InternalIP", "address": host}]
        await cluster.patch(NODES, node, None, {"status": {"addresses": places}}, subresource="status")
    prober = Prober(cluster, partial(read, cluster), lambda: jobs, Budget(seconds=1, max_bytes=20_000_000))
    agents = [await start_agent(node, host, access) for node, host in hosts.items()]
    try:

        def links(state: ProbeState) -> dict[tuple[str, str], Any]:
            return measured(state.accepted.links, state.region_of, now())

        state = await until(prober, lambda state: len(links(state)) == 2)
        assert links(state).keys() == {(nodes[0], nodes[1]), (nodes[1], nodes[0])}
        assert all(0 < link.rtt_s < 0.1 and link.bandwidth_bytes_per_s > 1e6 for link in links(state).values())
        assert state.num_tests == 2
        assert {len((await profile(cluster, node)).spec.measurements) for node in nodes} <= {1, 2}

        jobs.append(set(nodes))  # a job over both regions: echoes and tests are withdrawn, the figures stay
        await until(prober, lambda state: not any(state.decision.measurements.values()))
        assert links(prober.state).keys() == links(state).keys()
    finally:
        for agent in agents:
            agent.terminate()
        assert [await agent.wait() for agent in agents] == [0, 0]
