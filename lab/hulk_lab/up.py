"""Bring a lab up, stage by stage, and take every trace of it away again.

    machine -> programs -> network -> control plane -> nodes -> add-ons -> Kueue, if asked for -> simulated nodes

Each stage does only what is not done yet, so `up` on a lab that is up only looks. `down` starts from what is on the
machine, not from what `up` believes it did, so that it also cleans up after a SIGKILL.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hulk_lab import addons, cgroups, control_plane, kueue, kwok, mounts, node, paths, spec, sysctls
from hulk_lab.builds import everything, images
from hulk_lab.builds.golang import KUEUE_VERSION, link_programs
from hulk_lab.builds.oci import Image
from hulk_lab.control_plane import ControlPlane
from hulk_lab.errors import LabError
from hulk_lab.kube import Kube
from hulk_lab.node import Node
from hulk_lab.processes import ProcessTable
from hulk_lab.progress import Progress, Silent
from hulk_lab.spec import LabSpec
from hulk_lab.wan import network, slots
from hulk_lab.wan.addresses import LabNetwork

_SPEC_FILE = "lab.yaml"


class LabNotUpError(LabError):
    """There is no such lab on this machine."""


@dataclass(frozen=True, slots=True)
class Lab:
    """A lab that is up."""

    spec: LabSpec
    net: LabNetwork
    state: Path

    @property
    def control(self) -> ControlPlane:
        return ControlPlane(self.net, self.state)

    @property
    def kube(self) -> Kube:
        """kubectl, helm and hulk as the administrator."""
        return Kube(self.control.kubeconfig, program_path(self.state / "bin"))

    @property
    def nodes(self) -> list[Node]:
        """Its real nodes."""
        return [Node(self.control, place) for place in self.net.nodes]

    def node(self, name: str) -> Node:
        """The real node of that name; ValueError names those there are."""
        return Node(self.control, self.net.node(name))


def extra_parts(with_kueue: bool) -> tuple[str, ...]:
    """The optional parts that a lab wants built."""
    return ("kueue",) if with_kueue else ()


def program_path(programs: Path) -> str:
    """For PATH: the lab's kubectl and helm, and `hulk` of the environment that runs the lab."""
    return f"{programs}:{Path(sys.executable).parent}"


def up(lab: LabSpec, progress: Progress | None = None) -> Lab:
    """Bring a lab up: everything its file says, Ready. Without regions that is a control plane with simulated nodes."""
    progress = progress or Silent()
    built = everything.build(progress, with_nodes=bool(lab.num_nodes), extra=extra_parts(lab.kueue))
    state = paths.state_folder(lab.name)
    state.mkdir(parents=True, exist_ok=True)
    net = LabNetwork(lab, slots.acquire(lab.name))
    with progress.stage("network", f"10.{128 + net.slot}.0.0/16"):
        network.up(net, state)
    (state / _SPEC_FILE).write_text(spec.dump(lab))
    images.choose(state, built)
    link_programs(state / "bin")
    sysctls.raise_limits(lab.name)
    with progress.stage("control plane"):
        control = control_plane.start(net, state)
    if net.nodes:
        _nodes_and_addons(control, progress)
    if lab.kueue:
        with progress.stage("kueue", KUEUE_VERSION):
            kueue.start(control)
    if lab.kwok.nodes:
        with progress.stage("simulated nodes", f"{lab.kwok.nodes} by kwok"):
            kwok.add_nodes(control, lab.kwok)
    return Lab(lab, net, state)


def load_images(lab: Lab, built: Sequence[Image]) -> None:
    """Put images on every node of a lab that is up; pods made from then on use them."""
    images.choose(lab.state, built)
    for each in lab.nodes:
        for image in built:
            node.import_image(each, image)


def _nodes_and_addons(control: ControlPlane, progress: Progress) -> None:
    nodes = [Node(control, place) for place in control.net.nodes]
    with progress.stage("nodes", f"{len(nodes)} kubelets Ready"):
        addons.before_nodes(control)
        with ThreadPoolExecutor(len(nodes)) as pool:
            list(pool.map(node.start, nodes))
        node.start_governor(control)
    with progress.stage("add-ons", "DNS, checkpoint store, Prometheus"):
        addons.wait_ready(control)


def find(name: str) -> Lab:
    """The lab of that name; LabNotUpError when it is not up."""
    slot, file = slots.find(name), paths.state_folder(name) / _SPEC_FILE
    if slot is None or not file.exists():
        raise LabNotUpError(f"no lab {name!r} is up on this machine: hulk-lab up --lab {name}")
    lab = spec.load(file)
    return Lab(lab, LabNetwork(lab, slot), paths.state_folder(name))


def recorded() -> list[str]:
    """Every lab this machine knows of, up or half gone; what only left its logs is not one."""
    states = [state for state in paths.STATES.iterdir() if spec.is_name(state.name)] if paths.STATES.is_dir() else []
    left = {state.name for state in states if any(path.name != "logs" for path in state.iterdir())}
    return sorted(left | slots.names())


def down(name: str, progress: Progress | None = None, *, keep_logs: bool = False) -> None:
    """Remove every process, mount, group, namespace, interface and file of a lab, however it ended."""
    progress = progress or Silent()
    state, slot = paths.state_folder(name), slots.find(name)
    with progress.stage("down", name):
        table = ProcessTable(state)
        table.kill(table.all())
        cgroups.destroy(name)
        mounts.unmount_below(state)
        if slot is not None:
            network.down(slot, state)
        sysctls.restore(name)
        _remove_state(state, keep_logs)
        slots.release(name)


def _remove_state(state: Path, keep_logs: bool) -> None:
    kept = {"logs"} if keep_logs else set()
    for path in state.iterdir() if state.is_dir() else ():
        if path.name not in kept:
            subprocess.run(["rm", "-rf", path], check=True)  # several times as fast as shutil on a node's images
    if state.is_dir() and not keep_logs:
        state.rmdir()
