"""A script's own connection between regions, by the plan that its environment names: one for the process."""

import atexit
import contextlib
import functools
import logging
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.distributed as dist

from hulk_runtime import names
from hulk_runtime.collective import between_regions as connections
from hulk_runtime.collective import script_exit
from hulk_runtime.collective.connecting import Connecting
from hulk_runtime.collective.forks import forsaken
from hulk_runtime.collective.gradient_sums import say_by_torch
from hulk_runtime.collective.group import Collective
from hulk_runtime.collective.members import Introduction, Member, addresses_of, exchange_members, read_members
from hulk_runtime.collective.peer_timeout import peer_timeout_s
from hulk_runtime.collective.process_group import timeout_s
from hulk_runtime.collective.reduction import region_backend
from hulk_runtime.collective.staging import AllReduce
from hulk_runtime.errors import PeerLostError
from hulk_runtime.job import environment
from hulk_runtime.job.environment import Environment
from hulk_runtime.plan import wire
from hulk_runtime.plan.flows import CollectivePlan

log = logging.getLogger(__name__)

_asked_for: dict[dist.ProcessGroup | None, Connecting | None] = {}
_groups: list[Collective] = []
"""Those that are connected."""


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


def between_regions_of(group: dist.ProcessGroup | None) -> Connecting | None:
    """The sum over a group, of some ranks with its part of the plan; None: over the world.

    Connected from when it is first asked for, by all ranks of the group, and closed at the process's exit. None where
    torch sums: it is planned so, the group is of one region, or its ranks are not those of the plan. A world that is
    made anew is another group.
    """
    asked = group or dist.group.WORLD
    assert asked is not None
    if asked not in _asked_for:
        _asked_for[asked] = _of_its_ranks(asked, group is None or group is dist.group.WORLD)
    return _asked_for[asked]


def asked_for(group: dist.ProcessGroup | None) -> Connecting | None:
    """As `between_regions_of`, of groups that it was asked for: on all ranks alike, as they sum in one order."""
    return _asked_for.get(group or dist.group.WORLD)


def regions_of(group: dist.ProcessGroup) -> tuple[str, ...]:
    """The regions that a group's ranks are in, where the plan has sums between regions; else none.

    Nor of a group that torch has no list of, as one that a script splits off another by its own method.
    """
    planned = plan()
    if planned is None or planned.collective_plan() is None or dist.get_world_size() != planned.num_ranks:
        return ()
    try:
        ranks = dist.get_process_group_ranks(group)
    except KeyError:
        return ()
    regions = planned.regions_by_rank()
    return tuple(dict.fromkeys(regions[rank] for rank in ranks))


def loss() -> PeerLostError | None:
    """What ended the first of the connected groups that has ended; None while all last."""
    return next((error for each in _groups if (error := each.loss()) is not None), None)


def num_connected() -> int:
    """Of groups that were asked for."""
    return len(_asked_for)


def _of_its_ranks(group: dist.ProcessGroup, is_world: bool) -> Connecting | None:
    found, own = _planned(group, is_world), _own(group)
    if found is None and own is not None:
        own.listener.close()
    return found


def _planned(group: dist.ProcessGroup, is_world: bool) -> Connecting | None:
    planned = plan()
    whole = planned.collective_plan() if planned is not None else None
    if planned is None or whole is None:
        return None
    if dist.get_world_size() != planned.num_ranks:
        say_by_torch(f"the world has {dist.get_world_size()} ranks, the plan {planned.num_ranks}")
        return None
    part = whole if is_world else whole.part(dist.get_process_group_ranks(group))
    if part is None:
        return None
    script_exit.end_with_its_code()
    own, members = _introduced(group)
    if _are_elsewhere(planned, members, group):
        say_by_torch("ranks are not on the workers that the plan has them on")
        return None
    if len(part.regions) < len(whole.regions) and dist.get_rank(group) == 0:
        _say_by_equal_exchange(dist.get_world_size(group), ", ".join(regions_of(group)))
    with torch.inference_mode(False):  # other threads write what is made here
        return _connect(planned, part, group, own.listener, members, "" if is_world else group.group_name)


@functools.cache
def _say_by_equal_exchange(num_ranks: int, regions: str) -> None:
    """By a group's first rank, once for all groups alike."""
    log.warning("%d ranks sum by equal exchange: nothing is planned between %s alone", num_ranks, regions)


def _introduced(group: dist.ProcessGroup) -> tuple[Introduction, list[Member]]:
    """This rank's part and everybody's: a planned group's ranks have written it when they made the group."""
    own = _own(group)
    if own is not None:
        if own.listener.fileno() < 0:
            raise forsaken()
        return own, read_members(own.store, dist.get_world_size(group))
    own = Introduction()
    return own, exchange_members(own.member, group)


def _own(group: dist.ProcessGroup) -> Introduction | None:
    """Of a planned group; torch's own have none."""
    found: Introduction | None = getattr(group, "introduction", None)
    return found


def _are_elsewhere(planned: wire.Plan, members: Sequence[Member], group: dist.ProcessGroup) -> bool:
    """The same on all ranks of a group: a launcher may order ranks by itself, as torchrun's c10d rendezvous does."""
    ranks = dist.get_process_group_ranks(group)
    return any(rank not in planned.ranks_of(member.worker) for rank, member in zip(ranks, members, strict=True))


def _connect(
    planned: wire.Plan,
    part: CollectivePlan,
    group: dist.ProcessGroup,
    listener: socket.socket,
    members: Sequence[Member],
    name: str,
) -> Connecting:
    """`name`: of some ranks; the world has none."""
    here, chosen, rank = environment.read(os.environ), device(), dist.get_rank(group)
    torch_s = timeout_s(group, chosen)
    patience_s = _patience_s(here, planned, torch_s)
    here = replace(here, rendezvous_s=max(here.rendezvous_s, torch_s))  # others may come to their first sum late
    inside = region_backend.join(part, rank, chosen) if not name and region_backend.is_wanted(chosen) else None
    opened, leaving = contextlib.ExitStack(), threading.Event()
    atexit.register(opened.close)

    def connect() -> AllReduce:
        addresses = addresses_of(members)
        between = opened.enter_context(
            connections.connect_group(here, part, rank, chosen, addresses, listener, name, inside)
        )
        between.patience_s = patience_s
        opened.callback(leaving.set)
        _groups.append(between.collective)
        script_exit.end_where_stuck(between.collective, leaving)
        return between

    return Connecting(connect, script_exit.end_if_stuck)


def device() -> torch.device:
    """What a script's tensors are on: the GPU that it has chosen, where torch finds any."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def _patience_s(here: Environment, planned: wire.Plan, torch_s: float) -> float:
    """For ranks that live and take no part: as torch, unless the job says how long.

    Others may do something else for minutes: rank 0 saves or evaluates. A rank that dies is noticed long before.
    """
    own_s = peer_timeout_s(here, planned)
    return own_s if names.ENV_SILENCE_SECONDS in os.environ else max(own_s, torch_s)
