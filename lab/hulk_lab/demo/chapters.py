"""The demo: what a user does by hand, one command after the other, with the time beside every line.

Cluster -> Hulk by Helm -> region matrix as measured -> kubectl apply -> plan -> pods -> falling loss -> observed beside
predicted. It goes only through kubectl, helm and hulk, so that whatever it shows, a user can do as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hulk_lab.addons import STORE, STORE_NAMESPACE
from hulk_lab.demo.story import Story
from hulk_lab.errors import LabError
from hulk_lab.kube import Kube
from hulk_lab.nodeconfig import RESOURCE
from hulk_lab.processes import NotReadyError, wait_until
from hulk_lab.wan import check, relay
from hulk_lab.wan.addresses import LabNetwork

SYSTEM_NAMESPACE = "hulk-system"
NAMESPACE = "hulk-demo"
FINISHED = ("Succeeded", "Failed")
STEP_OF_LOADED_RTT = 5


class DemoError(LabError):
    """The demo cannot go on; the message says why."""


def wait_for(what: str, condition: Callable[[], bool], timeout_s: float) -> None:
    """Look twice a second: each look is a command."""
    wait_until(condition, what, timeout_s=timeout_s, interval_s=0.5)


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that the demo runs on.

    image: repository:tag of Hulk's image, present on the nodes; build: changes whenever what is in it does.
    wan: the lab's network, None on a cluster of the user's own. prometheus: its address, empty when not known.
    """

    kube: Kube
    image: str
    build: str = ""
    wan: LabNetwork | None = None
    prometheus: str = ""


@dataclass(slots=True)
class Demo:
    """One run of the demo on a cluster that is up; repository: the checkout with chart and examples."""

    target: Target
    repository: Path
    story: Story
    marks_s: dict[str, float] = field(default_factory=dict)

    @property
    def kube(self) -> Kube:
        return self.target.kube

    @property
    def wan(self) -> LabNetwork | None:
        return self.target.wan

    def run(self, job_file: Path) -> bool:
        """Install, measure, apply, follow; True when the job succeeded."""
        job = yaml.safe_load(job_file.read_text())
        name = job["metadata"]["name"]
        if self.wan is None:
            self.own_cluster()
        self.install()
        self.measure()
        self.submit(job, name)
        self.planned(name)
        self.deployed(name)
        self.train(name)
        return self.result(name)

    def own_cluster(self) -> None:
        """Say which cluster is about to change, and stop before that where nothing could train."""
        config = json.loads(self.kube.kubectl("config", "view", "--minify", "-o", "json"))
        server = config["clusters"][0]["cluster"]["server"]
        self.story.title(f"On your own cluster: context {config['current-context']}, {server}")
        self.story.line(f"KUBECONFIG={self.kube.kubeconfig}; without it the demo brings up the lab instead")
        self.story.line(f"Helm installs Hulk with its CRDs in {SYSTEM_NAMESPACE}; a job trains in {NAMESPACE}")
        if not self.num_accelerators():
            raise DemoError(f"no node of this cluster offers {RESOURCE}, so nothing could train: nothing was installed")

    def install(self, *values: str) -> None:
        """Install or upgrade the chart, with more values as `--set` takes them, and wait for the operator."""
        self.story.title("Installing Hulk with Helm")
        chart, more = str(self.repository / "charts/hulk"), [flag for value in values for flag in ("--set", value)]
        command = ["helm", "upgrade", "--install", "hulk", chart, *self.settings(), *more]
        self.story.line(" ".join(command).replace(f"{self.repository}/", ""))
        self.kube.run(*command)
        self.marks_s["operator installed"] = self.story.elapsed_s
        self.story.line("operator and agents are ready")

    def settings(self) -> list[str]:
        """Helm's flags; the build as an annotation of the pods restarts them for a new image under the same tag."""
        repository, _, tag = self.target.image.rpartition(":")
        values = {"image.repository": repository, "image.tag": tag}
        if self.target.build:
            values |= {f"{part}.podAnnotations.build": self.target.build for part in ("operator", "agent")}
        flags = [flag for key, value in values.items() for flag in ("--set-string", f"{key}={value}")]
        where = ["--namespace", SYSTEM_NAMESPACE, "--create-namespace"]
        return [*where, *flags, "--set", "metrics.annotations=true", "--wait", "--timeout", "180s"]

    def measure(self) -> None:
        """Wait until every region pair has a measured round-trip time and bandwidth, then print the matrix."""
        self.story.title("Measuring the links between the regions")
        seen = -1

        def complete() -> bool:
            nonlocal seen
            links = json.loads(self.kube.run("hulk", "topology", "-o", "json"))["regionLinks"]
            pairs = [link for link in links if link["source"] != link["target"]]
            done = sum(1 for link in pairs if link.get("bandwidthBytesPerSecond"))
            if done != seen:
                seen = done
                self.story.line(f"{done} of {len(pairs)} directed region pairs measured")
            return bool(pairs) and done == len(pairs)

        wait_for("the bandwidth of every region pair", complete, timeout_s=180)
        self.story.block(self.kube.run("hulk", "topology"))

    def submit(self, job: dict[str, Any], name: str) -> None:
        """kubectl apply of the job, in a namespace that enforces the restricted Pod Security Standard."""
        self.story.title("kubectl apply -f examples/hulkjob.yaml")
        self.kube.apply(namespace_manifest())
        self.kube.kubectl("delete", "hulkjob", name, "-n", NAMESPACE, "--ignore-not-found", "--wait")
        if self.wan is not None:
            self.kube.apply(self.store_secret())
        else:
            job["spec"].pop("checkpoint", None)
            self.story.line("no checkpoint store outside the lab: this job runs without checkpoints")
        for container in job["spec"]["template"]["spec"]["containers"]:
            container["image"] = self.target.image
        workers = job["spec"]["workers"]
        workers["min"] = min(workers["min"], self.num_accelerators())
        job["metadata"]["namespace"] = NAMESPACE
        self.kube.apply(job)

    def num_accelerators(self) -> int:
        """All that the nodes advertise; a cluster of the user's own may have fewer than the example asks for."""
        nodes = self.kube.get("nodes")["items"]
        return sum(int(node["status"]["allocatable"].get(RESOURCE, 0)) for node in nodes)

    def store_secret(self) -> dict[str, Any]:
        """The lab's checkpoint credentials, for the job's namespace."""
        secret = self.kube.get("secret", STORE, "-n", STORE_NAMESPACE)
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": STORE, "namespace": NAMESPACE},
            "data": secret["data"],
        }

    def planned(self, name: str) -> None:
        """Wait for the plan and print who is where, in which order, and why."""
        self.story.title("The plan")
        self.wait_for_condition(name, "Planned", timeout_s=60)
        self.story.block(self.kube.run("hulk", "explain", name, "-n", NAMESPACE))

    def deployed(self, name: str) -> None:
        """Print each pod as it changes until the gang runs."""
        self.story.title("The gang")
        seen: dict[str, tuple[str, str]] = {}

        def up() -> bool:
            for pod in self.kube.get("pods", "-n", NAMESPACE, "-l", f"hulk.dev/job={name}")["items"]:
                state = (pod["status"].get("phase", "Pending"), pod["spec"].get("nodeName", "unbound"))
                if seen.get(pod["metadata"]["name"]) != state:
                    seen[pod["metadata"]["name"]] = state
                    self.story.line(f"{pod['metadata']['name']:<16} {state[0]:<10} on {state[1]}")
            return self.condition(name, "Deployed") == "True" or self.phase(name) in FINISHED

        wait_for("all pods to run", up, timeout_s=180)

    def train(self, name: str) -> None:
        """Follow rank 0's log until the job ends."""
        self.story.title("Training")
        attempt = self.job(name)["status"]["attempt"]
        before = self.rtts("before training") if self.wan else None
        counters = relay.stats(self.wan) if self.wan else None
        rank0 = f"hulk.dev/job={name},hulk.dev/attempt={attempt},hulk.dev/worker=0"
        first = self.kube.follow("kubectl", "logs", "-f", "--tail=-1", "-n", NAMESPACE, "-l", rank0)
        assert first.stdout is not None
        predicted = False
        for line in first.stdout:
            if line.startswith("step=1 "):
                self.marks_s["first step trained"] = self.story.elapsed_s
            if before is not None and line.startswith(f"step={STEP_OF_LOADED_RTT} "):
                self.rtts("during training", before)
            if not predicted and (prediction := self.job(name)["status"].get("prediction")):
                predicted = True
                step = seconds(prediction["stepMicroseconds"])
                self.story.line(f"predicted before the first step: {step} a step ({prediction['source']})")
            self.story.line(line.rstrip())
        first.wait()
        if self.wan and counters:
            self.story.line(f"emulated WAN: {relay.lateness(counters, relay.stats(self.wan))}")
        wait_for("the job to finish", lambda: self.phase(name) in FINISHED, timeout_s=120)

    def rtts(self, when: str, before: dict[tuple[str, str], float] | None = None) -> dict[tuple[str, str], float]:
        """Ping every region pair from node to node and print the round trips."""
        assert self.wan is not None
        found = check.measure_rtts(self.wan, num_pings=5)
        for (source, target), rtt_s in sorted(found.items()):
            if source < target:
                idle = f" ({before[source, target] * 1e3:.1f} ms before)" if before else ""
                self.story.line(f"ping {when}: {source} <-> {target} {rtt_s * 1e3:.1f} ms{idle}")
        return found

    def result(self, name: str) -> bool:
        """Observed beside predicted, and where to look next."""
        status = self.job(name)["status"]
        self.story.title(f"{status['phase']}: predicted against observed")
        predicted, observed = status.get("prediction", {}), status.get("observed", {})
        for label, key in (("step", "stepMicroseconds"), ("compute", "computeMicroseconds")):
            if key in predicted and key in observed:
                self.story.line(f"{label:<8} predicted {seconds(predicted[key])}   observed {seconds(observed[key])}")
        if "computeMicroseconds" in observed:
            share = 1 - observed["computeMicroseconds"] / observed["stepMicroseconds"]
            self.story.line(f"communication is {share:.0%} of an observed step")
        error, loss = observed.get("relativeError", "not observed"), observed.get("loss", "not observed")
        self.story.line(f"relative error of the step: {error}; loss {loss}")
        self.story.title("Where to look next")
        path = f"{self.kube.bin_path}:$PATH"
        lines = WHERE_NEXT.format(
            kubeconfig=self.kube.kubeconfig, path=path, name=name, namespace=NAMESPACE, system=SYSTEM_NAMESPACE
        )
        self.story.block(lines + (f"\n{self.target.prometheus}  Prometheus" if self.target.prometheus else ""))
        self.story.title("; ".join(f"{what} after {at_s:.0f} s" for what, at_s in self.marks_s.items()))
        return bool(status["phase"] == "Succeeded")

    def job(self, name: str) -> dict[str, Any]:
        return self.kube.get("hulkjob", name, "-n", NAMESPACE)

    def phase(self, name: str) -> str:
        return str(self.job(name).get("status", {}).get("phase", "Pending"))

    def condition(self, name: str, kind: str) -> str:
        conditions = self.job(name).get("status", {}).get("conditions", [])
        return next((str(item["status"]) for item in conditions if item["type"] == kind), "Unknown")

    def wait_for_condition(self, name: str, kind: str, timeout_s: float) -> None:
        """Wait until a condition is True; when it stays False, say why in the operator's own words."""
        try:
            wait_for(f"condition {kind} of {name}", lambda: self.condition(name, kind) == "True", timeout_s)
        except NotReadyError as error:
            told = [
                f"{item['type']}={item['status']} {item['reason']}: {item['message']}"
                for item in self.job(name).get("status", {}).get("conditions", [])
            ]
            raise DemoError(f"{error}; " + ("; ".join(told) or "the operator has said nothing yet")) from None


def namespace_manifest() -> dict[str, Any]:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}


def seconds(microseconds: int) -> str:
    """
    >>> seconds(1_234_567)
    '1.235 s'
    """
    return f"{microseconds / 1e6:.3f} s"


WHERE_NEXT = """\
export KUBECONFIG={kubeconfig} PATH={path}
kubectl get hulkjobs -n {namespace}                     every job with its phase and step times
kubectl describe hulkjob {name} -n {namespace}            conditions and events
hulk explain {name} -n {namespace}                        the plan and why
hulk topology                                        the links as measured
kubectl get lease hulk-operator -n {system}            HOLDER is the operator that acts, up to the _
kubectl get --raw /api/v1/namespaces/{system}/pods/OPERATOR:9401/proxy/metrics
charts/hulk/files/dashboards/hulk.json               the Grafana dashboard (chart: grafana.dashboard=true)"""
