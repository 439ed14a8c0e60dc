"""LabSpec -> the emulated WAN on this machine, and one process per node on it; nothing of either stays.

No Kubernetes: namespaces and the relay are enough to time a collective. A process finds in its environment

    RANK, WORLD_SIZE        nodes in the lab's order, region after region
    ADDRESSES, REGIONS      of all ranks, separated by commas
    LINKS                   JSON rows [source, target, bytes/s of TCP payload, one-way seconds] as the lab's file says
    MASTER_ADDR, MASTER_PORT, GLOO_SOCKET_IFNAME, OMP_NUM_THREADS   as torch.distributed wants them
    LAB_NAME                for a script that wants to change links while it runs: `lab_network(name)`
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import IO, Self

from hulk_lab import paths
from hulk_lab.spec import LabSpec
from hulk_lab.wan import network, slots
from hulk_lab.wan.addresses import LabNetwork

from bench.allreduce.profiles import lab_spec

INTERFACE = "eth0"
MASTER_PORT = 29500
GRACE_S = 5.0
"""After rank 0 ended the others have so long to end as well."""


class RankError(RuntimeError):
    """A rank ended with an error."""


def lab_name(purpose: str = "allreduce") -> str:
    """One for each process that brings up a lab."""
    return f"{purpose}-{os.getpid()}"


@contextlib.contextmanager
def wan(spec: LabSpec) -> Iterator[LabNetwork]:
    """The spec's network, up; removed whatever happens (after a SIGKILL: `hulk-lab down --lab NAME`)."""
    state = paths.state_folder(spec.name)
    state.mkdir(parents=True, exist_ok=True)
    slot = slots.acquire(spec.name)
    try:
        net = LabNetwork(spec, slot)
        network.up(net, state)
        yield net
    finally:
        network.down(slot, state)
        slots.release(spec.name)
        shutil.rmtree(state)


def lab_network(profile: str, nodes: Sequence[int], name: str) -> LabNetwork:
    """The network of a lab that is up, for what changes its links from another process."""
    slot = slots.find(name)
    if slot is None:
        raise ValueError(f"no lab {name!r} is up")
    return LabNetwork(lab_spec(profile, nodes, name), slot)


def links_of(net: LabNetwork) -> list[tuple[str, str, float, float]]:
    """(source, target, bytes/s of TCP payload, one-way seconds) of every directed region pair."""
    return [(link.source, link.target, link.mbit_per_s * 1e6 / 8, link.delay_ms / 1e3) for link in net.spec.links]


def environment(net: LabNetwork, rank: int) -> dict[str, str]:
    """What one rank is told."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(net.nodes)),
        "ADDRESSES": ",".join(node.address for node in net.nodes),
        "REGIONS": ",".join(node.region for node in net.nodes),
        "LINKS": json.dumps(links_of(net)),
        "MASTER_ADDR": net.nodes[0].address,
        "MASTER_PORT": str(MASTER_PORT),
        "GLOO_SOCKET_IFNAME": INTERFACE,
        "OMP_NUM_THREADS": "1",
        "LAB_NAME": net.spec.name,
    }


class Gang:
    """One process per node, killed with this one; rank 0's lines are read, what other ranks print goes to stderr."""

    def __init__(self, net: LabNetwork, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        inside = ("setpriv", "--pdeathsig", "KILL", "nsenter")
        for rank, node in enumerate(net.nodes):
            self._processes.append(
                subprocess.Popen(
                    [*inside, f"--net={node.netns_path}", *command],
                    stdin=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if rank == 0 else sys.stderr,
                    text=True,
                    env={**os.environ, **environment(net, rank), **(env or {})},
                )
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pids(self) -> list[int]:
        """Of the ranks, in order."""
        return [process.pid for process in self._processes]

    def lines(self) -> Iterator[str]:
        """Rank 0's lines until it ends."""
        stream = self._processes[0].stdout
        assert stream is not None
        for line in stream:
            yield line.rstrip("\n")

    @property
    def orders(self) -> IO[str]:
        """Rank 0's standard input."""
        stream = self._processes[0].stdin
        assert stream is not None
        return stream

    def wait(self) -> None:
        """Until all have ended; RankError names those that failed or did not end soon after rank 0."""
        self._processes[0].wait()
        deadline = time.monotonic() + GRACE_S
        while any(process.poll() is None for process in self._processes) and time.monotonic() < deadline:
            time.sleep(0.05)
        codes = [process.poll() for process in self._processes]
        if any(codes):
            raise RankError("exit codes by rank: " + " ".join("runs on" if c is None else str(c) for c in codes))

    def kill(self) -> None:
        """End all at once."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
        for process in self._processes:
            process.wait()
