"""The geo lab with Hulk installed, as the benchmarks use it: links that change, jobs that train, what they took.

Everything goes through kubectl, helm and hulk, as in the demo; only the links are changed through the lab.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hulk_lab import paths, spec, up
from hulk_lab.builds.images import HULK_REFERENCE
from hulk_lab.demo.chapters import Demo, Target
from hulk_lab.demo.story import Story
from hulk_lab.processes import wait_until
from hulk_lab.progress import Progress
from hulk_lab.spec import LabSpec
from hulk_lab.wan import relay
from rich.console import Console

from bench.conditions import TRIES, Watch, wait_for_quiet

NAME = "bench"
NAMESPACE = "hulk-bench"
FILES = {
    "A": paths.REPOSITORY / "lab/profile-a.yaml",
    "B": paths.REPOSITORY / "lab/profile-b.yaml",
    "asymmetric": paths.REPOSITORY / "lab/asymmetric.yaml",
    "drawn": paths.REPOSITORY / "lab/default.yaml",
    **{file.stem: file for file in sorted((paths.REPOSITORY / "bench/stages/labs").glob("*.yaml"))},
    "replan": paths.REPOSITORY / "bench/replanning/lab.yaml",
    **{file.stem: file for file in sorted((paths.REPOSITORY / "bench/placements/labs").glob("*.yaml"))},
}
"""Links by name; those that a lab takes over from another file have as many regions as its own."""
TIMEOUT_S = 400.0


class Geo:
    """A lab that is up with some links, and Hulk in it."""

    def __init__(self, lab: up.Lab, links: str, story: Story) -> None:
        self.lab, self.kube, self.story = lab, lab.kube, story
        self._links = links
        self._demo = Demo(Target(lab.kube, HULK_REFERENCE, wan=lab.net), paths.REPOSITORY, story)

    def install(self) -> None:
        """Helm, and a namespace for the jobs that admits only restricted pods.

        One bandwidth test at a time: the emulated links share the machine's processors, and the fastest need them all.
        """
        self._demo.install("probing.maxTests=1")
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})

    def use_links(self, name: str) -> None:
        """Give the lab the links of another file, region by position, and have Hulk measure them from nothing."""
        self.story.title(f"links {name}: {FILES[name].name}")
        if name != self._links:
            self._change_links(name)
        for _ in range(TRIES):
            wait_for_quiet()
            watch = Watch(self.lab.net)
            self._demo.measure()
            if watch.conditions().valid:
                break
            self.story.line(f"measured while the machine was busy: {watch.conditions()}")
            self._forget_links()

    def _change_links(self, name: str) -> None:
        ours = [region.name for region in self.lab.spec.regions]
        wanted = spec.load(FILES[name])
        renamed = dict(zip((region.name for region in wanted.regions), ours, strict=True))
        for link in wanted.links:
            relay.slow(
                self.lab.net,
                renamed[link.source],
                renamed[link.target],
                mbit_per_s=link.mbit_per_s,
                one_way_ms=link.delay_ms,
            )
        self._links = name
        self._forget_links()

    def _forget_links(self) -> None:
        self.kube.kubectl("delete", "nodeprofiles", "--all")

    @property
    def node_names(self) -> list[str]:
        """The real nodes in the order of the file: region after region."""
        return [node.name for node in self.lab.net.nodes]

    def apply(self, manifest: dict[str, Any]) -> None:
        """Apply one object in the benchmark's namespace."""
        manifest["metadata"]["namespace"] = NAMESPACE
        self.kube.apply(manifest)

    def find(self, kind: str, name: str) -> dict[str, Any]:
        """One object of the benchmark's namespace."""
        return self.kube.get(kind, name, "-n", NAMESPACE)

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """The pods of a selector."""
        items: list[dict[str, Any]] = self.kube.get("pods", "-n", NAMESPACE, "-l", selector)["items"]
        return items

    def last_line(self, pod: str) -> str:
        """Of a pod's log, when it has ended."""
        last = ""
        for line in self.log_lines(pod):
            last = line
        return last

    def delete(self, kind: str, name: str, selector: str) -> None:
        """Delete an object and wait until the pods of the selector are gone."""
        self.kube.kubectl("delete", kind, name, "-n", NAMESPACE, "--ignore-not-found", "--wait")
        wait(f"{name}'s pods to go", lambda: not self.pods(selector))

    def log_lines(self, pod: str) -> Iterator[str]:
        """A pod's log from its beginning, line by line while it runs; waits until the pod has one."""
        wait(f"{pod} to run", lambda: self._has_started(pod))
        process = self.kube.follow("kubectl", "logs", "-f", "-n", NAMESPACE, pod)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                yield line.rstrip()
        finally:
            process.kill()
            process.wait()

    def _has_started(self, pod: str) -> bool:
        found = self.kube.find("pod", pod, "-n", NAMESPACE)
        return found is not None and found["status"].get("phase") not in (None, "Pending", "Unknown")


def wait(what: str, condition: Callable[[], object]) -> None:
    """Look twice a second; NotReadyError names what did not come. kubectl takes a tenth of a core-second each time."""
    wait_until(condition, what, timeout_s=TIMEOUT_S, interval_s=0.5)


def container(*command: str) -> dict[str, Any]:
    """The one container of a restricted pod."""
    return {
        "name": "worker",
        "image": HULK_REFERENCE,
        "command": list(command),
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def pod_spec(worker: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A restricted pod around a container."""
    context = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    return {"securityContext": context, "terminationGracePeriodSeconds": 5, "containers": [worker], **more}


@contextmanager
def geo_lab(
    links: str,
    name: str = NAME,
    *,
    prepare: Callable[[Geo], None] = Geo.install,
    keep: bool = False,
    cores: float | None = None,
) -> Iterator[Geo]:
    """A lab of its own with these links, prepared; taken down at the end.

    `keep`: it is left up when nothing failed, and one that was left so is taken over as it is. `cores`: what the job
    pods of every node get, whatever the file says.
    """
    console = Console(highlight=False, soft_wrap=True)
    lab_spec: LabSpec = spec.load(FILES[links], name)
    if cores is not None:
        lab_spec = with_cores(lab_spec, cores)
    is_left = False
    try:
        if keep and name in up.recorded():
            geo = Geo(up.find(name), links, Story(console))
        else:
            geo = Geo(up.up(lab_spec, Progress(console)), links, Story(console))
            prepare(geo)
        yield geo
        is_left = keep
    finally:
        if not is_left:
            up.down(name)


def with_cores(lab: LabSpec, cores: float) -> LabSpec:
    """A lab all of whose nodes give their job pods so much of the processors."""
    regions = [
        region.model_copy(update={"nodes": tuple(node.model_copy(update={"speed": cores}) for node in region.nodes)})
        for region in lab.regions
    ]
    return lab.model_copy(update={"regions": tuple(regions)})


def script(name: str) -> dict[str, Any]:
    """The ConfigMap `scripts` with a file of bench/pods."""
    text = (Path(__file__).parent / "pods" / name).read_text()
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scripts"}, "data": {name: text}}
