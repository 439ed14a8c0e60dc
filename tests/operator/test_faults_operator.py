"""The operator and the API server as what fails: killed, halted, two at once; and a job as large as they come."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from fault_operator import OperatorProcess, operator
from faults import CHILDREN, JOB, Corner, prepare, running, until, worker
from hulk_lab import control_plane, kwok, up
from hulk_operator import names
from hulk_operator.cluster import (
    CONFIG_MAPS,
    EVENTS,
    HULK_JOBS,
    LEASES,
    ApiCluster,
    ApiResource,
    Object,
    connect,
)
from hulk_operator.handlers.settings import DEFAULT_LEASE_S

pytestmark = pytest.mark.controlplane

PORT = 29_410
MAX_STATUS_BYTES = 64 << 10
MAX_PLAN_BYTES = 900 << 10
KOPF_WAITS_S = 5.0


@pytest_asyncio.fixture
async def corner(control_plane_lab: up.Lab, request: pytest.FixtureRequest) -> AsyncIterator[Corner]:
    """A corner named as its test, for an operator of this namespace alone."""
    kwok.start(control_plane_lab.control)
    cluster = await connect(str(control_plane_lab.control.kubeconfig))
    await prepare(cluster)
    found = Corner(cluster, request.function.__name__.removeprefix("test_").replace("_", "-"))
    try:
        yield found
    finally:
        await found.close()
        await cluster.close()


async def test_an_api_server_that_crashes_during_a_deployment(
    corner: Corner, control_plane_lab: up.Lab, tmp_path: Path
) -> None:
    """SIGKILL while 50 pods are being created: all come, once, in the same attempt."""
    control = control_plane_lab.control
    await corner.open(5, accelerators=10)
    async with operator(control.kubeconfig, tmp_path / "log", PORT, corner.name, corner.name) as process:
        await corner.submit(workers=50)

        async def begun() -> bool:
            return len(await corner.pods()) >= 5

        await until(begun, lambda: "no pods")
        await asyncio.to_thread(control_plane.restart_apiserver, control, kill=True)
        job = await corner.until(running, wait_s=180)  # watches come back after up to 10 s each
        assert process.process.returncode is None
        await whole_gang(corner, job.status.attempt, 50)
        assert (job.status.attempt, job.status.failures, job.status.disruptions) == (1, 0, 0)


async def test_a_job_deleted_while_nobody_looks(corner: Corner, control_plane_lab: up.Lab, tmp_path: Path) -> None:
    """Its children go without the operator, which does not bring them back; what was created meanwhile is started."""
    kubeconfig = control_plane_lab.control.kubeconfig
    await corner.open(4)
    async with operator(kubeconfig, tmp_path / "first", PORT, corner.name, corner.name, lease_s=6) as process:
        await corner.submit("starting", gated=True)
        await corner.submit("running")
        await corner.until(running, "running")
        await corner.until_pods(2, "starting")
        await process.kill()
    for job in ("starting", "running"):
        await corner.cluster.delete(HULK_JOBS, job, corner.name)
    await corner.submit("new", workers=4)
    await corner.until_empty("starting")
    await corner.until_empty("running")
    async with operator(kubeconfig, tmp_path / "second", PORT, corner.name, corner.name, lease_s=6):
        await corner.until(running, "new")
        left = {
            item["metadata"]["labels"][names.LABEL_JOB] for kind in CHILDREN for item in await children(corner, kind)
        }
        assert left == {"new"}


async def test_of_two_operators_one_acts(corner: Corner, control_plane_lab: up.Lab, tmp_path: Path) -> None:
    """Both are ready. The second acts when the first is halted; that one stands down when it wakes, and may return."""
    kubeconfig, cluster = control_plane_lab.control.kubeconfig, corner.cluster
    await corner.open(2)
    async with operator(kubeconfig, tmp_path / "first", PORT, corner.name, corner.name, lease_s=6) as first:
        await until(lambda: acts(first), lambda: "the first operator does not act")
        async with operator(kubeconfig, tmp_path / "second", PORT + 1, corner.name, corner.name, lease_s=6) as second:
            await until(lambda: ready(second), lambda: "the second operator does not know the cluster")
            await corner.submit()
            await corner.until(running)
            assert await ready(first)
            assert not await acts(second)
            assert await holder(cluster, corner.name) == f"fault-{first.process.pid}"

            first.process.send_signal(signal.SIGSTOP)
            await until(lambda: acts(second), lambda: "the second operator does not take over")
            assert await holder(cluster, corner.name) == f"fault-{second.process.pid}"
            first.process.send_signal(signal.SIGCONT)
            await until(lambda: said(first, "stands down"), lambda: "the first operator does not stand down")
            assert first.said("was taken over") or first.said("could not be renewed")
            await until(lambda: ready(first), lambda: "the first operator is not ready again")
            assert not await acts(first)

            await corner.change({"suspend": True})
            await corner.until_empty()
            await second.kill()
            await until(lambda: acts(first), lambda: "the first operator does not come back")
            await corner.change({"suspend": False})
            job = await corner.until(running)
            assert first.process.returncode is None
            await whole_gang(corner, job.status.attempt, 2)
            told = [event for event in (await cluster.list(EVENTS, corner.name)).items if event["reason"] == "Running"]
            assert len(told) == 2  # once for each time that it ran


async def test_after_a_leaders_death_the_other_acts_in_15_s(
    corner: Corner, control_plane_lab: up.Lab, tmp_path: Path
) -> None:
    """With the lease that an installation has; the standby knows the cluster, so it has to read jobs only."""
    kubeconfig, usual_s = control_plane_lab.control.kubeconfig, DEFAULT_LEASE_S
    await corner.open(2)
    async with (
        operator(kubeconfig, tmp_path / "first", PORT, corner.name, corner.name, lease_s=usual_s) as first,
        operator(kubeconfig, tmp_path / "second", PORT + 1, corner.name, corner.name, lease_s=usual_s) as second,
    ):
        await until(lambda: ready(first), lambda: "the first operator is not ready")
        await until(lambda: ready(second), lambda: "the second operator is not ready")
        leader, standby = (first, second) if await acts(first) else (second, first)
        await until(lambda: acts(leader), lambda: "nobody acts")
        await leader.kill()
        died_s = time.monotonic()
        await corner.submit()
        await until(lambda: acts(standby), lambda: "the standby does not act")
        assert time.monotonic() - died_s <= 15
        await corner.until(running)


async def test_sigterm_ends_it_at_once(corner: Corner, control_plane_lab: up.Lab, tmp_path: Path) -> None:
    """It sleeps for less than the 5 s in which Kopf waits for handlers; the lease is free for the next one."""
    kubeconfig = control_plane_lab.control.kubeconfig
    await corner.open(2)
    async with (
        operator(kubeconfig, tmp_path / "log", PORT, corner.name, corner.name) as process,
        aiohttp.ClientSession() as reader,  # which keeps its connection, as Prometheus does
    ):
        await until(lambda: acts(process), lambda: "the operator does not act")
        async with reader.get(f"http://127.0.0.1:{PORT}/metrics") as answer:
            assert answer.status == 200
            await answer.read()
        await corner.submit()
        await corner.until(running)
        asleep_s = asyncio.create_task(asyncio.to_thread(slept_s, process.process.pid))
        assert await process.stop() == 0
        assert await asleep_s < KOPF_WAITS_S
        assert await holder(corner.cluster, corner.name) == ""


@pytest.mark.whole  # in short: test_faults_running's many_jobs
async def test_a_thousand_workers(corner: Corner, control_plane_lab: up.Lab, tmp_path: Path) -> None:
    """On 100 nodes: every worker once, a status below 64 KiB and a plan below 900 KiB."""
    await corner.open(100, accelerators=10, regions=4)
    kubeconfig = control_plane_lab.control.kubeconfig
    async with operator(kubeconfig, tmp_path / "log", PORT, corner.name, corner.name):
        await corner.submit(workers=1000, training={"globalBatch": 1000, "steps": 10})
        job = await corner.until(running, wait_s=300)
        await whole_gang(corner, job.status.attempt, 1000)
        assert job.status.failures == 0
        found = await corner.cluster.get(HULK_JOBS, JOB, corner.name)
        assert size(found["status"]) < MAX_STATUS_BYTES
        assert job.status.plan is not None
        plan = await corner.cluster.get(CONFIG_MAPS, job.status.plan.name, corner.name)
        assert size(plan) < MAX_PLAN_BYTES


async def whole_gang(corner: Corner, attempt: int, num_workers: int) -> None:
    """Every worker of one attempt once, on the node that it is planned for, and no other child of the job."""
    pods = await corner.pods()
    assert [worker(pod) for pod in pods] == list(range(num_workers))
    assert {pod["metadata"]["labels"][names.LABEL_ATTEMPT] for pod in pods} == {str(attempt)}
    for kind in CHILDREN[1:]:
        assert len(await children(corner, kind)) == 1, kind.plural


def slept_s(pid: int) -> float:
    """Seconds until a process ended, but for those in which its main thread ran or another one had its processor."""
    stat, spent = Path(f"/proc/{pid}/schedstat"), []
    begun_ns = time.monotonic_ns()
    with suppress(FileNotFoundError, ProcessLookupError):
        while True:
            ran_ns, waited_ns, _ = map(int, stat.read_text().split())
            spent.append((time.monotonic_ns(), ran_ns + waited_ns))
            time.sleep(0.02)
    ended_ns, busy_ns = spent[-1]
    return (ended_ns - begun_ns - (busy_ns - spent[0][1])) / 1e9


async def children(corner: Corner, kind: ApiResource) -> tuple[Object, ...]:
    return (await corner.cluster.list(kind, corner.name, labels=f"{names.LABEL_MANAGED_BY}={names.MANAGER}")).items


def size(item: Object) -> int:
    return len(json.dumps(item).encode())


async def holder(cluster: ApiCluster, namespace: str) -> str:
    return str((await cluster.get(LEASES, names.LEASE, namespace))["spec"]["holderIdentity"])


async def ready(process: OperatorProcess) -> bool:
    return await answers(process, "readyz") == 200


async def acts(process: OperatorProcess) -> bool:
    """Whether it holds the lease, and has read the jobs."""
    return "hulk_operator_lease_held 1.0" in await metrics(process)


async def said(process: OperatorProcess, words: str) -> bool:
    return process.said(words)


async def metrics(process: OperatorProcess) -> str:
    """What it serves; empty while nobody answers."""
    return (await asked(process, "metrics"))[1]


async def answers(process: OperatorProcess, path: str) -> int:
    """The HTTP status of a path; 0 while nobody answers."""
    return (await asked(process, path))[0]


async def asked(process: OperatorProcess, path: str) -> tuple[int, str]:
    """Status and text."""
    limit = aiohttp.ClientTimeout(total=5)
    with suppress(aiohttp.ClientError, TimeoutError):
        async with aiohttp.ClientSession(timeout=limit) as session:
            answer = await session.get(f"http://127.0.0.1:{process.port}/{path}")
            return answer.status, await answer.text()
    return 0, ""
