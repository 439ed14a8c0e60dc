"""Flows of Hulk's own all-reduce for a plan document that asks for it and does not say them."""

from __future__ import annotations

import math

from hulk_placement.collective import CollectivePlan, build_network, plan_collective
from hulk_placement.files.plan import PlanFile
from hulk_placement.plan import WorkerSlot
from hulk_placement.search.transport import SLACK_BYTES, SLACK_BYTES_A_RANK
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload


def flows_of(
    document: PlanFile, workers: tuple[WorkerSlot, ...], workload: Workload, topology: Topology
) -> CollectivePlan:
    """The flows for one bucket of the workload's gradients, as the search plans them."""
    machines = [slot.machine for slot in workers for _ in range(slot.num_accelerators)]
    network = build_network(topology, machines, allow_unknown=workload.allow_unknown_links)
    slack = SLACK_BYTES + SLACK_BYTES_A_RANK * network.num_ranks
    size = math.ceil(workload.model.gradient_bytes / document.buckets) + slack
    return plan_collective(
        network,
        [size],
        on_region_loss="restart",
        fixed_shares=workload.sync.fixed_shares,
        compression=workload.sync.compression,
        with_alternatives=False,
    )
