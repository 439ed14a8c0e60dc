"""Pods as clusters have them, on real kubelets: a proxy beside the worker, init containers, hostNetwork, polite exits.

Each worker is a short program; what it prints is what it saw. Jobs that have room beside one another run at once.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator

import pytest
from hulk_lab import up
from hulk_lab.builds import images
from hulk_lab.processes import wait_until
from lab_jobs import LAUNCH, PATIENCE_S, PYTHON, RESTRICTED, SLEEP, Jobs, Object, job, nodes

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

SHARED_MEMORY_BYTES = 100 << 20  # more than the 64 MiB of container runtimes
FILLS_SHARED_MEMORY = f"open('/dev/shm/batch', 'wb').write(bytes({SHARED_MEMORY_BYTES})); print('filled')"
MEETS = "import torch.distributed as d; d.init_process_group('gloo'); print('met', d.get_world_size(), flush=True)"
POLITE = (
    "import os, signal, time; import torch.distributed as d\n"
    "signal.signal(signal.SIGTERM, lambda *_: (print('saved, bye', flush=True), os._exit(0)))\n"
    "d.init_process_group('gloo'); print('met', d.get_world_size(), flush=True)\n"
    "time.sleep(86400)"
)

HANGS = "import time\nfor step in range(3): print('step', step, flush=True)\ntime.sleep(86400)"
STALL_S = 10


def program(text: str) -> tuple[str, ...]:
    return (PYTHON, "-c", text)


def container(name: str, *command: str) -> Object:
    return {"name": name, "image": images.HULK_REFERENCE, "command": list(command), "securityContext": RESTRICTED}


def strange(name: str, text: str, **spec: object) -> Object:
    return job(name, (2, 2), command=program(text), sync={"mode": "ring"}, runPolicy={"backoffLimit": 0}, **spec)


@pytest.fixture(scope="module", autouse=True)
def submitted(jobs: Jobs) -> None:
    """The first three, two of the six accelerators each."""
    proxied = strange("proxied", FILLS_SHARED_MEMORY)
    proxied["spec"]["template"]["spec"]["containers"].append(container("proxy", *SLEEP))
    prepared = strange("prepared", "print(1)")
    init = container("prep", *program("raise SystemExit('no data at /x')"))
    prepared["spec"]["template"]["spec"]["initContainers"] = [init]
    hanging = strange("hanging", HANGS)
    hanging["spec"]["runPolicy"]["stallSeconds"] = STALL_S
    hanging["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1  # a first process takes no SIGTERM
    for manifest in (proxied, prepared, hanging):
        jobs.submit(manifest)


def test_a_proxy_that_never_ends_goes_when_the_workers_have_and_shared_memory_holds_a_batch(jobs: Jobs) -> None:
    jobs.wait_phase("proxied", "Succeeded")
    wait_until(lambda: not jobs.pods("proxied"), "the proxies to go", timeout_s=PATIENCE_S)


def test_an_init_container_that_fails_is_named_with_its_last_lines(jobs: Jobs) -> None:
    status = jobs.wait_phase("prepared", "Failed")
    told = jobs.condition("prepared", "Failed")["message"]
    assert "init container prep of worker" in told
    assert "exit code 1" in told
    assert "no data at /x" in told
    assert status["failures"] == 1
    assert not status.get("avoidedNodes")


@pytest.fixture
def nodes_that_meet(installed: up.Lab) -> Iterator[None]:
    """Nodes' own addresses are of the management network here, on which nodes do not see each other otherwise."""
    ports = [node.place.host_interface for node in installed.nodes]
    set_isolated(ports, "off")
    yield
    set_isolated(ports, "on")


def set_isolated(ports: Iterable[str], value: str) -> None:
    for port in ports:
        subprocess.run(["ip", "link", "set", port, "type", "bridge_slave", "isolated", value], check=True)


def test_a_program_that_hangs_ends_with_each_ranks_last_lines(jobs: Jobs) -> None:
    status = jobs.wait_phase("hanging", "Failed")
    said = status["lastFailure"]["message"]
    assert "no step and no output of rank 0 for " in said, said
    assert f"(runPolicy.stallSeconds = {STALL_S}); silent: rank 0, rank 1 of 2 workers" in said
    assert said.count("step 0 | step 1 | step 2") == 2
    assert (status["lastFailure"]["reason"], status["failures"]) == ("Stalled", 1)


@pytest.mark.usefixtures("nodes_that_meet")
def test_two_jobs_on_their_nodes_network_share_the_nodes_and_meet(jobs: Jobs) -> None:
    jobs.lab.kube.kubectl("label", "namespace", jobs.namespace, "pod-security.kubernetes.io/enforce-")
    names = ("hosted", "housed")
    for name in names:
        placement = {"workerNodes": ["us-0", "ap-0"]}
        manifest = job(name, (2, 2), command=LAUNCH, steps=4, placement=placement)
        manifest["spec"]["template"]["spec"]["hostNetwork"] = True
        jobs.submit(manifest)
    for name in names:
        status = jobs.wait_phase(name, "Succeeded")
        assert status["failures"] == 0, status
        assert status["observed"]["step"] == 4
        assert status["attempt"] == 1, status
    first, second = (jobs.pods(name) for name in names)
    assert nodes(first) == nodes(second) == placement["workerNodes"]
    ports = [
        {port["hostPort"] for pod in pods for port in pod["spec"]["containers"][0]["ports"]} for pods in (first, second)
    ]
    assert not ports[0] & ports[1]


@pytest.mark.parametrize("who", ["one of them", pytest.param("all of them", marks=pytest.mark.whole)])
def test_programs_that_leave_politely_when_drained_are_started_again(jobs: Jobs, who: str) -> None:
    name = f"polite-{who.split()[0]}"
    jobs.submit(strange(name, POLITE))
    wait_until(lambda: "met 2" in jobs.log(f"{name}-1-0"), "both ranks", timeout_s=PATIENCE_S)
    leaving = jobs.pods(name)[: 1 if who == "one of them" else None]
    for pod in leaving:
        evict(jobs, pod["metadata"]["name"])
    status = jobs.wait(name, "another attempt", lambda now: now.get("attempt", 0) > 1 or "completionTime" in now)
    assert (status["attempt"], status.get("failures", 0), status["disruptions"]) == (2, 0, 1)
    wait_until(lambda: "met 2" in jobs.log(f"{name}-2-0"), "both ranks again", timeout_s=PATIENCE_S)
    jobs.delete(name)


def evict(jobs: Jobs, pod: str) -> None:
    """As kubectl drain does."""
    path = f"/api/v1/namespaces/{jobs.namespace}/pods/{pod}/eviction"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": jobs.namespace}}
    jobs.lab.control.api().create(path, body)
