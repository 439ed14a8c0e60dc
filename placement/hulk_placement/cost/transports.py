"""What an all-reduce costs by the transport that runs it: one front for gloo, two levels over gloo, NCCL and a server.

Groups that reduce at the same time are priced together: the edges of all of them that use a directed region link or an
uplink share it. Hulk's own all-reduce is planned over the whole network and priced by `cost.wan`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hulk_placement.cost.gloo import Gloo
from hulk_placement.cost.gloo_rings import ring_times
from hulk_placement.cost.groups import Group, GroupTime
from hulk_placement.cost.hierarchical import Hierarchical, hierarchical_times
from hulk_placement.cost.nccl import nccl_times
from hulk_placement.cost.parameter_server import ParameterServer, server_times
from hulk_placement.nccl import Nccl
from hulk_placement.topology import Topology

Transport = Gloo | Hierarchical | Nccl | ParameterServer


def allreduce_seconds(transport: Transport, groups: Sequence[Group], topology: Topology) -> tuple[GroupTime, ...]:
    """Seconds of each group's all-reduce and the edge that holds it back; all groups begin together.

    A group of one rank takes 0 seconds. KeyError when a group names a machine that the topology lacks.
    """
    match transport:
        case Gloo():
            return ring_times(groups, topology)
        case Hierarchical():
            return hierarchical_times(groups, topology)
    nums = [group.num_buckets for group in groups]
    buckets = [
        replace(g, num_bytes=math.ceil(g.num_bytes / num), num_buckets=1) for g, num in zip(groups, nums, strict=True)
    ]
    times = zip(nums, _of_one_bucket(transport, buckets, topology), strict=True)
    return tuple(GroupTime(num * time.seconds, time.worst) for num, time in times)


def _of_one_bucket(
    transport: Nccl | ParameterServer, buckets: Sequence[Group], topology: Topology
) -> tuple[GroupTime, ...]:
    """By transports that take one bucket of a group after the other."""
    match transport:
        case ParameterServer():
            return server_times(buckets, topology, transport)
        case Nccl():
            return nccl_times(buckets, topology, transport)
