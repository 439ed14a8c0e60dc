"""The plan's mesh -> the groups of a replica of several ranks: inside it by torch, between replicas as planned.

Rank i of each replica sums with rank i of the others: each such group has its part of the plan, and all sum at once.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from hulk_runtime.collective import between_regions, init_process_group
from hulk_runtime.collective.process_group import Group, lost_peers, set_timeout
from hulk_runtime.job.environment import Environment
from hulk_runtime.plan import mesh
from hulk_runtime.plan.wire import Plan

NAMES = ("dp_replicate", "dp_shard", "tp")


@dataclass(frozen=True, slots=True)
class ReplicaGroups:
    """Of one rank: `between` are its likes, one of each replica, in their order, `inside` the ranks of its replica.

    `mesh` has all of `NAMES`.
    """

    mesh: DeviceMesh
    between: Group
    inside: Group

    def set_timeout(self, seconds: float) -> None:
        """As `Group.set_timeout`, of all groups."""
        self.between.set_timeout(seconds)
        self.inside.set_timeout(seconds)
        for name in ("dp_shard", "tp"):
            set_timeout(seconds, self.mesh.get_group(name))


@contextlib.contextmanager
def connect(environment: Environment, plan: Plan, world: Group) -> Iterator[ReplicaGroups]:
    """All ranks together. Raises PeerLostError, ConfigurationError, PortError."""
    found = mesh.mesh(dict(plan.layout.mesh), NAMES)
    width = plan.layout.width
    with lost_peers():
        made = DeviceMesh(world.device.type, torch.tensor(found.ranks).view(found.shape), mesh_dim_names=found.names)
        rows = [list(range(first, first + width)) for first in range(0, plan.num_ranks, width)]
        groups = [dist.new_group(ranks) for ranks in rows]
    own = groups[world.rank // width]
    assert isinstance(own, dist.ProcessGroup)  # a number where this rank is no member
    inside = Group(world.rank % width, width, world.backend, world.device, {}, process_group=own)
    likes = made.get_group("dp_replicate")
    between = init_process_group.introduce(environment, world.backend, world.device, likes)
    whole = plan.collective_plan()
    part = whole.part(dist.get_process_group_ranks(likes)) if whole else None
    if part is None:
        yield ReplicaGroups(made, between, inside)
        return
    with between_regions.connect_ranks(environment, part, between, f"part-{world.rank % width}") as wan:
        yield ReplicaGroups(made, replace(between, wan=wan), inside)
