"""Where the operator is measured: a size, the API server that serves it, and everyone else in the cluster."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from hulk_lab import kwok, up
from hulk_lab.processes import wait_until
from hulk_lab.spec import KwokSpec, LabSpec
from hulk_operator.cluster import NODES, PODS

from bench.api_server import connect
from bench.scale import access, foreign_pods, jobs, nodes
from bench.scale.meter import OPERATOR
from bench.simulated import free_port

READY_S: Final = 300.0
LEASE_S: Final = 200
"""Of a simulated node: kwok renews it every 50 s, and after 120 s without that it counts as lost."""
Server = Literal["stub", "real"]


@dataclass(frozen=True, slots=True)
class Size:
    """So many nodes; pods of others; HulkJobs of two nodes each that run in a pool, and as many that wait for it."""

    num_nodes: int
    num_pods: int
    num_running: int
    server: Server = "stub"

    @property
    def num_pool(self) -> int:
        """Nodes of the pool."""
        return 2 * self.num_running

    def __str__(self) -> str:
        return f"{self.num_nodes} nodes, {self.server}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A server that is up. `metered`: the kubeconfig whose requests are counted, `other`: the one of everyone else."""

    size: Size
    metered: Path
    other: Path
    folder: Path
    life_port: int


@contextmanager
def opened(size: Size, folder: Path) -> Iterator[Cluster]:
    """A cluster of a size, until the block ends."""
    with (stubbed if size.server == "stub" else real)(size, folder) as cluster:
        yield cluster


@contextmanager
def stubbed(size: Size, folder: Path) -> Iterator[Cluster]:
    """The stub, and everyone else."""
    port = free_port()
    paths = access.kubeconfigs(folder, port)
    numbers = {"port": port, "nodes": size.num_nodes, "pods": size.num_pods, "pool": size.num_pool}
    with running("stub_process", folder, str(folder), **numbers) as server:
        log = folder / "stub_process.log"
        wait_until(lambda: _listens(port) or _ended(server), "the stub", timeout_s=READY_S, log=log)
        with living(size, paths[access.BENCH], folder) as life_port:
            yield Cluster(size, paths[OPERATOR], paths[access.BENCH], folder, life_port)


@contextmanager
def real(size: Size, folder: Path) -> Iterator[Cluster]:
    """The lab's control plane behind the gateway, kwok's nodes and pods, and everyone else."""
    spec = LabSpec(name=f"scale-{os.getpid()}", kwok=KwokSpec(nodes=1))
    try:
        lab = up.up(spec)
        fill(lab, size)
        port, keys = free_port(), lab.state / "pki"
        paths = access.kubeconfigs(keys, port)
        with running("gateway", folder, str(keys), str(lab.control.kubeconfig), port=port) as gateway:
            log = folder / "gateway.log"
            wait_until(lambda: _listens(port) or _ended(gateway), "the gateway", timeout_s=READY_S, log=log)
            with living(size, lab.control.kubeconfig, folder, "--kwok") as life_port:
                yield Cluster(size, paths[OPERATOR], paths[access.BENCH], folder, life_port)
    finally:
        up.down(spec.name)


def fill(lab: up.Lab, size: Size) -> None:
    """Hulk's kinds and links, and the cluster's nodes and pods in place of the lab's one node."""
    control = lab.control
    control.table.stop([process for process in (control.table.find(kwok.PROCESS_NAME),) if process])
    kwok.remove_nodes(control)
    kwok.start(control, LEASE_S)
    crds = sorted((Path(__file__).parents[2] / "crds").glob("*.yaml"))
    for crd in crds:
        lab.kube.kubectl("apply", "--server-side", "-f", str(crd))
    lab.kube.kubectl("wait", "--for=condition=Established", *(f"-f={crd}" for crd in crds))
    for name in (jobs.NAMESPACE, foreign_pods.OTHERS, jobs.SYSTEM):
        lab.kube.apply(jobs.namespace(name))
    lab.kube.apply(jobs.topology())
    asyncio.run(_create(lab, size))
    wait_until(lambda: not _is_pending(lab), "pods of others", timeout_s=READY_S, interval_s=1.0)


async def _create(lab: up.Lab, size: Size) -> None:
    async with connect(lab.control.kubeconfig) as bare:
        names = nodes.nodes(size.num_nodes, size.num_pool)
        await bare.create_all(NODES.path(), [nodes.creatable(one, {kwok.ANNOTATION: "fake"}) for one in names])
        by_space: dict[str, list[nodes.Object]] = {}
        for pod in foreign_pods.foreign_pods(size.num_nodes, size.num_pods):
            by_space.setdefault(pod["metadata"]["namespace"], []).append(foreign_pods.creatable(pod))
        for namespace, pods in by_space.items():
            await bare.create_all(PODS.path(namespace), pods)


def _is_pending(lab: up.Lab) -> bool:
    return bool(lab.control.api().get(PODS.path(), fieldSelector="status.phase=Pending", limit="1")["items"])


@contextmanager
def living(size: Size, kubeconfig: Path, folder: Path, *flags: str) -> Iterator[int]:
    """Everyone else; the port at which workers' polls are told."""
    port = free_port()
    numbers = {"port": port, "nodes": size.num_nodes, "pods": size.num_pods}
    with running("life", folder, str(kubeconfig), *flags, **numbers) as life:
        wait_until(lambda: _listens(port) or _ended(life), "life", timeout_s=READY_S, log=folder / "life.log")
        yield port


@contextmanager
def running(module: str, folder: Path, *arguments: str, **numbers: int) -> Iterator[subprocess.Popen[bytes]]:
    """A module of this package as a process, until the block ends."""
    options = [text for name, number in numbers.items() for text in (f"--{name}", str(number))]
    with (folder / f"{module}.log").open("ab") as log:
        command = [sys.executable, "-m", f"bench.scale.{module}", *arguments, *options]
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(READY_S)


def _listens(port: int) -> bool:
    listening = Path("/proc/net/tcp").read_text()
    return f":{port:04X} 00000000:0000 0A" in listening


def _ended(process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
    return False
