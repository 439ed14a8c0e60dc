"""Small worlds for planners of several jobs: machines of two or three regions, models of a few layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hulk_placement.model import Layer, Model
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload


def model(num_layers: int = 2, flops: float = 1e12, parameters: int = 1_000_000) -> Model:
    """Layers that are all alike."""
    layers = (Layer(f"layer.{n}", parameters, flops, 2 * flops, 100_000, 200_000) for n in range(num_layers))
    return Model(tuple(layers))


def topology(speeds: dict[str, float], **machine: Any) -> Topology:
    """Machines named region and number; links are slower the farther their regions' letters are apart."""
    machines = tuple(Machine(name, name[0], flops_per_s=speed, **machine) for name, speed in speeds.items())
    regions = sorted({found.region for found in machines})
    links = {
        (a, b): Link(1e-4, 1e9) if a == b else Link(0.05 * abs(ord(a) - ord(b)), 1e8) for a in regions for b in regions
    }
    return Topology(machines, region_links=links)


def workload(topology: Topology, key: str = "team/job", trained: Model | None = None, **changes: Any) -> Workload:
    """A job that may have any layout on any machine, with micro-batches of one sequence."""
    candidates = {machine.name: machine.num_accelerators for machine in topology.machines}
    free = {"pipeline": None, "tensor": None, "max_workers": 100, "micro_batch": 1, "sync": Sync(mode="ring")}
    return Workload(key, trained or model(), candidates=candidates, **({"global_batch": 4} | free | changes))


def renamed(topology: Topology, jobs: list[Workload]) -> tuple[Topology, list[Workload]]:
    """The same under other names, in another order of jobs."""
    names = {machine.name: f"x{n}" for n, machine in enumerate(topology.machines)}
    machines = tuple(replace(machine, name=names[machine.name]) for machine in topology.machines)
    others = [
        replace(job, key=f"z/{n}", candidates={names[name]: room for name, room in job.candidates.items()})
        for n, job in enumerate(jobs)
    ]
    return replace(topology, machines=machines), others[::-1]
