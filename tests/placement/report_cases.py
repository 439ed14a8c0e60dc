"""Plans to show: small ones whose figures are known, large ones that fill a page, and one with hostile names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hulk_placement.cost.predict import predict
from hulk_placement.geography.cities import coordinates
from hulk_placement.geography.light import Coordinates
from hulk_placement.layer_pins import LayerPin
from hulk_placement.model import Layer, Model
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.report.rows import View
from hulk_placement.report.view import view
from hulk_placement.solution import Budget
from hulk_placement.solve import solve
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload

GIB = 1 << 30
HOSTILE = "<script>document.title='ran'</script>\"'&<img src=x onerror=alert(1)>"

Case = tuple[View, dict[str, Coordinates]]


def world(regions: list[str], memory_bytes: int = 16 * GIB, flow: float | None = None) -> Topology:
    machines = tuple(
        Machine(f"{region}-{n}", region, "", 4, "Tesla-V100-SXM2-16GB", memory_bytes, 1e13, price_per_hour=2.0)
        for region in regions
        for n in range(2)
    )
    far = Link(0.08, 5e7, flow_bytes_per_s=flow)
    links = {(a, b): Link(1e-4, 1e9) if a == b else far for a in regions for b in regions}
    return Topology(machines, region_links=links, egress_price_per_gb={p: 0.05 for p in links if p[0] != p[1]})


def job(topology: Topology, num_layers: int = 8, name: str = "team/job", **changes: object) -> Workload:
    """Layers of 10 million parameters, 0.3 TFLOP a sequence; each keeps 64 MiB and sends 8."""
    layers = tuple(Layer(f"model.layers.{n}", 10_000_000, 1e11, 2e11, 8 << 20, 64 << 20) for n in range(num_layers))
    candidates = {machine.name: machine.num_accelerators for machine in topology.machines}
    given = {"global_batch": 32, "max_workers": 10_000, "pipeline": None, "tensor": None} | changes
    return Workload(name, Model(layers), candidates=candidates, **given)  # type: ignore[arg-type]


def shown(plan: Plan, workload: Workload, topology: Topology) -> View:
    return view(replace(plan, prediction=predict(plan, workload, topology)), workload, topology, is_searched=False)


def pipelined(memory_bytes: int = 16 * GIB) -> View:
    """Two pipelines of two stages over an ocean, the first layers pinned."""
    topology = world(["frankfurt", "tokyo"], memory_bytes, flow=2e7)
    workload = job(topology, layer_pins=(LayerPin((0, 1), regions=("frankfurt",)),))
    names = ("frankfurt-0", "tokyo-0", "frankfurt-1", "tokyo-1")
    plan = Plan(
        workload.key,
        1,
        tuple(WorkerSlot(name, name[:-2], 2) for name in names),
        (16, 16),
        2,
        2,
        NOT_PREDICTED,
        Layout(2, 2, 2),
        stages=(0, 5),
        why=("It was chosen by hand.",),
    )
    return shown(plan, workload, topology)


def ring_of(regions: list[str], name: str = "team/ring") -> View:
    """A replica on every machine."""
    topology = world(regions)
    names = [machine.name for machine in topology.machines]
    workload = job(topology, name=name, global_batch=2 * len(names))
    slots = tuple(WorkerSlot(machine.name, machine.region, 1) for machine in topology.machines)
    plan = Plan(name, 1, slots, (2,) * len(names), 1, 1, NOT_PREDICTED, Layout(len(names)))
    return shown(plan, workload, topology)


def searched(name: str) -> View:
    """What the planner finds for three regions."""
    regions = [name, "eu-west", "us-east"]
    topology = world(regions)
    workload = job(topology, pipeline=1, tensor=1, max_workers=6)
    plan = solve((workload,), (), topology, Budget(500)).plans[workload.key]
    return view(plan, workload, topology)


def staged(num_stages: int) -> View:
    """One pipeline of many stages in one region."""
    topology = world(["paris"])
    topology = replace(topology, machines=tuple(replace(m, num_accelerators=num_stages) for m in topology.machines))
    workload = job(topology, num_layers=num_stages)
    slots = tuple(WorkerSlot(f"paris-{stage % 2}", "paris", 1) for stage in range(num_stages))
    layout, stages = Layout(1, num_stages), tuple(range(num_stages))
    plan = Plan(workload.key, 1, slots, (32,), 1, 1, NOT_PREDICTED, layout, stages=stages, recompute=True)
    return shown(plan, workload, topology)


def places(names: list[str]) -> dict[str, Coordinates]:
    return {name: where for name in names if (where := coordinates(name))}


CITIES = ["Amsterdam", "Athens", "Atlanta", "Tokyo", "Sydney", "Singapore", "London", "Paris", "Mumbai", "Toronto"]

CASES: dict[str, Callable[[], Case]] = {
    "two stages over an ocean": lambda: (pipelined(), {}),
    "too little memory": lambda: (pipelined(GIB * 3 // 2), {}),  # beside the framework one stage fits
    "a ring over ten cities": lambda: (ring_of(CITIES), {}),
    "two sites of one city": lambda: (ring_of(["a", "b"]), {"a": (50.11, 8.68), "b": (50.1, 8.7)}),
    "no coordinates, 24 regions": lambda: (ring_of([f"cloud-region-{n}" for n in range(24)]), {}),
    "one machine's region": lambda: (ring_of(["quito"]), {"quito": (-0.2, -78.5)}),
    "searched, with hostile names": lambda: (searched(HOSTILE), {}),
    "forty stages": lambda: (staged(40), {}),
}
