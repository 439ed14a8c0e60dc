"""The agents of all nodes: they read their orders, and publish round trips and bandwidths as real agents do.

An agent publishes soon after an order or a result that is new, and otherwise once a minute (`hulk_runtime.agent`). What
it measured is made up: one figure within a region, another between two.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from hulk_operator.cluster import NODE_PROFILES, NODES

from bench.api_server import Bare
from bench.scale.jobs import BETWEEN, WITHIN
from bench.scale.writing import Writer

MANAGER: Final = "hulk-agent"
ECHO_PORT: Final = 9403
SOON_S: Final = 1.5
PUBLISH_S: Final = 60.0
Object = dict[str, Any]


@dataclass(slots=True)
class Agent:
    """One node's agent: its orders, its results, and when it publishes next."""

    address: str
    region: str
    targets: list[str] = field(default_factory=list)
    last_id: int = 0
    transfers: dict[str, float] = field(default_factory=dict)  # by target, when
    timer: asyncio.TimerHandle | None = None


class Agents:
    """Follows the profiles and answers for every node. `addresses`, `regions`: of the nodes."""

    def __init__(self, bare: Bare, writer: Writer, addresses: dict[str, str], regions: dict[str, str]) -> None:
        self._bare, self._writer, self._regions = bare, writer, regions
        self._agents = {name: Agent(address, regions[name]) for name, address in addresses.items()}

    async def run(self) -> None:
        """Until cancelled."""
        async for event in self._bare.watch(NODE_PROFILES.path()):
            profile = event["object"]
            if event["type"] in ("ADDED", "MODIFIED") and profile["metadata"]["name"] in self._agents:
                self._take(profile["metadata"]["name"], profile)

    def _take(self, name: str, profile: Object) -> None:
        """New orders, or nothing but what this agent wrote itself."""
        agent, orders = self._agents[name], profile.get("spec", {}).get("measurements") or ()
        targets = [order["target"] for order in orders if order["kind"] == "rtt"]
        tests = [order for order in orders if order["kind"] == "bandwidth" and order["id"] > agent.last_id]
        if targets != agent.targets or "echo" not in profile.get("status", {}):
            agent.targets = targets
            self._publish_in(name, SOON_S)
        for order in tests:
            agent.last_id = order["id"]
            starts_in_s = datetime.fromisoformat(order["notBefore"]).timestamp() - time.time()
            asyncio.get_running_loop().call_later(max(0.0, starts_in_s) + order["seconds"], self._tested, name, order)

    def _tested(self, name: str, order: Object) -> None:
        if order["role"] == "client":
            self._agents[name].transfers[order["target"]] = time.time()
        self._publish_in(name, 0)

    def _publish_in(self, name: str, after_s: float) -> None:
        agent, loop = self._agents[name], asyncio.get_running_loop()
        if agent.timer is not None:
            agent.timer.cancel()
        agent.timer = loop.call_later(after_s, self._publish, name)

    def _publish(self, name: str) -> None:
        self._writer.apply(f"{NODE_PROFILES.path(None, name)}/status", self._body(name), MANAGER)
        self._publish_in(name, PUBLISH_S)

    def _body(self, name: str) -> Object:
        agent, now = self._agents[name], _text(time.time())
        links = []
        for target in sorted({*agent.targets, *agent.transfers}):
            of = WITHIN if self._regions.get(target) == agent.region else BETWEEN
            rtt_us = of["rttMicroseconds"]
            row = {"target": target, "underLoad": False, "time": now, "samples": 60}
            row |= {"rttP50Microseconds": rtt_us, "rttP95Microseconds": rtt_us + rtt_us // 10}
            if target in agent.transfers:
                row |= {"bandwidthBytesPerSecond": of["bandwidthBytesPerSecond"], "streams": 4}
                row |= {"bandwidthTime": _text(agent.transfers[target])}
            links.append(row)
        status = {
            "lastId": agent.last_id,
            "echo": {"address": agent.address, "port": ECHO_PORT},
            "agentVersion": "bench",
            "keepsWindows": False,
            "links": links,
        }
        kind = {"apiVersion": NODE_PROFILES.api_version, "kind": NODE_PROFILES.kind}
        return {**kind, "metadata": {"name": name}, "status": status}


async def agents(bare: Bare, writer: Writer) -> Agents:
    """Of every node that the server has; each is where its node is."""
    addresses, regions = {}, {}
    for node in await bare.matching(NODES.path(), ""):
        name = node["metadata"]["name"]
        inner = [row["address"] for row in node["status"]["addresses"] if row["type"] == "InternalIP"]
        addresses[name], regions[name] = inner[0], node["metadata"]["labels"]["topology.kubernetes.io/region"]
    return Agents(bare, writer, addresses, regions)


def _text(time_s: float) -> str:
    return datetime.fromtimestamp(int(time_s), UTC).isoformat().replace("+00:00", "Z")
