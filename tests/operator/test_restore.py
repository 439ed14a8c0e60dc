"""etcd restored from a backup without a revision bump: the API server counts from before, and is believed."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from fault_operator import operator
from faults import Corner, prepare, running
from hulk_lab import control_plane, kwok, up
from hulk_lab.spec import KwokSpec, LabSpec
from hulk_operator.api import ConditionType
from hulk_operator.cluster import HULK_JOBS, NotFound, connect
from hulk_operator.handlers.settings import DEFAULT_LEASE_S
from hulk_operator.status import holds
from lab_names import lab_name

pytestmark = pytest.mark.controlplane

PORT = 0  # any
KEPT, LOST, NEXT = "kept", "lost", "next"


@pytest.fixture(scope="module")
def lab() -> Iterator[up.Lab]:
    """A control plane of its own: what is restored here is lost to others."""
    spec = LabSpec(name=lab_name("restore"), kwok=KwokSpec(nodes=1))
    try:
        yield up.up(spec)
    finally:
        up.down(spec.name)


@pytest_asyncio.fixture
async def corner(lab: up.Lab) -> AsyncIterator[Corner]:
    cluster = await connect(str(lab.control.kubeconfig))
    await prepare(cluster)
    yield Corner(cluster, "restore")
    await cluster.close()


def begin(lab: up.Lab) -> None:
    control_plane.start(lab.net, lab.state)
    kwok.start(lab.control)


def back_up(lab: up.Lab, folder: Path) -> None:
    """Copy etcd's files while it rests."""
    control_plane.stop(lab.state)
    shutil.copytree(lab.state / "etcd", folder)
    begin(lab)


def restore(lab: up.Lab, folder: Path) -> None:
    control_plane.stop(lab.state)
    shutil.rmtree(lab.state / "etcd")
    shutil.copytree(folder, lab.state / "etcd")
    begin(lab)


async def version(corner: Corner) -> int:
    return int((await corner.cluster.list(HULK_JOBS, corner.name)).resource_version)


async def test_a_restored_backup_is_believed(lab: up.Lab, corner: Corner, tmp_path: Path) -> None:
    kwok.start(lab.control)
    await corner.open(4)
    settings = (lab.control.kubeconfig, tmp_path / "log", PORT, corner.name, corner.name)
    async with operator(*settings, DEFAULT_LEASE_S) as process:
        await corner.submit(KEPT)
        await corner.until(running, KEPT)
        pods = [pod["metadata"]["uid"] for pod in await corner.pods(KEPT)]
        await asyncio.to_thread(back_up, lab, tmp_path / "backup")

        await corner.submit(LOST)  # and what came after the backup
        await corner.until(running, LOST)
        await corner.change({"suspend": True}, KEPT)
        await corner.until(lambda job: holds(job.status, ConditionType.SUSPENDED), KEPT)
        await corner.until_pods(0, KEPT)
        after = await version(corner)
        await asyncio.to_thread(restore, lab, tmp_path / "backup")
        assert await version(corner) < after

        await corner.submit(NEXT)  # needs what the lost job held
        await corner.until(running, NEXT, wait_s=120)
        assert process.process.returncode is None
        kept = await corner.until(running, KEPT)
        assert kept.status.attempt == 1
        assert [pod["metadata"]["uid"] for pod in await corner.pods(KEPT)] == pods
        with pytest.raises(NotFound):
            await corner.job(LOST)

        await corner.change({"suspend": True}, KEPT)  # it is followed as before
        await corner.until_pods(0, KEPT)
