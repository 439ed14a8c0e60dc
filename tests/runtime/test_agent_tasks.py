"""Tasks of the agent that break: each is started again and counted; one that is hopeless ends the agent."""

import ast
import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hulk_runtime import background
from hulk_runtime.agent import bandwidth, service, tasks
from hulk_runtime.agent.echo import Echo
from hulk_runtime.agent.http_server import AgentCollector
from hulk_runtime.agent.orders import Address, BandwidthOrder, Orders
from hulk_runtime.agent.server_clock import ServerClock
from hulk_runtime.agent.service import Agent
from hulk_runtime.agent.settings import Settings
from hulk_runtime.errors import BackgroundError

MINE = Settings("n1", "127.0.0.1", "https://127.0.0.1:1", Path("/nowhere"), None)


class Silent:
    """An API server that never says anything."""

    num_errors = 0
    clock = ServerClock()

    async def follow(self) -> AsyncIterator[None]:
        await asyncio.Event().wait()
        yield


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are started again at once."""
    monkeypatch.setattr(tasks, "FIRST_PAUSE_S", 0.001)


@pytest.fixture
async def agent() -> AsyncIterator[Agent]:
    """One that is told nothing."""
    echo = Echo.open(["127.0.0.1"], 0)
    yield Agent(MINE, Silent(), echo)  # type: ignore[arg-type]
    echo.close()


def names() -> Iterator[str]:
    """The agent's tasks, as its source names them."""
    for node in ast.walk(ast.parse(inspect.getsource(service))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keep":
            assert isinstance(node.args[0], ast.Dict)
            yield from (str(key.value) for key in node.args[0].keys if isinstance(key, ast.Constant))


def broken(*_: object) -> None:
    raise ZeroDivisionError("a bug")


@pytest.mark.parametrize("name", sorted(names()))
async def test_a_task_that_breaks_is_started_again_and_counted(
    agent: Agent, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body: Callable[[Agent], Awaitable[None]] = getattr(Agent, f"_{name}")
    went_on, before, begun = asyncio.Event(), background.failures().get(name, 0), []

    async def once(agent: Agent) -> None:
        begun.append(name)
        if len(begun) == 1:
            broken()
        went_on.set()
        await body(agent)

    monkeypatch.setattr(Agent, f"_{name}", once)
    running = asyncio.ensure_future(agent.run())
    await asyncio.wait_for(went_on.wait(), 30)
    assert not running.done()
    assert background.failures()[name] == before + 1
    counts = {metric.name: metric for metric in AgentCollector(agent.health).collect()}
    samples = counts["hulk_agent_background_failures"].samples
    assert {sample.labels["task"]: sample.value for sample in samples}[name] == before + 1
    running.cancel()
    await asyncio.wait([running])


async def test_a_task_that_breaks_again_and_again_ends_the_agent(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Agent, "_publish", broken)
    with pytest.raises(BackgroundError, match=r"^publish broke, .*ZeroDivisionError\('a bug'\)$"):
        await asyncio.wait_for(agent.run(), 30)


async def test_a_bandwidth_test_that_breaks_is_over(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(*_: Any) -> None:
        broken()

    monkeypatch.setattr(bandwidth, "run", breaks)
    order = BandwidthOrder(7, "client", "n2", Address("127.0.0.2", 1), 1, 1, 1, 0.0)
    agent.orders = Orders(bandwidth=(order,))
    before = background.failures().get("test", 0)
    await agent._carry_out(order)
    assert (agent.last_id, agent.tests) == (7, {"done": 0, "failed": 1})
    assert background.failures()["test"] == before + 1
