"""What the fault tests share: every fault of a module under way at once, in one operator."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from fault_operator import operator
from faults import METRICS_PORT, NAMESPACES, Corner, Faults, prepare
from hulk_lab import kwok, up
from hulk_operator.cluster import connect


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
    log = tmp_path_factory.mktemp("faults") / "operator.log"
    try:
        async with operator(kubeconfig, log, METRICS_PORT, lease_namespace) as process:
            tasks = {name: asyncio.create_task(faults[name](corner), name=name) for name, corner in corners.items()}
            yield tasks
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
            assert await process.stop() == 0, log.read_text()[-3000:]
        assert "Traceback (most recent call last)" not in log.read_text()
    finally:
        await asyncio.gather(*(corner.close() for corner in corners.values()))
        await cluster.delete(NAMESPACES, lease_namespace)
        await cluster.close()
