"""A script's own connection between regions, by the plan that its environment names: one for the process."""

import atexit
import contextlib
import functools
import os
import threading
from contextlib import AbstractContextManager
from dataclasses import replace

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
from hulk_runtime.plan.flows import CollectivePlan


@functools.cache  # asked in each all-reduce
def is_planned() -> bool:
    """Whether the plan has sums between regions."""
    found = plan()
    return found is not None and found.collective_plan() is not None


@functools.cache
def plan() -> wire.Plan | None:
    """The plan; None in a run by hand."""
    path = environment.read(os.environ).plan_path
    return wire.load(path) if os.path.exists(path) else None


def between_regions_of(group: dist.ProcessGroup | None) -> AllReduce | None:
    """The sum over a group, of some ranks with its part of the plan; None: over the world.

    Connected when first asked for, by all ranks of the group, and closed at the process's exit. None where torch sums:
    it is planned so, the group is of one region, or its ranks are not those of the plan. A world that is made anew is
    another group.
    """
    asked = group or dist.group.WORLD
    assert asked is not None
    return _connected(asked, group is None or group is dist.group.WORLD)


def num_connected() -> int:
    """Of groups that were asked for."""
    return _connected.cache_info().currsize


@functools.cache
def _connected(group: dist.ProcessGroup, is_world: bool) -> AllReduce | None:
    planned, here = plan(), replace(environment.read(os.environ), collective_port=0)  # ranks tell one another the port
    whole = planned.collective_plan() if planned is not None else None
    if planned is None or whole is None:
        return None
    if dist.get_world_size() != planned.num_ranks:
        say_by_torch(f"the world has {dist.get_world_size()} ranks, the plan {planned.num_ranks}")
        return None
    part = whole if is_world else whole.part(dist.get_process_group_ranks(group))
    if part is None:
        return None
    with torch.inference_mode(False):  # other threads write what is made here
        return _connect(here, planned, None if is_world else part, group)


def _connect(
    here: Environment, planned: wire.Plan, part: CollectivePlan | None, group: dist.ProcessGroup
) -> AllReduce | None:
    """`part`: of the plan, None: all of it."""
    chosen = device()
    if _are_elsewhere(planned, here, chosen, group):
        say_by_torch("ranks are not on the workers that the plan has them on")
        return None
    introduced = init_process_group.introduce(here, dist.get_backend(group), chosen, group)
    if part is None:
        between = _open_until_exit(connections.connect(here, planned, introduced))
    else:
        between = _open_until_exit(connections.connect_group(here, part, introduced, group.group_name))
    between.patience_s = _patience_s(here, planned, timeout_s(group, chosen))
    return between


def device() -> torch.device:
    """What a script's tensors are on: the GPU that it has chosen, where torch finds any."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def _patience_s(here: Environment, planned: wire.Plan, torch_s: float) -> float:
    """For ranks that live and take no part: as torch, unless the job says how long.

    Others may do something else for minutes: rank 0 saves or evaluates. A rank that dies is noticed long before.
    """
    own_s = peer_timeout_s(here, planned)
    return own_s if names.ENV_SILENCE_SECONDS in os.environ else max(own_s, torch_s)


def _are_elsewhere(planned: wire.Plan, here: Environment, chosen: torch.device, group: dist.ProcessGroup) -> bool:
    """The same on all ranks of a group: a launcher may order ranks by itself, as torchrun's c10d rendezvous does."""
    is_mine = dist.get_rank() in planned.ranks_of(here.worker)
    num_elsewhere = torch.tensor([0.0 if is_mine else 1.0], device=chosen)
    dist.all_reduce(num_elsewhere, dist.ReduceOp.MAX, group)  # a maximum is torch's in any case
    return bool(num_elsewhere.item())


def _open_until_exit(connection: "AbstractContextManager[AllReduce | None]") -> AllReduce:
    script_exit.end_with_its_code()
    opened, leaving = contextlib.ExitStack(), threading.Event()
    atexit.register(opened.close)
    between = opened.enter_context(connection)
    assert between is not None
    opened.callback(leaving.set)
    script_exit.end_where_stuck(between.collective, leaving)
    return between
