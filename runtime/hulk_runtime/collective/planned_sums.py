"""A script's own connection between regions, by the plan that its environment names: one for the process."""

import atexit
import contextlib
import functools
import os
import threading
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist

from hulk_runtime import names
from hulk_runtime.collective import between_regions as connections
from hulk_runtime.collective import init_process_group, script_exit
from hulk_runtime.collective.gradient_sums import say_by_torch
from hulk_runtime.collective.peer_timeout import peer_timeout_s
from hulk_runtime.collective.process_group import timeout_s
from hulk_runtime.collective.staging import AllReduce
from hulk_runtime.job import environment
from hulk_runtime.job.environment import Environment
from hulk_runtime.plan import wire


def is_planned() -> bool:
    """Whether the plan has sums between regions."""
    found = plan()
    return found is not None and found.collective_plan() is not None


@functools.cache
def plan() -> wire.Plan | None:
    """The plan; None in a run by hand."""
    path = environment.read(os.environ).plan_path
    return wire.load(path) if os.path.exists(path) else None


@functools.cache
def between_regions_of(group: dist.ProcessGroup | None) -> AllReduce | None:
    """The sum over a group, of some ranks with its part of the plan; None: over the world.

    Connected when first asked for, by all ranks of the group, and closed at the process's exit. None where torch sums:
    it is planned so, the group is of one region, or its ranks are not those of the plan.
    """
    planned, here = plan(), environment.read(os.environ)
    whole = planned.collective_plan() if planned is not None else None
    part = whole.part(dist.get_process_group_ranks(group)) if whole is not None and group is not None else whole
    if planned is None or part is None:
        return None
    if why := _why_not_these_ranks(planned, here, group):
        say_by_torch(why)
        return None
    device = init_process_group.device(here.local_rank)
    introduced = init_process_group.introduce(here, dist.get_backend(group), device, group)
    if group is None:
        between = _open_until_exit(connections.connect(here, planned, introduced))
    else:
        between = _open_until_exit(connections.connect_group(here, part, introduced, group.group_name))
    between.patience_s = _patience_s(here, planned, timeout_s(group, device))
    return between


def _patience_s(here: Environment, planned: wire.Plan, torch_s: float) -> float:
    """For ranks that live and take no part: as torch, unless the job says how long.

    Others may do something else for minutes: rank 0 saves or evaluates. A rank that dies is noticed long before.
    """
    own_s = peer_timeout_s(here, planned)
    return own_s if names.ENV_SILENCE_SECONDS in os.environ else max(own_s, torch_s)


def _why_not_these_ranks(planned: wire.Plan, here: Environment, group: dist.ProcessGroup | None) -> str:
    """The same on all ranks of a group: why the plan's ranks are others; empty where they are these.

    A launcher may order ranks by itself (torchrun's c10d rendezvous), or start more or fewer.
    """
    size = dist.get_world_size()
    if size != planned.num_ranks:
        return f"the world has {size} ranks, the plan {planned.num_ranks}"
    is_mine = dist.get_rank() in planned.ranks_of(here.worker)
    num_elsewhere = torch.tensor([0.0 if is_mine else 1.0], device=init_process_group.device(here.local_rank))
    dist.all_reduce(num_elsewhere, dist.ReduceOp.MAX, group)  # a maximum is torch's in any case
    return "ranks are not on the workers that the plan has them on" if num_elsewhere.item() else ""


def _open_until_exit(connection: "AbstractContextManager[AllReduce | None]") -> AllReduce:
    script_exit.end_with_its_code()
    opened, leaving = contextlib.ExitStack(), threading.Event()
    atexit.register(opened.close)
    between = opened.enter_context(connection)
    assert between is not None
    opened.callback(leaving.set)
    script_exit.end_where_stuck(between.collective, leaving)
    return between
