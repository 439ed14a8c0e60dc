"""What a plan was made of: the machines and links that there were, kept with it to tell later what has changed."""

from __future__ import annotations

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
    machines = [machine for machine in topology.machines if machine.name in workload.candidates]
    regions = dict.fromkeys(machine.region for machine in machines)
    between = {(a, b): topology.region_link(a, b) for a in regions for b in regions}
    own = {pair: topology.link(*pair) for pair in used_pairs(plan) if pair in topology.node_links}
    return Basis(
        accelerators={machine.name: machine.num_accelerators for machine in machines},
        regions={machine.name: machine.region for machine in machines},
        region_links=_known(between),
        machine_links=_known(own),
        uplinks={region: rate for region, rate in topology.uplinks.items() if region in regions},
        speeds={machine.name: machine.flops_per_s for machine in machines if machine.flops_per_s is not None},
    )


def _known(links: Mapping[Pair, Link]) -> dict[Pair, Link]:
    """With round trips alone: the way back, which makes one of two one-way latencies, need not be among the links."""
    return {pair: replace(link, one_way_s=None) for pair, link in links.items() if link.kind is not LinkKind.UNKNOWN}
