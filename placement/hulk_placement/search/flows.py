"""The flows of Hulk's own all-reduce for a job's ranks: for the sizes that its buckets have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from hulk_placement.collective.classes import DEFAULT_SIZES, plan_collective
from hulk_placement.collective.network import build_network
from hulk_placement.collective.plan import CollectivePlan
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

NUM_BUCKETS = (1, 2, 4)
"""Of gradients, that are worth trying."""

SLACK_BYTES = 4096
SLACK_BYTES_A_RANK = 32
"""What rides behind the last bucket (`hulk_runtime.training.data_parallel.Tail`)."""


def flows_of(
    workload: Workload,
    topology: Topology,
    ranks: Sequence[str],
    numbers: Iterable[int],
    go_on: Callable[[], bool],
    whole: bool,
    width: int = 1,
) -> CollectivePlan:
    """Flows between the machines of some ranks, for gradients in each of so many buckets.

    So they go when `width` groups of ranks each sum their part at the same time, which may ask for flows of their size.
    `whole`: also for small vectors, and ways around a region that is lost, where the job asks for them.
    """
    network = build_network(topology, ranks, allow_unknown=workload.allow_unknown_links)
    slack = SLACK_BYTES + SLACK_BYTES_A_RANK * network.num_ranks
    parts = {number * each for number in numbers for each in (1, width)}
    sizes = {math.ceil(workload.model.gradient_bytes / part) + slack for part in parts}
    if whole:
        sizes |= {size for size in DEFAULT_SIZES if size < max(sizes)}
    return plan_collective(
        network,
        sizes,
        on_region_loss=workload.sync.on_region_loss if whole else "restart",
        fixed_shares=workload.sync.fixed_shares,
        compression=workload.sync.compression,
        encryption=workload.sync.encryption,
        with_alternatives=whole,
        go_on=go_on,
    )
