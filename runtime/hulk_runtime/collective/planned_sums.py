"""A script's own connection between regions, by the plan that its environment names: one for the process."""

import atexit
import contextlib
import functools
import os
import sys
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TypeVar

import torch.distributed as dist

from hulk_runtime import errors
from hulk_runtime.collective import between_regions as connections
from hulk_runtime.collective import init_process_group
from hulk_runtime.collective.peer_timeout import peer_timeout_s
from hulk_runtime.collective.process_group import Group
from hulk_runtime.collective.staging import AllReduce
from hulk_runtime.job import environment
from hulk_runtime.job.environment import Environment
from hulk_runtime.job.shutdown import exit_now
from hulk_runtime.plan import wire

Opened = TypeVar("Opened")


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
def between_regions() -> AllReduce | None:
    """Connected when first asked for, by all ranks, and closed at the process's exit; None where torch sums."""
    planned, here = plan(), environment.read(os.environ)
    assert planned is not None
    between = _open_until_exit(connections.connect(here, planned, _introduced(here)))
    if between is not None:
        between.patience_s = peer_timeout_s(here, planned)
    return between


@functools.cache
def between_regions_of(group: dist.ProcessGroup, name: str) -> AllReduce | None:
    """The same for a group of some of the ranks, which all of them know by the name; None where it is of one region."""
    planned, here = plan(), environment.read(os.environ)
    whole = planned.collective_plan() if planned is not None else None
    part = whole.part(dist.get_process_group_ranks(group)) if whole is not None else None
    if planned is None or part is None:
        return None
    between = _open_until_exit(connections.connect_group(here, part, _introduced(here, group), name))
    between.patience_s = peer_timeout_s(here, planned)
    return between


def _introduced(here: Environment, group: "dist.ProcessGroup | None" = None) -> Group:
    device = init_process_group.device(here.local_rank)
    return init_process_group.introduce(here, dist.get_backend(), device, group)


def _open_until_exit(connection: "AbstractContextManager[Opened]") -> Opened:
    _end_with_its_code()
    opened = contextlib.ExitStack()
    atexit.register(opened.close)
    return opened.enter_context(connection)


@functools.cache
def _end_with_its_code() -> None:
    """A script that one of Hulk's errors ends leaves as Hulk's own programs do: with a line, and the error's code.

    The operator tells by it the rank that failed from those that only lost it.
    """
    usual = sys.excepthook
    codes: list[int] = []
    atexit.register(lambda: exit_now(codes[0]) if codes else None)  # runs after what is registered later

    def said(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        usual(kind, error, trace)
        if isinstance(error, errors.HulkError):
            codes.append(errors.report(error))

    sys.excepthook = said
