"""What stages and sums of a plan see of a topology, by the transports that they go over.

NCCL opens its sockets on one interface of a machine: all that a machine sends leaves through that NIC, and all that it
receives enters there, whatever other machine it comes from. A NIC without a stated limit is taken to be as wide as the
machine's widest link (assumption: one NIC, measured by that link).

Between stages NCCL uses all its connections to a peer (`Nccl.between_stages`), and they are not slowed down after they
were silent. Slow start after idle is a rule of each TCP connection, and gloo's was measured (`windows.rs`). NCCL's
transfers over links of 1 to 5 Gbit/s take their bytes and no more (measured for Yuan et al. 2022, arXiv 2206.01288), so
it is left out (assumption: over 10 Gbit/s and 10 to 20 ms there and back they take two to three round trips more).

Where a link's bandwidth goes by the size of messages, stages send micro-batches of the largest boundary, and gradients
of all parameters that they share; sums send what crosses an edge of a ring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hulk_placement.cost.groups import Group
from hulk_placement.cost.nccl_ring import ring_edge_bytes
from hulk_placement.cost.ties import ties
from hulk_placement.plan import Plan
from hulk_placement.topology import LinkKind, Topology
from hulk_placement.workload import Workload


def is_nccl_between_stages(plan: Plan, workload: Workload) -> bool:
    """Whether stages send over NCCL: as stated, else where sums do."""
    return (workload.stage_transport or ("nccl" if plan.algorithm == "nccl" else "gloo")) == "nccl"


def for_stages(plan: Plan, workload: Workload, topology: Topology) -> Topology:
    """The topology as what stages send each other finds it."""
    outputs = [layer.output_bytes for layer in workload.model.layers[:-1]]
    return _between_stages(plan, workload, topology.at_message(max(1.0, plan.micro_batch * max(outputs, default=0))))


def for_ties(plan: Plan, workload: Workload, topology: Topology) -> Topology:
    """The topology as the gradients of parameters that stages share find it."""
    num_bytes = max((tie.group.num_bytes for tie in ties(plan, workload)), default=1)
    return _between_stages(plan, workload, topology.at_message(num_bytes))


def _between_stages(plan: Plan, workload: Workload, seen: Topology) -> Topology:
    """The topology by the transport of stages."""
    if not is_nccl_between_stages(plan, workload):
        return seen
    machines = tuple(replace(machine, keeps_windows=True) for machine in seen.machines)
    return with_one_nic(replace(seen, machines=machines)).with_links(workload.nccl.between_stages)


def for_sums(plan: Plan, groups: Sequence[Group], topology: Topology) -> Topology:
    """The topology as the all-reduces of these groups find it."""
    num_bytes = [ring_edge_bytes(group) / group.num_buckets for group in groups]
    seen = topology.at_message(max(1.0, *num_bytes))
    return with_one_nic(seen) if plan.algorithm == "nccl" else seen


def with_one_nic(topology: Topology) -> Topology:
    """The topology where each machine without a stated NIC has one as wide as its widest link.

    >>> from hulk_placement.topology import Link, Machine
    >>> links = {("eu", "eu"): Link(0.001, 5.0), ("eu", "us"): Link(0.1, 2.0)}
    >>> found = with_one_nic(Topology((Machine("a", "eu"), Machine("b", "us")), region_links=links))
    >>> [machine.nic_bytes_per_s for machine in found.machines]
    [5.0, 2.0]
    """
    widest: dict[str, float] = {}
    regions = dict.fromkeys(machine.region for machine in topology.machines)
    of_regions = {pair: topology.region_link(*pair) for a in regions for b in regions for pair in ((a, b), (b, a))}
    for pair, link in of_regions.items():
        for region in pair:
            if link.kind is not LinkKind.UNKNOWN:
                widest[region] = max(widest.get(region, 0.0), link.bandwidth_bytes_per_s)
    own: dict[str, float] = {}
    for pair, link in topology.node_links.items():
        for name in pair if not link.own_wire else ():
            own[name] = max(own.get(name, 0.0), link.bandwidth_bytes_per_s)
    return replace(
        topology,
        machines=tuple(
            replace(machine, nic_bytes_per_s=max(widest.get(machine.region, 0.0), own.get(machine.name, 0.0)) or None)
            if machine.nic_bytes_per_s is None
            else machine
            for machine in topology.machines
        ),
    )
