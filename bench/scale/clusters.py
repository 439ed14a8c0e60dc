"""Where the operator is measured: a size, the API server that serves it, and everyone else in the cluster."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from hulk_lab.processes import wait_until

from bench.scale import access
from bench.scale.meter import OPERATOR
from bench.simulated import free_port

READY_S: Final = 300.0
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
    meter_url: str
    life_port: int


@contextmanager
def opened(size: Size, folder: Path) -> Iterator[Cluster]:
    """A cluster of a size, until the block ends."""
    with stubbed(size, folder) as cluster:
        yield cluster


@contextmanager
def stubbed(size: Size, folder: Path) -> Iterator[Cluster]:
    """The stub with everyone else, until the block ends."""
    port = free_port()
    paths = access.kubeconfigs(folder, port)
    numbers = {"port": port, "nodes": size.num_nodes, "pods": size.num_pods, "pool": size.num_pool}
    with running("stub_process", folder, str(folder), **numbers) as server:
        log = folder / "stub_process.log"
        wait_until(lambda: _listens(port) or _ended(server), "the stub", timeout_s=READY_S, log=log)
        with living(size, paths[access.BENCH], folder) as life_port:
            url = f"https://{access.HOST}:{port}"
            yield Cluster(size, paths[OPERATOR], paths[access.BENCH], folder, url, life_port)


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
        process = subprocess.Popen(command, stdout=log, stderr=log)
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
