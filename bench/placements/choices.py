"""Which machines others choose for a data-parallel job, in the order of its ring.

    name order, most-free-first, random    know nothing of links: what a script, a scheduler that spreads, and chance do
    region-greedy, DT-FM-like              choose machines by links and speeds, with all that Hulk knows

Those of the second kind are searches of Hulk's own over layouts, held to rings of data parallelism: greedy by region,
and the evolutionary search in the manner of DT-FM (Yuan et al. 2022, arXiv 2206.01288). They get the speeds that Hulk
measured, the links as the lab's file says they are, and the same budget as the search for Hulk's plan.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from hulk_lab.spec import LabSpec, NodeSpec
from hulk_operator.planning.process import MAX_SEARCH_S
from hulk_placement.layouts.place import place
from hulk_placement.model import Model
from hulk_placement.plan import Plan
from hulk_placement.solution import Budget
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload

from bench.layout_searches import SEARCHES
from bench.training import Size

BUDGET = Budget(seconds=MAX_SEARCH_S)
"""Of each search: what the operator's own has for Hulk's plan."""

SAME_REGION = Link(rtt_s=2e-4, bandwidth_bytes_per_s=1e9)


def nodes_of(lab: LabSpec) -> list[NodeSpec]:
    """All nodes, region after region."""
    return [node for region in lab.regions for node in region.nodes]


def by_name(lab: LabSpec, num_workers: int) -> tuple[str, ...]:
    """The first by name, a worker each."""
    return tuple(sorted(node.name for node in nodes_of(lab))[:num_workers])


def most_free_first(lab: LabSpec, num_workers: int) -> tuple[str, ...]:
    """The machines with most left of them, fastest first: all have one accelerator and nothing on it."""
    ranked = sorted(nodes_of(lab), key=lambda node: (-node.speed, node.name))
    return tuple(node.name for node in ranked[:num_workers])


def at_random(lab: LabSpec, num_workers: int, seed: int) -> tuple[str, ...]:
    """Any machines, in any order."""
    return tuple(random.Random(seed).sample([node.name for node in nodes_of(lab)], num_workers))


def searched(
    lab: LabSpec, num_workers: int, size: Size, flops_per_s: Mapping[str, float], search: str
) -> tuple[str, ...]:
    """What a search over layouts chooses, where machines have these speeds. RuntimeError where it finds nothing."""
    topology = topology_of(lab, flops_per_s)
    found = place(workload_of(topology, num_workers, size), topology, BUDGET, search=SEARCHES[search])
    if not isinstance(found, Plan):
        raise RuntimeError(f"{search}: {found.message}")
    return tuple(worker.machine for worker in found.workers)


def topology_of(lab: LabSpec, flops_per_s: Mapping[str, float]) -> Topology:
    """A lab's links as its file says they are, its machines with these speeds."""
    machines = tuple(
        Machine(node.name, region.name, num_accelerators=node.accelerators, flops_per_s=flops_per_s[node.name])
        for region in lab.regions
        for node in region.nodes
    )
    links = {(region.name, region.name): SAME_REGION for region in lab.regions}
    for link in lab.links:
        back = next(other for other in lab.links if (other.source, other.target) == (link.target, link.source))
        rtt_s = (link.delay_ms + back.delay_ms) / 1e3
        links[link.source, link.target] = Link(rtt_s, link.mbit_per_s * 1e6 / 8)
    return Topology(machines, region_links=links)


def workload_of(topology: Topology, num_workers: int, size: Size) -> Workload:
    """The job that is trained: gloo's ring of so many replicas."""
    return Workload(
        "bench/placements",
        Model.of(size.shape, "fp32"),
        size.global_batch,
        {machine.name: machine.num_accelerators for machine in topology.machines},
        min_workers=num_workers,
        max_workers=num_workers,
        data=num_workers,
        sync=Sync(mode="ring"),
    )
