"""What a plan was made of: the machines and links that there were, kept with it to tell later what has changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hulk_placement.plan import Plan, used_pairs
from hulk_placement.topology import Link, LinkKind, Pair, Topology
from hulk_placement.workload import Workload


@dataclass(frozen=True, slots=True)
class Basis:
    """The machines that the workload might use, and known links.

    `accelerators` and `regions` are by machine. `region_links` are between all regions of these machines, a region's
    inside among them; `machine_links` those that the plan uses, where the two machines have one of their own.
    `uplinks` (bytes/s by region) and `speeds` (FLOP/s of one accelerator by machine) are those that are stated.
    """

    accelerators: Mapping[str, int]
    regions: Mapping[str, str]
    region_links: Mapping[Pair, Link]
    machine_links: Mapping[Pair, Link]
    uplinks: Mapping[str, float] = field(default_factory=dict)
    speeds: Mapping[str, float] = field(default_factory=dict)


def basis_of(plan: Plan, workload: Workload, topology: Topology) -> Basis:
    """What the plan was made of, when the topology is the one that it was made on."""
    return _with_own_links(_ground(workload, topology), plan, topology)


def bases_of(plans: Mapping[str, Plan], workloads: Mapping[str, Workload], topology: Topology) -> dict[str, Basis]:
    """What each plan of a pass was made of: what was free but for the pass's other plans, and what its job had already.

    `topology`: as it was before the plans. Jobs of the same candidates, the same object, share what is the same.
    """
    used = Counter[str]()
    for plan in plans.values():
        used.update(plan.accelerators())
    left = {machine.name: machine.num_accelerators - used[machine.name] for machine in topology.machines}
    grounds: dict[int, Basis] = {}
    found = {}
    for key, plan in plans.items():
        workload = workloads[key]
        of = id(workload.candidates)
        if of not in grounds:
            ground = _ground(workload, topology)
            grounds[of] = replace(ground, accelerators={name: max(0, left[name]) for name in ground.accelerators})
        had = Counter({name: num * workload.accelerators_per_worker for name, num in workload.kept.items()})
        had.update(plan.accelerators())
        free = {name: max(0, left[name] + num) for name, num in had.items() if name in grounds[of].accelerators}
        own = replace(grounds[of], accelerators={**grounds[of].accelerators, **free})
        found[key] = _with_own_links(own, plan, topology)
    return found


def _ground(workload: Workload, topology: Topology) -> Basis:
    """All that does not come from a plan."""
    machines = [machine for machine in topology.machines if machine.name in workload.candidates]
    regions = dict.fromkeys(machine.region for machine in machines)
    return Basis(
        accelerators={machine.name: machine.num_accelerators for machine in machines},
        regions={machine.name: machine.region for machine in machines},
        region_links=_known({(a, b): topology.region_link(a, b) for a in regions for b in regions}),
        machine_links={},
        uplinks={region: rate for region, rate in topology.uplinks.items() if region in regions},
        speeds={machine.name: machine.flops_per_s for machine in machines if machine.flops_per_s is not None},
    )


def _with_own_links(ground: Basis, plan: Plan, topology: Topology) -> Basis:
    own = {pair: topology.link(*pair) for pair in used_pairs(plan) if pair in topology.node_links}
    return replace(ground, machine_links=_known(own))


def _known(links: Mapping[Pair, Link]) -> dict[Pair, Link]:
    """With round trips alone: the way back, which makes one of two one-way latencies, need not be among the links."""
    return {pair: replace(link, one_way_s=None) for pair, link in links.items() if link.kind is not LinkKind.UNKNOWN}
