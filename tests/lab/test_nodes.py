"""Real nodes: pods on real kubelets, what they see, how fast they may be, and a node that dies and comes back."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from hulk_lab import cgroups, node, reset, up
from hulk_lab.addons import STORE, STORE_NAMESPACE
from hulk_lab.builds import images
from hulk_lab.kube import CommandFailedError
from hulk_lab.nodeconfig import DEVICE_PLUGINS
from hulk_lab.processes import wait_until
from hulk_lab.status import ready
from hulk_lab.wan.addresses import PORTS
from hulk_lab.wan.network import tcp_settings
from lab_jobs import PATIENCE_S, SYSTEM_NAMESPACE

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def lab(installed: up.Lab) -> up.Lab:
    """The shared lab as it was after the installation."""
    reset.reset(installed, keep={SYSTEM_NAMESPACE})
    return installed


def manifest(name: str, node_name: str, script: str, accelerators: int = 0) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(accelerators)} if accelerators else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": node_name},
            "containers": [
                {
                    "name": "main",
                    "image": images.HULK_REFERENCE,
                    "command": ["sh", "-c", script],
                    "resources": {"limits": limits},
                }
            ],
        },
    }


def run(lab: up.Lab, pod: dict[str, Any]) -> str:
    """Run a pod to its end; what it printed."""
    name = pod["metadata"]["name"]
    lab.kube.apply(pod)
    wait_until(lambda: phase(lab, name) in ("Succeeded", "Failed"), f"end of pod {name}", timeout_s=120, interval_s=0.2)
    printed = lab.kube.kubectl("logs", name)
    assert phase(lab, name) == "Succeeded", printed
    return printed


def phase(lab: up.Lab, name: str) -> str:
    return str(lab.kube.get("pod", name)["status"].get("phase"))


def test_nodes_have_regions_and_accelerators(lab: up.Lab) -> None:
    found = {
        item["metadata"]["labels"]["topology.kubernetes.io/region"]: item["status"]["allocatable"]["nvidia.com/gpu"]
        for item in lab.kube.get("nodes")["items"]
    }
    assert found == {"eu": "2", "us": "2", "ap": "2"}


def test_a_pod_has_the_wheel_torch_and_cluster_dns_but_no_source_tree(lab: up.Lab, repository: Path) -> None:
    script = (
        "set -e; id -u; /opt/hulk/bin/python -c 'import hulk_operator, hulk_runtime, json, torch;"
        " print(json.dumps([hulk_operator.__file__, hulk_runtime.__file__, torch.__file__]))';"
        f" test ! -e {repository}; cat /proc/self/mountinfo; echo; getent hosts kubernetes.default.svc"
    )
    lines = run(lab, manifest("look", "eu-0", script)).splitlines()

    assert lines[0] == "65532"
    operator, runtime, torch = json.loads(lines[1])
    assert operator.startswith("/opt/hulk/lib/")
    assert runtime.startswith("/opt/hulk/lib/")
    assert torch.startswith("/usr/local/lib/")
    assert lines[-1].split() == [lab.net.api_service_address, "kubernetes.default.svc.cluster.local"]
    mounts = [line.split() for line in lines if " - " in line]
    assert [fields for fields in mounts if str(repository) in fields[3]] == []
    borrowed = {mount.target: mount.source for mount in images.borrowed()}
    assert borrowed.keys() <= {fields[4] for fields in mounts}
    assert not any(source.is_relative_to(repository) for source in borrowed.values())


def test_a_job_pod_is_held_to_its_nodes_speed_and_others_are_not(lab: up.Lab) -> None:
    lab.kube.apply(manifest("job", "us-0", "sleep 600", accelerators=1))
    lab.kube.apply(manifest("system", "us-0", "sleep 600"))
    try:
        for name in ("job", "system"):
            wait_until(
                lambda name=name: phase(lab, name) == "Running", f"pod {name}", timeout_s=PATIENCE_S, interval_s=0.2
            )
        groups = cgroups.pod_groups(lab.spec.name, "us-0")
        job, system = (groups[lab.kube.get("pod", name)["metadata"]["uid"]] for name in ("job", "system"))
        assert quota(job) == "4000 10000"  # one of the two accelerators of a node of 0.8 cores
        assert quota(system).startswith(("-1 ", "max "))
    finally:
        lab.kube.kubectl("delete", "pod", "job", "system", "--now")


def quota(group: Path) -> str:
    unified = group / "cpu.max"
    if unified.exists():
        return unified.read_text().strip()
    return " ".join((group / name).read_text().strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"))


def test_pods_of_two_regions_see_each_others_addresses_across_the_wan(lab: up.Lab) -> None:
    serve = (
        "import socket; s = socket.create_server(('', 5000)); c, peer = s.accept(); print(peer[0]); c.sendall(b'hello')"
    )
    lab.kube.apply(manifest("server", "eu-0", f'/opt/hulk/bin/python -c "{serve}"'))
    wait_until(lambda: phase(lab, "server") == "Running", "the server", timeout_s=PATIENCE_S, interval_s=0.2)
    address = lab.kube.get("pod", "server")["status"]["podIP"]
    ask = (
        "import socket, time\n"
        "for _ in range(100):\n"
        "    try:\n"
        f"        c = socket.create_connection(('{address}', 5000))\n"
        "        break\n"
        "    except ConnectionRefusedError:\n"
        "        time.sleep(0.1)\n"
        "print(c.getsockname()[0], c.recv(5).decode())"
    )
    own_address, word = run(lab, manifest("client", "us-0", f'/opt/hulk/bin/python -c "{ask}"')).split()

    assert word == "hello"
    wait_until(lambda: phase(lab, "server") == "Succeeded", "the server's end", timeout_s=PATIENCE_S, interval_s=0.2)
    assert lab.kube.kubectl("logs", "server").strip() == own_address


def test_a_pod_reaches_its_own_service_and_prometheus_finds_it_by_annotation(lab: up.Lab) -> None:
    web = manifest(
        "web", "eu-0", "cd /tmp && echo 'answer 42' > metrics && exec /opt/hulk/bin/python -m http.server 8000"
    )
    web["metadata"] |= {
        "labels": {"app": "web"},
        "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8000"},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "answers", "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8000}]},
    }
    lab.kube.apply(service)
    lab.kube.apply(web)
    look = "import urllib.request; print(urllib.request.urlopen('http://answers/metrics', timeout=2).read().decode())"

    def own_service() -> bool:
        try:
            return "answer 42" in lab.kube.kubectl("exec", "web", "--", "/opt/hulk/bin/python", "-c", look)
        except CommandFailedError:  # not running yet, or not yet an endpoint of the service
            return False

    wait_until(own_service, "the pod's own service", timeout_s=PATIENCE_S, interval_s=0.2)
    url = f"http://{lab.net.control_address}:{PORTS['prometheus']}/api/v1/query?query=answer"

    def scraped() -> list[dict[str, Any]]:
        with urllib.request.urlopen(url, timeout=5) as reply:
            result: list[dict[str, Any]] = json.load(reply)["data"]["result"]
        return result

    wait_until(scraped, "the scraped metric", timeout_s=PATIENCE_S, interval_s=0.2)
    (series,) = scraped()
    assert series["value"][1] == "42"
    assert (series["metric"]["namespace"], series["metric"]["pod"]) == ("default", "web")


def test_kubelets_listen_for_device_plugins_apart(lab: up.Lab) -> None:
    sockets = set()
    for name in ("us-0", "eu-0"):
        kubelet = lab.node(name).process("kubelet")
        assert kubelet is not None
        found = Path(f"/proc/{kubelet.pid}/root{DEVICE_PLUGINS}/kubelet.sock").stat()
        sockets.add((found.st_dev, found.st_ino))
    assert len(sockets) == 2


def test_starting_a_node_that_runs_restarts_nothing(lab: up.Lab) -> None:
    place = lab.node("eu-0")
    running = {name: place.process(name) for name in ("containerd", "kubelet", "kube-proxy")}
    written = {path: path.stat().st_mtime_ns for path in (place.paths.kubelet_config, place.paths.proxy_config)}
    node.start(place)
    assert None not in running.values()
    assert {name: place.process(name) for name in running} == running
    assert {path: path.stat().st_mtime_ns for path in written} == written


def test_a_killed_node_is_noticed_and_comes_back(lab: up.Lab) -> None:
    victim = lab.node("us-0")
    node.kill(victim)
    assert cgroups.processes(lab.spec.name, "us-0") == set()
    wait_until(lambda: ready(lab.kube.get("node", "us-0")) != "True", "the loss", timeout_s=PATIENCE_S, interval_s=0.5)

    node.start(victim)

    assert ready(lab.kube.get("node", "us-0")) == "True"
    assert run(lab, manifest("again", "us-0", "echo alive")).strip() == "alive"


def test_the_checkpoint_store_keeps_what_another_region_wrote(lab: up.Lab) -> None:
    secret = lab.kube.get("secret", STORE, "-n", STORE_NAMESPACE)
    lab.kube.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "checkpoint-store", "namespace": "default"},
            "data": secret["data"],
        }
    )
    script = (
        "import fsspec; f = fsspec.filesystem('s3'); f.pipe('checkpoints/a/b', b'x' * 100000); "
        "print(f.info('checkpoints/a/b')['size'], f.cat('checkpoints/a/b')[:1].decode())"
    )
    pod = manifest("writer", "us-0", f'/opt/hulk/bin/python -c "{script}"')
    pod["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "checkpoint-store"}}]

    assert run(lab, pod).split() == ["100000", "x"]


def test_a_pods_tcp_is_its_nodes(lab: up.Lab) -> None:
    """It has a namespace of its own, which takes nothing of what was set in the node's."""
    place = lab.net.nodes[0]
    settings = [f"/proc/sys/{key.replace('.', '/')}" for key in tcp_settings(lab.net.spec)]
    printed = run(lab, manifest("tcp", place.name, f"cat {' '.join(settings)}"))
    assert printed.split() == [str(value) for value in tcp_settings(lab.net.spec).values()]
