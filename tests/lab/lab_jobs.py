"""Jobs of the lab tests: what is submitted, what is seen of them, and waiting for it.

Waiting asks the API server directly (a kubectl per look would take the nodes' CPU); what is asserted comes from the
commands that a user has.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hulk_lab.addons import STORE, STORE_NAMESPACE, prometheus_url
from hulk_lab.builds import images
from hulk_lab.demo.chapters import Demo, Target
from hulk_lab.demo.story import Story
from hulk_lab.kube import CommandFailedError
from hulk_lab.processes import NotReadyError, wait_until
from hulk_lab.up import Lab
from rich.console import Console

GROUP, VERSION = "hulk.dev", "v1alpha1"
SYSTEM_NAMESPACE = "hulk-system"
PYTHON = "/opt/hulk/bin/python"
TRAIN = (PYTHON, "-m", "hulk_runtime.examples.gpt", "--learning-rate", "0.01")
LAUNCH = ("/opt/hulk/bin/hulk-launch", *TRAIN[1:])  # its pods outlive an attempt
SLEEP = ("sh", "-c", "trap exit TERM; sleep 86400 & wait")  # a container's first process ignores SIGTERM otherwise
ENDLESS = 100_000
FINISHED = ("Succeeded", "Failed")
PATIENCE_S = 300
GRACE_S = 30  # Kubernetes' own, which the jobs here do not change
RESUMED = re.compile(r"^resumed after step (\d+)$", re.MULTILINE)
Object = dict[str, Any]

RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
TINY = {"layers": 1, "hidden": 32, "heads": 2, "sequenceLength": 32, "vocabulary": 256}


def job(
    name: str,
    workers: tuple[int, int],
    *,
    command: Iterable[str] = TRAIN,
    steps: int = 60,
    checkpoint_every: int | None = None,
    **spec: Any,
) -> Object:
    """A HulkJob of a tiny model; with `checkpoint_every` it keeps its state in the lab's object store."""
    if checkpoint_every is not None:
        storage = {"url": f"s3://checkpoints/{name}", "secretName": STORE}
        spec["checkpoint"] = {"storage": storage, "everySteps": checkpoint_every}
    container = {
        "name": "worker",
        "image": images.HULK_REFERENCE,
        "command": list(command),
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}},
        "securityContext": RESTRICTED,
    }
    user = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "HulkJob",
        "metadata": {"name": name},
        "spec": {
            "workers": {"min": workers[0], "max": workers[1]},
            "model": {"transformer": TINY},
            "training": {"globalBatch": 12, "steps": steps},
            "template": {"spec": {"containers": [container], "securityContext": user}},
            **spec,
        },
    }


@dataclass(frozen=True, slots=True)
class Jobs:
    """The HulkJobs of one namespace of a lab."""

    lab: Lab
    namespace: str

    def make_namespace(self) -> None:
        """One that enforces the restricted Pod Security Standard and holds the checkpoint store's keys."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.lab.kube.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace, "labels": labels}}
        )
        data = self.lab.kube.get("secret", STORE, "-n", STORE_NAMESPACE)["data"]
        self.lab.kube.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": STORE, "namespace": self.namespace},
                "data": data,
            }
        )

    def submit(self, manifest: Object) -> None:
        """kubectl apply."""
        manifest["metadata"]["namespace"] = self.namespace
        self.lab.kube.apply(manifest)

    def patch(self, name: str, spec: Object) -> None:
        """Change a job's spec."""
        body = json.dumps({"spec": spec})
        self.lab.kube.kubectl("patch", "hulkjob", name, "-n", self.namespace, "--type=merge", "-p", body)

    def delete(self, name: str) -> None:
        """kubectl delete; returns when the object is gone."""
        self.lab.kube.kubectl("delete", "hulkjob", name, "-n", self.namespace)

    def get(self, name: str) -> Object:
        """The HulkJob."""
        found: Object = self.lab.control.api().get(
            f"/apis/{GROUP}/{VERSION}/namespaces/{self.namespace}/hulkjobs/{name}"
        )
        return found

    def status(self, name: str) -> Object:
        """Its status; empty before the operator has seen it."""
        found: Object = self.get(name).get("status", {})
        return found

    def condition(self, name: str, kind: str) -> Object:
        """One condition; empty when it was never set."""
        conditions = self.status(name).get("conditions", [])
        return next((item for item in conditions if item["type"] == kind), {})

    def pods(self, name: str, attempt: int | None = None) -> list[Object]:
        """The pods that the API server knows of a job, by worker."""
        selector = f"hulk.dev/job={name}" + (f",hulk.dev/attempt={attempt}" if attempt is not None else "")
        found = self.lab.control.api().get(f"/api/v1/namespaces/{self.namespace}/pods", labelSelector=selector)
        return sorted(found["items"], key=lambda pod: int(pod["metadata"]["labels"]["hulk.dev/worker"]))

    def events(self, name: str) -> dict[str, list[str]]:
        """What a job's events say, by their reasons."""
        found = self.lab.control.api().get(
            f"/api/v1/namespaces/{self.namespace}/events", fieldSelector=f"involvedObject.name={name}"
        )
        said: dict[str, list[str]] = {}
        for item in found["items"]:
            said.setdefault(item["reason"], []).append(item["message"])
        return said

    def plan(self, name: str) -> Object:
        """The plan of the attempt in force, as its pods read it."""
        stored = self.lab.kube.get("configmap", self.status(name)["plan"]["name"], "-n", self.namespace)
        decoded: Object = json.loads(gzip.decompress(base64.b64decode(stored["binaryData"]["plan.json.gz"])))
        return decoded

    def log(self, pod: str) -> str:
        """What a pod has printed; empty while it has not started."""
        try:
            return self.lab.kube.kubectl("logs", pod, "-n", self.namespace)
        except CommandFailedError:
            return ""

    def follow(self, pod: str) -> Callable[[], list[str]]:
        """Read a pod's log from now on, also beyond its deletion; to be called for its lines once the pod has ended."""
        follower = self.lab.kube.follow("kubectl", "logs", "-f", pod, "-n", self.namespace)
        output = follower.stdout
        assert output is not None
        return lambda: output.read().splitlines()

    def resumed_at(self, name: str, attempt: int) -> int:
        """The step after which an attempt of hulk-launch went on, in its own words."""

        def said() -> re.Match[str] | None:
            log = "".join(self.log(pod["metadata"]["name"]) for pod in self.pods(name, attempt)[:1])
            return RESUMED.search(log.partition(f"attempt {attempt}: worker 0")[2])

        wait_until(said, f"the resumption of attempt {attempt}", timeout_s=PATIENCE_S, interval_s=0.5)
        found = said()
        assert found is not None
        return int(found[1])

    def wait(self, name: str, what: str, is_so: Callable[[Object], object], timeout_s: float = PATIENCE_S) -> Object:
        """The status once a condition on it is true; the error says what the operator said last."""
        try:
            wait_until(lambda: is_so(self.status(name)), f"{name}: {what}", timeout_s=timeout_s, interval_s=0.25)
        except NotReadyError as error:
            raise AssertionError(f"{error}; its status: {json.dumps(self.status(name), indent=1)}") from None
        return self.status(name)

    def wait_phase(self, name: str, *phases: str, timeout_s: float = PATIENCE_S) -> Object:
        """The status once the job is in one of some phases; it must not end otherwise meanwhile."""
        status = self.wait(name, " or ".join(phases), lambda now: now.get("phase") in {*phases, *FINISHED}, timeout_s)
        assert status["phase"] in phases, json.dumps(status, indent=1)
        return status

    def wait_checkpoint(self, name: str, attempt: int, after: int = 0) -> int:
        """The step of the first checkpoint that is seen of an attempt, beyond step `after`."""
        status = self.wait(
            name,
            f"a checkpoint of attempt {attempt} after step {after}",
            lambda now: now.get("attempt") == attempt and now.get("checkpoint", {}).get("step", 0) > after,
        )
        return int(status["checkpoint"]["step"])


def install(lab: Lab, repository: Path) -> None:
    """Install Hulk as the demo does; its operator comes to lie beside the checkpoint store.

    So tests may kill the other nodes.
    """
    demo = Demo(Target(lab.kube, images.HULK_REFERENCE, wan=lab.net), repository, Story(Console(quiet=True)))
    [store] = lab.kube.get("pods", "-n", STORE_NAMESPACE)["items"]
    others = [node.name for node in lab.nodes if node.name != store["spec"]["nodeName"]]
    with cordoned(lab, *others):
        demo.install()
    demo.measure()


@contextmanager
def cordoned(lab: Lab, *nodes: str) -> Iterator[None]:
    """Nodes that take no new pods meanwhile."""
    lab.kube.kubectl("cordon", *nodes)
    try:
        yield
    finally:
        lab.kube.kubectl("uncordon", *nodes)


def system_pods(lab: Lab, component: str) -> list[Object]:
    """Hulk's own pods of one component that are not on their way out."""
    selector = f"app.kubernetes.io/component={component}"
    found = lab.kube.get("pods", "-n", SYSTEM_NAMESPACE, "-l", selector)["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def saved_at_its_end(lines: list[str]) -> int:
    """The step of the last checkpoint in a log, which must be the last step that was made."""
    steps = [int(found[1]) for line in lines if (found := re.match(r"step=(\d+) ", line))]
    saved = [int(found[1]) for line in lines if (found := re.match(r"checkpoint step=(\d+) ", line))]
    assert saved[-1:] == steps[-1:] != [], "\n".join(lines[-5:])
    return saved[-1]


def nodes(pods: Iterable[Object]) -> list[str]:
    """Where pods are."""
    return [pod["spec"].get("nodeName", "") for pod in pods]


def uids(pods: Iterable[Object]) -> list[str]:
    """Which pods these are."""
    return [pod["metadata"]["uid"] for pod in pods]


def query(lab: Lab, expression: str) -> list[Object]:
    """The result of an instant query to the lab's Prometheus."""
    found: list[Object] = _prometheus(lab, "query", query=expression)["result"]
    return found


def is_scraped(lab: Lab, metric: str) -> bool:
    """Whether some target names the metric, be it without any series."""
    return metric in _prometheus(lab, "metadata", metric=metric)


def _prometheus(lab: Lab, path: str, **parameters: str) -> Object:
    address = f"{prometheus_url(lab.net)}/api/v1/{path}"
    with urllib.request.urlopen(f"{address}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
        found: Object = json.load(answer)["data"]
    return found
