"""LabSpec -> the emulated WAN on this machine, and one process per node on it; nothing of either stays.

No Kubernetes: namespaces and the relay are enough to time a collective. A process finds in its environment

    RANK, WORLD_SIZE        nodes in the lab's order, region after region
    ADDRESSES, REGIONS      of all ranks, separated by commas
    LINKS                   JSON rows [source, target, bytes/s of TCP payload, one-way seconds] as the lab's file says
    MASTER_ADDR, MASTER_PORT, GLOO_SOCKET_IFNAME   as torch.distributed wants them
    HULK_WORKER             a node is a worker of the plan that a script may be given
    LAB_NAME                for a script that wants to change links while it runs: `lab_network(name)`
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from hulk_lab import paths
from hulk_lab.spec import LabSpec
from hulk_lab.wan import network, slots
from hulk_lab.wan.addresses import LabNetwork
from hulk_runtime import names

from bench.allreduce.profiles import lab_spec

INTERFACE = "eth0"
MASTER_PORT = 29500
GRACE_S = 10.0
"""After rank 0 ended the others have so long to end as well."""
SINGLE_THREADED = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Told before numpy and torch are imported: a machine has fewer cores than a lab has nodes."""


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


def links_of(spec: LabSpec) -> list[tuple[str, str, float, float]]:
    """(source, target, bytes/s of TCP payload, one-way seconds) of every directed region pair."""
    return [(link.source, link.target, link.mbit_per_s * 1e6 / 8, link.delay_ms / 1e3) for link in spec.links]


def environment(net: LabNetwork, rank: int) -> dict[str, str]:
    """What one rank is told."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(net.nodes)),
        "ADDRESSES": ",".join(node.address for node in net.nodes),
        "REGIONS": ",".join(node.region for node in net.nodes),
        "LINKS": json.dumps(links_of(net.spec)),
        "MASTER_ADDR": net.nodes[0].address,
        "MASTER_PORT": str(MASTER_PORT),
        "GLOO_SOCKET_IFNAME": INTERFACE,
        names.ENV_WORKER: str(rank),
        "LAB_NAME": net.spec.name,
    }


class Gang:
    """One process per node, killed with this one; rank 0's lines are read, what other ranks print goes to stderr."""

    def __init__(
        self, net: LabNetwork, script: str | Path, *arguments: str, env: Mapping[str, str] | None = None
    ) -> None:
        ranks = [(str(node.netns_path), environment(net, rank)) for rank, node in enumerate(net.nodes)]
        nursery = [sys.executable, "-u", "-m", "bench.allreduce.nursery", str(script), *arguments]
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *nursery],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **SINGLE_THREADED, **(env or {}), "RANKS": json.dumps(ranks)},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def lines(self) -> Iterator[str]:
        """Rank 0's lines until it ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield line.rstrip("\n")

    def say(self, line: str) -> None:
        """A line for rank 0's standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def wait(self) -> None:
        """Until all have ended; RankError if one failed, or went on after rank 0 had ended."""
        try:
            code = self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            raise RankError(f"ranks still run {GRACE_S:g} s after rank 0 ended") from None
        if code:
            raise RankError("a rank failed, see above")
