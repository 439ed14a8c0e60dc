"""A control plane with 100 simulated nodes in four regions, and the operator as a process beside it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hulk_lab import kwok, up
from hulk_lab.processes import wait_until
from hulk_lab.spec import KwokSpec, LabSpec

Process = subprocess.Popen[bytes]
NAMESPACE = "bench"
NUM_NODES = 100
NUM_REGIONS = 4
NODE_CPUS = 64
NODE_ACCELERATORS = 64


@contextmanager
def simulated_lab() -> Iterator[up.Lab]:
    """Up, with Hulk's kinds and the links declared; taken down at the end."""
    nodes = KwokSpec(nodes=NUM_NODES, regions=NUM_REGIONS, accelerators=NODE_ACCELERATORS, cpu=NODE_CPUS)
    spec = LabSpec(name=f"bench-{os.getpid()}", kwok=nodes)
    try:
        lab = up.up(spec)
        prepare(lab)
        yield lab
    finally:
        up.down(spec.name)


def prepare(lab: up.Lab) -> None:
    """CRDs, a namespace, and declared links between the simulated regions."""
    crds = sorted((Path(__file__).parents[1] / "crds").glob("*.yaml"))
    for crd in crds:
        lab.kube.kubectl("apply", "--server-side", "-f", str(crd))
    lab.kube.kubectl("wait", "--for=condition=Established", *(f"-f={crd}" for crd in crds))
    lab.kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    regions = [f"region-{i}" for i in range(NUM_REGIONS)]
    label = "topology.kubernetes.io/region"
    for i, region in enumerate(regions):  # simulated regions have names of nodes, which a declared link would mean
        lab.kube.kubectl("label", "nodes", "-l", f"{label}=kwok-{i}", f"{label}={region}", "--overwrite")
    links = [
        {"source": a, "target": b, "rttMicroseconds": 20_000 if a != b else 200, "bandwidthBytesPerSecond": 10**9}
        for a in regions
        for b in regions
    ]
    topology = {"apiVersion": "hulk.dev/v1alpha1", "kind": "HulkTopology", "metadata": {"name": "cluster"}}
    lab.kube.apply({**topology, "spec": {"links": links}})
    assert len(kwok.ready_nodes(lab.control.api())) >= lab.spec.kwok.nodes


@contextmanager
def operator(lab: up.Lab, **environment: str) -> Iterator[Process]:
    """The operator as a process of its own, at work; `environment`: settings beside those of the lab."""
    log = lab.state / "logs" / "operator.log"
    port = free_port()
    environment = {
        **os.environ,
        **environment,
        "KUBECONFIG": str(lab.control.kubeconfig),
        "HULK_LEASE_NAMESPACE": NAMESPACE,
        "HULK_METRICS_PORT": str(port),
    }
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "hulk_operator"], env=environment, stdout=output, stderr=output
        )
    try:
        wait_until(lambda: ready(port), "operator ready", timeout_s=60, log=log)
        yield process
    finally:
        process.terminate()
        process.wait(30)


def free_port() -> int:
    """A TCP port that nobody uses now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def ready(port: int) -> bool:
    """Whether the operator holds its lease and does its work."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return b"hulk_operator_lease_held 1.0" in answer.read()
    except OSError:
        return False


def resident_mib(process: Process) -> float:
    """Resident memory of a process and its children."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in tree(process))
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def tree(process: Process) -> list[int]:
    """The ids of a process and of all that come from it."""
    found = [process.pid]
    for pid in found:
        children = Path(f"/proc/{pid}/task/{pid}/children")
        found += [int(child) for child in children.read_text().split()] if children.exists() else []
    return found
