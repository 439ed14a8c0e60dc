"""What tests of the operator share: one planner process, and every fault of a module under way at once."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from fault_operator import operator
from faults import METRICS_PORT, NAMESPACES, Corner, Faults, prepare
from hulk_lab import kwok, up
from hulk_operator.api import ConditionType
from hulk_operator.cluster import connect
from hulk_operator.planning import child_process
from hulk_operator.status import holds
from queue_world import Make, QueueWorld

LOADING_S = 400.0


class SharedPool:
    """A planner process that outlives the planners of single tests: each of its own would load everything for 5 s."""

    def __init__(self) -> None:
        self._new = child_process.OneProcess
        self._pool: child_process.OneProcess | None = None

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """In a fresh process when the one before it died."""
        self._pool = self._pool or self._new()
        try:
            return self._pool.submit(work, *arguments)
        except BrokenProcessPool:
            self.end()
            raise

    def kill(self) -> None:
        """One test's planner ends; a process that is broken is not handed to the next one."""
        if self._pool is not None and self._pool._broken:
            self.end()

    def end(self) -> None:
        """The process ends."""
        if self._pool is not None:
            self._pool.kill()
            self._pool = None


@pytest.fixture(scope="session")
def shared_pool() -> Iterator[SharedPool]:
    """One for the session."""
    pool = SharedPool()
    yield pool
    pool.end()


@pytest.fixture(autouse=True)
def planner_process(monkeypatch: pytest.MonkeyPatch, shared_pool: SharedPool) -> None:
    """Planners of this process share theirs; whoever tests the process itself makes its own."""
    monkeypatch.setattr(child_process, "OneProcess", lambda: shared_pool)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def outcomes(
    request: pytest.FixtureRequest, control_plane_lab: up.Lab, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    """Every fault of the module that was selected, all under way, each in its corner."""
    faults: Faults = request.module.FAULTS
    selected = [item.name for item in request.session.items if item.path == request.path]
    chosen = {name for name in faults if any(f"[{name}]" in item for item in selected)}
    kubeconfig = control_plane_lab.control.kubeconfig
    kwok.start(control_plane_lab.control)
    cluster = await connect(str(kubeconfig))
    await prepare(cluster)
    lease_namespace = request.module.__name__.replace("_", "-")
    await cluster.create(NAMESPACES, {"metadata": {"name": lease_namespace}})
    corners = {name: Corner(cluster, name.replace("_", "-")) for name in chosen}
    first = Corner(cluster, f"first-{lease_namespace}")
    log = tmp_path_factory.mktemp("faults") / "operator.log"
    try:
        async with operator(kubeconfig, log, METRICS_PORT, lease_namespace) as process:
            await make_first_plan(first)
            tasks = {
                name: asyncio.create_task(with_log(faults[name](corner), log, corner.name), name=name)
                for name, corner in corners.items()
            }
            yield tasks
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
            assert await process.stop() == 0, log.read_text()[-3000:]
        assert "Traceback (most recent call last)" not in log.read_text()
    finally:
        await asyncio.gather(*(corner.close() for corner in (first, *corners.values())))
        await cluster.delete(NAMESPACES, lease_namespace)
        await cluster.close()


async def make_first_plan(corner: Corner) -> None:
    """Have the operator load its planner: how long that takes is up to what else runs here, and no fault's time."""
    await corner.open(2)
    await corner.submit()
    await corner.until(lambda job: holds(job.status, ConditionType.PLANNED), wait_s=LOADING_S)


async def with_log(fault: Coroutine[Any, Any, None], log: Path, corner: str) -> None:
    """A fault that fails says what the operator logged of its corner, and of everything at last."""
    try:
        await fault
    except Exception as error:
        said = (await asyncio.to_thread(log.read_text)).splitlines()
        own = "\n".join(line for line in said if corner in line)
        last = "\n".join(said[-20:])
        error.add_note(f"The operator's log of {corner}:\n{own[-8000:]}\nThe log ends:\n{last[-4000:]}")
        raise


@pytest_asyncio.fixture
async def make() -> AsyncIterator[Make]:
    """Many jobs under an operator over a cluster in memory."""
    worlds: list[QueueWorld] = []

    def made(*objects: Any, **options: Any) -> QueueWorld:
        worlds.append(QueueWorld(*objects, **options))
        return worlds[-1]

    yield made
    for world in worlds:
        await world.stop()
