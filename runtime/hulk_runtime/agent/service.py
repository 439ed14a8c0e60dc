"""The running agent: four loops over one node's profile.

    follow     profile -> orders
    probe      orders -> echoes, one target after another at a low rate
    test       orders -> one bandwidth test at a time; a withdrawn order ends its test
    publish    what was measured -> the profile's status, soon after news and otherwise once a minute

The API server may be away at any time: measuring goes on, and the newest figures are published when it is back.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from hulk_runtime import background
from hulk_runtime.agent import bandwidth, http_server, orders, results, tasks
from hulk_runtime.agent.api_client import Api, ApiError, Profile, open_session
from hulk_runtime.agent.echo import Echo
from hulk_runtime.agent.iperf import IperfError, Transfer
from hulk_runtime.agent.orders import Address, BandwidthOrder, Orders
from hulk_runtime.agent.results import Measured
from hulk_runtime.agent.server_clock import ServerClock
from hulk_runtime.agent.settings import Settings
from hulk_runtime.agent.slow_start_after_idle import keeps_windows

log = logging.getLogger(__name__)

PROBE_INTERVAL_S: Final = 1.0  # per target
FIRST_PROBE_INTERVAL_S: Final = 0.1  # until a target has its first figures
MAX_PROBES_PER_S: Final = 64.0  # all targets together
MIN_PUBLISH_S: Final = 1.0
MAX_PUBLISH_S: Final = 60.0
NEWS_SHARE: Final = 0.2  # a median that moved by more than this share and than NEWS_US is published soon
NEWS_US: Final = 1_000


@dataclass(slots=True)
class Agent:
    """One node's agent. `run` returns when it is cancelled."""

    settings: Settings
    api: Api
    echo: Echo
    orders: Orders = field(default_factory=Orders)
    links: dict[str, Measured] = field(default_factory=dict)
    last_id: int = 0
    has_profile: bool = False
    tests: dict[str, int] = field(default_factory=lambda: {"done": 0, "failed": 0})
    _changed: asyncio.Event = field(default_factory=asyncio.Event)  # orders
    _news: asyncio.Event = field(default_factory=asyncio.Event)  # results
    _published: dict[str, int] = field(default_factory=dict)  # median by target, as the API server has it
    _seeded: str = ""  # uid of the profile whose earlier results were taken over

    async def run(self) -> None:
        """Measure until cancelled."""
        await tasks.keep({"follow": self._follow, "probe": self._probe, "test": self._test, "publish": self._publish})

    def health(self) -> http_server.Health:
        """The state for /metrics."""
        counters = self.echo.counters
        echoes = {name: getattr(counters, name) for name in ("sent", "answered", "lost", "replied", "refused")}
        num_targets = len(self.echo.targets())
        return http_server.Health(
            echoes,
            dict(self.tests),
            len(self.links),
            num_targets,
            self.api.num_errors,
            self.has_profile,
            background.failures(),
        )

    async def _follow(self) -> None:
        async for profile in self.api.follow():
            self.has_profile = profile is not None
            self._take(profile or {})

    def _take(self, profile: Profile) -> None:
        uid, status = profile.get("metadata", {}).get("uid", ""), profile.get("status", {})
        if uid != self._seeded:
            self._seed(uid, status)
        if "echo" not in status or status.get("lastId", 0) != self.last_id:  # not yet said, or lost
            self._news.set()
        self.orders = orders.parse(profile.get("spec", {}))
        self.echo.aim(self.orders.rtt_targets())
        self._changed.set()

    def _seed(self, uid: str, status: Profile) -> None:
        """Take over what an earlier process measured.

        A deleted profile takes its figures with it, so that who deletes it has everything measured anew; in a new one
        the ids start again.
        """
        self._seeded = uid
        self.last_id = status.get("lastId", 0)
        self.links = results.read(status.get("links", []))
        self._published = {}

    async def _probe(self) -> None:
        while True:
            targets = self.echo.targets()
            self.echo.expire()
            for target in targets:
                if target in self.echo.targets():  # orders may change between two probes
                    self.echo.ask(target)
                    await asyncio.sleep(1 / MAX_PROBES_PER_S)
            self._note_rtts()
            new = any(self.echo.is_new(target) for target in self.echo.targets())
            await asyncio.sleep(FIRST_PROBE_INTERVAL_S if new else PROBE_INTERVAL_S)

    def _note_rtts(self) -> None:
        rtts = self.echo.results()
        self.links = results.kept(results.with_rtts(self.links, rtts))
        for target, rtt in rtts.items():
            known_us = self._published.get(target)
            if known_us is None or abs(rtt.p50_us - known_us) > max(NEWS_US, NEWS_SHARE * known_us):
                self._news.set()

    async def _test(self) -> None:
        while True:
            order = self._next_test()
            if order is None:
                self._changed.clear()
                await self._changed.wait()
            else:
                await self._carry_out(order)

    def _next_test(self) -> BandwidthOrder | None:
        waiting = [order for order in self.orders.bandwidth if order.id > self.last_id]
        return min(waiting, key=lambda order: order.id, default=None)

    async def _carry_out(self, order: BandwidthOrder) -> None:
        """An order whose test breaks is over as well: else it would be carried out again and again."""
        own_host = self.settings.host_towards(order.address.host)
        test = bandwidth.run(order, own_host, self.api.clock.now_s)
        try:
            number, transfer = await tasks.first_of(test, self._withdrawn(order))
            if number == 0:
                self._finish(order, transfer)
        except (IperfError, OSError) as error:
            log.warning("bandwidth test %d: %s", order.id, error)
            self._over(order, "failed")
        except Exception as error:  # noqa: BLE001
            background.count("test", error, f"and bandwidth test {order.id} has failed")
            self._over(order, "failed")

    async def _withdrawn(self, order: BandwidthOrder) -> None:
        while order in self.orders.bandwidth:
            self._changed.clear()
            await self._changed.wait()

    def _finish(self, order: BandwidthOrder, transfer: Transfer | None) -> None:
        if transfer is not None:
            log.info("to %s: %d B/s, %d streams", order.target, transfer.bytes_per_s, transfer.num_streams)
            self.links = results.with_transfer(self.links, order.target, transfer, self.api.clock.now_s())
        self._over(order, "done")

    def _over(self, order: BandwidthOrder, result: str) -> None:
        self.tests[result] += 1
        self.last_id = order.id
        self._news.set()

    async def _publish(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MAX_PUBLISH_S):
                    await self._news.wait()
            if self.has_profile:
                self._news.clear()
                await self._publish_once()
            await asyncio.sleep(MIN_PUBLISH_S)

    async def _publish_once(self) -> None:
        medians = {target: link.rtt.p50_us for target, link in self.links.items() if link.rtt}
        address = Address(self.settings.host, self.echo.port)
        try:
            await self.api.apply_status(results.status(self.links, self.last_id, address, keeps_windows()))
            self._published = medians
        except ApiError as error:
            self.api.num_errors += 1
            log.warning("publishing: %s", error)
            self._news.set()


@contextlib.asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Agent]:
    """An agent with its sockets and its HTTP port open. `OSError` when a port is taken."""
    clock = ServerClock()
    echo = Echo.open(settings.hosts, settings.echo_port, clock.now_s)
    try:
        async with open_session(settings) as session:
            agent = Agent(settings, Api(settings, session, clock=clock), echo)
            runner = await http_server.start(settings.hosts, settings.http_port, agent.health)
            try:
                yield agent
            finally:
                await runner.cleanup()
    finally:
        echo.close()
