"""Small worlds for the planner's tests: the two measured WAN profiles, random worlds, and a planner that tries all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from hulk_placement.cost.compute import share_out, speeds
from hulk_placement.cost.predict import predict
from hulk_placement.model import Model
from hulk_placement.plan import Layout, Plan, Prediction, WorkerSlot
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, LinkKind, Machine, Topology
from hulk_placement.workload import Workload
from hypothesis import strategies as st

PROFILES: Mapping[str, Mapping[str, tuple[float, float]]] = {
    # one-way milliseconds, Mbit/s
    "A": {"PO": (70, 60), "OP": (70, 60), "OT": (50, 100), "TO": (50, 100), "PT": (120, 40), "TP": (100, 20)},
    "B": {"PO": (40, 300), "OP": (40, 300), "OT": (60, 200), "TO": (60, 200), "PT": (120, 100), "TP": (120, 100)},
}
HEADER_BYTES = 52  # IP, TCP and its timestamps


def profile(name: str, mtu: int = 1500) -> Topology:
    """Three regions P, O, T with two machines each over one of the measured profiles."""
    links = {}
    for (a, b), (one_way_ms, megabits_per_s) in PROFILES[name].items():
        back_ms = PROFILES[name][b + a][0]
        payload = megabits_per_s * 1e6 / 8 * (mtu - HEADER_BYTES) / mtu
        links[a, b] = Link((one_way_ms + back_ms) / 1e3, payload)
    links |= {(a, a): Link(0.0002, 1e9) for a in "POT"}
    return Topology(tuple(Machine(a + i, a, flops_per_s=1e12) for a in "POT" for i in "01"), region_links=links)


def workload(topology: Topology, **changes: object) -> Workload:
    """A workload that may run on every machine of the topology."""
    base = Workload(
        shares="equal",
        key="team/job",
        model=Model.of_totals(num_parameters=262_144, flops_per_sequence=1e10, activation_bytes_per_sequence=1000),
        global_batch=64,
        candidates={machine.name: 64 for machine in topology.machines},
        min_workers=1,
        max_workers=len(topology.machines),
        sync=Sync("ring"),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def plan_of(job: Workload, topology: Topology, machines: tuple[str, ...], num_buckets: int) -> Plan:
    """The plan of these machines in rank order, predicted by the evaluator."""
    speed = speeds(job, topology, machines)
    ranks = [name for name in machines for _ in range(job.accelerators_per_worker)]
    shares = share_out(job.global_batch, [speed[name] for name in ranks])
    plan = Plan(
        key=job.key,
        attempt=job.attempt,
        workers=tuple(WorkerSlot(m, topology.machine(m).region, job.accelerators_per_worker) for m in machines),
        shares=shares,
        micro_batch=1,
        num_buckets=num_buckets,
        prediction=Prediction(0, 0, 0, None, (), 0, calibrated=False),
        layout=Layout(data=len(shares)),
    )
    return replace(plan, prediction=predict(plan, job, topology))


def orders(job: Workload, topology: Topology) -> Iterator[tuple[str, ...]]:
    """Every rank order of every admissible set of machines, one rotation of each, without forbidden links."""
    room = [
        machine.name
        for machine in topology.machines
        for _ in range(min(job.candidates[machine.name], machine.num_accelerators // job.accelerators_per_worker))
    ]
    most = min(job.max_workers, job.global_batch // job.accelerators_per_worker)
    for num_workers in range(job.min_workers, most + 1):
        for chosen in set(itertools.combinations(room, num_workers)):
            for rest in set(itertools.permutations(chosen[1:])):
                order = (chosen[0], *rest)
                kinds = {topology.link(order[rank], order[rank - 1]).kind for rank in range(num_workers)}
                if job.allow_unknown_links or LinkKind.UNKNOWN not in kinds:
                    yield order


def best_by_trying_all(job: Workload, topology: Topology) -> Plan | None:
    """The best plan there is, by making every one."""
    plans = (plan_of(job, topology, order, buckets) for order in orders(job, topology) for buckets in (1, 2))
    return min(plans, key=lambda plan: plan.prediction.step_s, default=None)


RTTS = st.sampled_from([0.0003, 0.001, 0.02, 0.08, 0.15, 0.15, 0.3])
BANDWIDTHS = st.sampled_from([2e5, 1e6, 5e6, 5e6, 2e7, 1e9])
LINKS = st.builds(Link, RTTS, BANDWIDTHS, flow_bytes_per_s=st.none() | BANDWIDTHS)


@st.composite
def worlds(
    draw: st.DrawFn, max_regions: int = 3, max_machines: int = 6, own_links: bool = False, slots: bool = False
) -> Topology:
    """A topology of 2-3 machines a region, asymmetric links, some missing, different speeds."""
    regions = [f"r{number}" for number in range(draw(st.integers(1, max_regions)))]
    size = st.integers(1, max(1, min(3, max_machines // len(regions))))
    machines = tuple(
        Machine(
            f"{region}-{number}",
            region,
            num_accelerators=draw(st.integers(1, 2)) if slots else 1,
            flops_per_s=draw(st.sampled_from([1e11, 1e12, 1e12, 3e12])),
        )
        for region in regions
        for number in range(draw(size))
    )
    region_links = {(a, b): draw(LINKS) for a in regions for b in regions if a == b or draw(st.integers(0, 7))}
    pairs = [(a.name, b.name) for a in machines for b in machines if a is not b]
    node_links = {pair: draw(LINKS) for pair in pairs if draw(st.booleans())} if own_links else {}
    uplinks = {region: draw(BANDWIDTHS) for region in regions if draw(st.integers(0, 3)) == 0}
    return Topology(machines, node_links, region_links, uplinks)


@st.composite
def jobs(draw: st.DrawFn, topology: Topology) -> Workload:
    """A workload with 1 to all machines, small or large gradients, little or much computation."""
    room = sum(machine.num_accelerators for machine in topology.machines)
    most = draw(st.integers(1, room))
    return workload(
        topology,
        model=Model.of_totals(
            draw(st.sampled_from([1_000, 65_536, 1_048_576, 8_388_608])), draw(st.sampled_from([1e8, 1e10])), 0
        ),
        global_batch=draw(st.integers(most, 3 * most)),
        min_workers=draw(st.integers(1, most)),
        max_workers=most,
    )
