"""Two agents as real processes in two network namespaces, with a small API server of their own between them.

The server speaks the three requests an agent makes (list, watch, apply to the status); that a real API server takes
them is tested with the control plane. Namespaces need root and the `ip` program, as the whole lab does.
"""

import asyncio
import contextlib
import ctypes
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

PROGRAM = """
import asyncio, sys
from pathlib import Path
from hulk_runtime.agent import __main__ as agent, logs
from hulk_runtime.agent.settings import Settings
node, host, server, token = sys.argv[1:]
asyncio.run(agent.serve(Settings(node, host, server, Path(token), None), logs.configure({})))
"""
API_PORT = 6443
CLONE_NEWNET = 0x40000000
SUBNETS = itertools.count(os.getpid() % 200)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@dataclass(frozen=True, slots=True)
class Namespaces:
    """Two namespaces joined by one cable."""

    names: tuple[str, str]
    hosts: tuple[str, str]


FAMILIES = {"IPv4": ("10.213.{subnet}.{host}", "24"), "IPv6": ("fd00:213:{subnet}::{host}", "64")}


@pytest.fixture
def namespaces(request: pytest.FixtureRequest) -> Iterator[Namespaces]:
    """With addresses of one family only."""
    subnet = next(SUBNETS)
    form, length = FAMILIES[getattr(request, "param", "IPv4")]
    names = (f"hagent-{os.getpid()}-a", f"hagent-{os.getpid()}-b")
    hosts = (form.format(subnet=subnet, host=1), form.format(subnet=subnet, host=2))
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1])
        for name, host in zip(names, hosts, strict=True):
            ip("-n", name, "address", "add", f"{host}/{length}", "dev", "eth0", *(("nodad",) if ":" in host else ()))
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield Namespaces(names, hosts)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def listen_in(namespace: str, host: str, port: int) -> socket.socket:
    """A listening socket of another namespace; the thread that enters it ends here."""
    found: list[socket.socket] = []

    def enter() -> None:
        with open(f"/run/netns/{namespace}") as handle:
            assert ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), CLONE_NEWNET) == 0
        found.append(socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return found[0]


@dataclass
class ApiServer:
    """NodeProfiles over HTTP. `requests` are the methods and paths that were asked; its clock is that far `ahead`."""

    namespace: str
    host: str
    profiles: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    version: int = 1
    times_made: int = 1
    runner: web.AppRunner | None = None
    ahead: timedelta = timedelta(0)

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/apis/hulk.dev/v1alpha1/nodeprofiles", self._get)
        app.router.add_patch("/apis/hulk.dev/v1alpha1/nodeprofiles/{name}/status", self._apply)
        app.on_response_prepare.append(self._date)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self.runner.setup()
        await web.SockSite(self.runner, listen_in(self.namespace, self.host, API_PORT)).start()

    def now(self) -> datetime:
        """By its clock."""
        return datetime.now(UTC) + self.ahead

    async def _date(self, _: web.Request, response: web.StreamResponse) -> None:
        response.headers["Date"] = format_datetime(self.now(), usegmt=True)

    async def stop(self) -> None:
        if self.runner:
            await self.runner.cleanup()
        self.runner = None

    async def put(self, name: str, spec: dict[str, Any]) -> None:
        """Create a profile or replace its spec."""
        status = self.profiles.get(name, {}).get("status", {})
        await self._store(name, spec, status)

    async def wait(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Until the stored profiles fulfil a condition."""
        async with asyncio.timeout(timeout_s), self.changed:
            await self.changed.wait_for(condition)

    def link(self, name: str, target: str) -> dict[str, Any]:
        rows = self.profiles.get(name, {}).get("status", {}).get("links", [])
        return next((row for row in rows if row["target"] == target), {})

    async def _store(self, name: str, spec: dict[str, Any], status: dict[str, Any]) -> None:
        self.version += 1
        metadata = {"name": name, "uid": f"uid-{name}-{self.times_made}", "resourceVersion": str(self.version)}
        self.profiles[name] = {"metadata": metadata, "spec": spec, "status": status}
        async with self.changed:
            self.changed.notify_all()

    async def _get(self, request: web.Request) -> web.StreamResponse:
        self._admit(request)
        name = request.query["fieldSelector"].removeprefix("metadata.name=")
        if request.query.get("watch") == "true":
            return await self._watch(request, name)
        items = [self.profiles[name]] if name in self.profiles else []
        return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})

    async def _watch(self, request: web.Request, name: str) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        seen = int(request.query["resourceVersion"])

        def newer() -> bool:
            return (
                int(self.profiles.get(name, {"metadata": {"resourceVersion": 0}})["metadata"]["resourceVersion"]) > seen
            )

        while True:
            async with self.changed:
                await self.changed.wait_for(newer)
            profile = self.profiles[name]
            seen = int(profile["metadata"]["resourceVersion"])
            await response.write(json.dumps({"type": "MODIFIED", "object": profile}).encode() + b"\n")

    async def _apply(self, request: web.Request) -> web.StreamResponse:
        self._admit(request)
        assert request.query["fieldManager"] == "hulk-agent"
        assert request.content_type == "application/apply-patch+yaml"
        body, name = json.loads(await request.text()), request.match_info["name"]
        assert body["metadata"]["name"] == name
        await self._store(name, self.profiles[name]["spec"], body["status"])
        return web.json_response(self.profiles[name])

    def _admit(self, request: web.Request) -> None:
        assert request.headers["Authorization"] == "Bearer secret"
        self.requests.append((request.method, request.path))


@pytest.fixture
async def api(namespaces: Namespaces) -> AsyncIterator[ApiServer]:
    server = ApiServer(namespaces.names[0], namespaces.hosts[0])
    await server.start()
    yield server
    await server.stop()


class Agents:
    """The agents' processes by node name (a, b)."""

    def __init__(self, namespaces: Namespaces, token: Path) -> None:
        self.namespaces = namespaces
        self.token = token
        self.processes: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, *nodes: str) -> None:
        for node in nodes:
            index = "ab".index(node)
            host = self.namespaces.hosts[0]
            server = f"http://[{host}]:{API_PORT}" if ":" in host else f"http://{host}:{API_PORT}"
            where = ["nsenter", f"--net=/run/netns/{self.namespaces.names[index]}"]
            what = [sys.executable, "-c", PROGRAM, node, self.namespaces.hosts[index], server, str(self.token)]
            self.processes[node] = await asyncio.create_subprocess_exec(*where, *what)

    async def stop(self, node: str, number: signal.Signals = signal.SIGTERM) -> int:
        process = self.processes.pop(node)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        async with asyncio.timeout(10):
            return await process.wait()

    def port_is_open(self, node: str, port: int) -> bool:
        """Whether something listens on a TCP port in the node's namespace, seen without connecting to it."""
        network = Path(f"/proc/{self.processes[node].pid}/net")
        tables = (network / "tcp").read_text() + (network / "tcp6").read_text()
        return bool(re.search(rf":{port:04X} 0+:0000 0A", tables))


@pytest.fixture
async def agents(namespaces: Namespaces, tmp_path: Path) -> AsyncIterator[Agents]:
    token = tmp_path / "token"
    token.write_text("secret\n")
    found = Agents(namespaces, token)
    yield found
    for node in list(found.processes):
        await found.stop(node, signal.SIGKILL)


def echo(order_id: int, target: str, host: str) -> dict[str, Any]:
    return {"id": order_id, "target": target, "address": host, "port": 9403, "kind": "rtt"}


def transfer(order_id: int, target: str, host: str, role: str, seconds: int = 1) -> dict[str, Any]:
    how = {"role": role, "streams": 2, "seconds": seconds, "maxBytes": 0}
    return {"id": order_id, "target": target, "address": host, "port": 9404, "kind": "bandwidth", **how}


async def order(api: ApiServer, hosts: tuple[str, str], number: int, seconds: int = 1) -> None:
    """Echoes both ways, and a transfer from a to b."""
    a = [echo(1, "b", hosts[1]), transfer(number, "b", hosts[1], "client", seconds)]
    b = [echo(2, "a", hosts[0]), transfer(number, "a", hosts[0], "server", seconds)]
    stamp = {"notBefore": now_text(api)}
    for rows in (a, b):
        rows[1] |= stamp
    await api.put("a", {"measurementId": number, "measurements": a})
    await api.put("b", {"measurementId": number, "measurements": b})


def now_text(api: ApiServer) -> str:
    return api.now().isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize("namespaces", FAMILIES, indirect=True)
async def test_two_agents_measure_their_link_and_open_the_port_only_for_it(api: ApiServer, agents: Agents) -> None:
    hosts = agents.namespaces.hosts
    await agents.start("a", "b")
    await api.put("a", {})
    await api.put("b", {})
    await api.wait(lambda: all("echo" in api.profiles[node].get("status", {}) for node in "ab"))
    assert api.profiles["a"]["status"]["echo"] == {"address": hosts[0], "port": 9403}
    assert not agents.port_is_open("b", 9404)

    await order(api, hosts, 10, seconds=2)
    async with asyncio.timeout(10):
        while not agents.port_is_open("b", 9404):
            await asyncio.sleep(0.02)
    assert not agents.port_is_open("a", 9404)
    await api.wait(lambda: all(api.profiles[node]["status"].get("lastId") == 10 for node in "ab"))
    await api.wait(lambda: bool(api.link("a", "b").get("rttP50Microseconds") and api.link("b", "a")))

    link = api.link("a", "b")
    assert link["bandwidthBytesPerSecond"] > 1_000_000
    assert link["streams"] == 2
    assert not link["underLoad"]
    assert 0 < link["rttP50Microseconds"] <= link["rttP95Microseconds"] < 100_000
    assert "bandwidthBytesPerSecond" not in api.link("b", "a")  # b only received
    assert not agents.port_is_open("b", 9404)
    assert {path for method, path in api.requests if method == "PATCH"} == {
        f"/apis/hulk.dev/v1alpha1/nodeprofiles/{node}/status" for node in "ab"
    }


async def test_nodes_whose_clocks_are_an_hour_off_meet_and_say_when_by_the_servers_clock(
    api: ApiServer, agents: Agents
) -> None:
    api.ahead = timedelta(hours=1)
    await agents.start("a", "b")
    await order(api, agents.namespaces.hosts, 10)
    await api.wait(lambda: {"bandwidthTime", "rttP50Microseconds"} <= api.link("a", "b").keys())
    for name in ("time", "bandwidthTime"):
        assert abs(api.now() - datetime.fromisoformat(api.link("a", "b")[name])) < timedelta(minutes=1)


async def test_an_agent_outlives_its_api_server_and_takes_over_its_own_results(api: ApiServer, agents: Agents) -> None:
    hosts = agents.namespaces.hosts
    await agents.start("a", "b")
    await order(api, hosts, 10)
    await api.wait(lambda: "bandwidthBytesPerSecond" in api.link("a", "b"))
    measured = api.link("a", "b")["bandwidthBytesPerSecond"]

    await api.stop()
    assert await agents.stop("a") == 0
    await agents.start("a")  # while there is no API server
    api.profiles["b"]["status"] = {}
    await api.start()
    await api.wait(lambda: api.profiles["b"]["status"].get("lastId") == 10)  # b says again what it knew
    num_patches = len([path for method, path in api.requests if method == "PATCH" and "/a/" in path])
    await api.wait(
        lambda: len([path for method, path in api.requests if method == "PATCH" and "/a/" in path]) > num_patches
    )
    assert api.link("a", "b")["bandwidthBytesPerSecond"] == measured
    assert api.profiles["a"]["status"]["lastId"] == 10


async def test_what_was_measured_goes_with_its_profile(api: ApiServer, agents: Agents) -> None:
    """Who deletes a profile wants its links measured anew."""
    await agents.start("a", "b")
    await order(api, agents.namespaces.hosts, 10)
    await api.wait(lambda: "bandwidthBytesPerSecond" in api.link("a", "b"))
    del api.profiles["a"]
    api.times_made = 2
    await api.put("a", {"measurementId": 0, "measurements": []})
    await api.wait(lambda: "echo" in api.profiles["a"]["status"])
    assert api.profiles["a"]["status"]["links"] == []
    assert api.profiles["a"]["status"]["lastId"] == 0


async def serve(api: ApiServer, agents: Agents) -> None:
    """Start b's agent and order it to serve a test for a; returns when its port is open."""
    await agents.start("b")
    rows = [transfer(10, "a", agents.namespaces.hosts[0], "server") | {"notBefore": now_text(api)}]
    await api.put("b", {"measurementId": 10, "measurements": rows})
    await until_port(agents, is_open=True)


async def until_port(agents: Agents, is_open: bool) -> None:
    """Wait until b's bandwidth port is open, or closed."""
    async with asyncio.timeout(20):
        while agents.port_is_open("b", 9404) != is_open:
            await asyncio.sleep(0.02)


async def test_a_withdrawn_order_ends_its_test(api: ApiServer, agents: Agents) -> None:
    await serve(api, agents)
    await api.put("b", {"measurementId": 10, "measurements": []})
    await until_port(agents, is_open=False)
    assert api.profiles["b"]["status"].get("lastId", 0) == 0


async def test_sigterm_leaves_nothing_even_during_a_test(api: ApiServer, agents: Agents) -> None:
    await serve(api, agents)
    assert await agents.stop("b") == 0
    left = subprocess.run(["ip", "netns", "pids", agents.namespaces.names[1]], check=True, capture_output=True)  # noqa: ASYNC221
    assert left.stdout == b""


async def test_the_http_port_tells_what_the_agent_does(api: ApiServer, agents: Agents) -> None:
    hosts = agents.namespaces.hosts
    await agents.start("a", "b")
    await order(api, hosts, 10)
    await api.wait(lambda: "bandwidthBytesPerSecond" in api.link("a", "b"))
    enter = ["nsenter", f"--net=/run/netns/{agents.namespaces.names[0]}"]
    fetch = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())"

    async def get(path: str) -> str:
        command = [*enter, sys.executable, "-c", fetch, f"http://{hosts[0]}:9402/{path}"]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        return (await process.communicate())[0].decode()

    assert (await get("healthz")).strip() == (await get("readyz")).strip() == "ok"
    text = await get("metrics")
    assert 'hulk_agent_bandwidth_tests_total{result="done"} 1.0' in text
    assert "hulk_agent_has_profile 1.0" in text
    assert "hulk_agent_echo_targets 1.0" in text
