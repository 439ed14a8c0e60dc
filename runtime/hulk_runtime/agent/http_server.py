"""The agent's HTTP port: /healthz and /readyz (the process turns) and /metrics."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hulk_runtime.agent import VERSION


@dataclass(frozen=True, slots=True)
class Health:
    """The agent's state at one moment."""

    echoes: dict[str, int]  # by result: sent, answered, lost, replied, refused
    bandwidth_tests: dict[str, int]  # by result: done, failed
    num_links: int
    num_targets: int
    num_api_errors: int
    has_profile: bool
    background_failures: Mapping[str, int]  # by task


class AgentCollector(Collector):
    """The agent's metrics, read from its state when they are asked for."""

    def __init__(self, health: Callable[[], Health]) -> None:
        self._health = health

    def collect(self) -> Iterator[Metric]:
        """Every metric of the agent."""
        health = self._health()
        info = GaugeMetricFamily("hulk_agent_info", "Version of the agent.", labels=["version"])
        info.add_metric([VERSION], 1)
        yield info
        yield _by_result("hulk_agent_echoes", "Datagrams of the light echo.", health.echoes)
        yield _by_result("hulk_agent_bandwidth_tests", "Ordered bandwidth tests.", health.bandwidth_tests)
        yield GaugeMetricFamily("hulk_agent_links", "Links with a figure.", health.num_links)
        yield GaugeMetricFamily("hulk_agent_echo_targets", "Nodes ordered to be echoed.", health.num_targets)
        yield CounterMetricFamily("hulk_agent_api_errors", "Failed API requests.", health.num_api_errors)
        yield GaugeMetricFamily("hulk_agent_has_profile", "1 while the NodeProfile is there.", int(health.has_profile))
        name, text = "hulk_agent_background_failures", "Unexpected ends of a task, which is started again."
        yield _counts(name, text, "task", health.background_failures)


def _by_result(name: str, text: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    return _counts(name, text, "result", counts)


def _counts(name: str, text: str, label: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[label])
    for of, count in counts.items():
        family.add_metric([of], count)
    return family


async def start(hosts: Iterable[str], port: int, health: Callable[[], Health]) -> web.AppRunner:
    """Serve at every address until the returned runner is cleaned up."""
    registry = CollectorRegistry()
    registry.register(AgentCollector(health))

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), content_type="text/plain")

    async def alive(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", alive), web.get("/readyz", alive)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    for host in hosts:
        await web.TCPSite(runner, host, port).start()
    return runner
