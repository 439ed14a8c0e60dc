"""torch's DistributedDataParallel with the planned all-reduce: a script changes one line.

    from hulk_runtime.collective.ddp import DistributedDataParallel      # instead of torch.nn.parallel

The plan says how many buckets the gradients go in; over a WAN few large ones win. Where the plan is gloo's or NCCL's
own ring only that changes; without a plan (a run by hand) it is torch's class.
"""

import atexit
import contextlib
import functools
import logging
import math
import os
import sys
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as TorchDDP

from hulk_runtime import errors
from hulk_runtime.collective import between_regions, init_process_group
from hulk_runtime.collective.peer_timeout import peer_timeout_s
from hulk_runtime.collective.reduction.vector import DTYPES
from hulk_runtime.collective.staging import AllReduce
from hulk_runtime.job import environment
from hulk_runtime.job.shutdown import exit_now
from hulk_runtime.plan import wire

log = logging.getLogger(__name__)

MIB = 1 << 20


class DistributedDataParallel(TorchDDP):
    """Torch's class; all its arguments. Needs `init_process_group`, like torch's.

    The planned all-reduce is that of all ranks: a model of some of them (`process_group`, `device_mesh`) keeps torch's,
    and so does one with `mixed_precision`, which has a hook of its own.
    """

    def __init__(self, module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        plan = _plan()
        if plan is not None:
            num_bytes = sum(p.numel() * p.element_size() for p in module.parameters() if p.requires_grad)
            kwargs.setdefault("bucket_cap_mb", bucket_mib(num_bytes, plan.num_buckets))
        super().__init__(module, *args, **kwargs)
        if plan is None:
            return
        reason = self._why_torchs()
        if reason:
            log.warning("this model's gradients are summed by torch, not as planned: %s", reason)
            return
        between = _between_regions()
        if between is not None:
            self.register_comm_hook(between, all_reduce_hook)

    def _why_torchs(self) -> str:
        """Why the planned all-reduce cannot serve this model; empty where it can."""
        ranks = dist.get_process_group_ranks(self.process_group)
        if ranks != list(range(dist.get_world_size())):
            return f"its process group has ranks {ranks} of {dist.get_world_size()}"
        return "mixed_precision brings a hook of its own" if self.mixed_precision is not None else ""


def all_reduce_hook(
    between: AllReduce,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # public, but not in torch's __all__
) -> torch.futures.Future[torch.Tensor]:
    """A bucket's mean over all ranks; what `register_comm_hook` takes.

    backward ends with RankLostError, as it does when a rank is lost, where one takes no part for as long as `between`
    has patience. What is not summed over regions, as float64, torch sums.
    """
    gradients_N = bucket.buffer()
    mean_N = gradients_N.div_(dist.get_world_size())
    if gradients_N.dtype not in DTYPES:
        return _summed_by_torch(mean_N)
    on_gpu = gradients_N.device.type == "cuda"
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=[gradients_N.device] if on_gpu else None)
    name = (bucket.index(), bucket.parameters()[0].data_ptr())  # torch makes other buckets after the first step
    work = between.all_reduce(mean_N, name=name)
    # torch takes what a future fails with for a tensor; what a callback of backward raises reaches the script as it is.
    with contextlib.suppress(RuntimeError):  # there is no such backward where buckets are reduced outside it
        torch.autograd.Variable._execution_engine.queue_callback(work.wait)

    def ended(error: Exception | None) -> None:
        if error is None:
            future.set_result(gradients_N)
        else:
            future.set_exception(error)  # type: ignore[arg-type]  # torch's own annotation is the result's type

    work.on_end(ended)
    return future


def _summed_by_torch(values: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    under_way = dist.all_reduce(values, async_op=True)
    assert under_way is not None
    return under_way.get_future().then(lambda future: future.value()[0])


def bucket_mib(num_bytes: int, num_buckets: int) -> float:
    """The size of `num_buckets` equal buckets in MiB, rounded up so that not one more is needed.

    >>> bucket_mib(8 << 20, 2)
    4.0
    """
    return math.ceil(num_bytes / num_buckets / 1024) * 1024 / MIB


@functools.cache
def _plan() -> wire.Plan | None:
    path = environment.read(os.environ).plan_path
    return wire.load(path) if os.path.exists(path) else None


@functools.cache
def _between_regions() -> AllReduce | None:
    """One for the process, connected at the first model and closed at its exit."""
    plan, here = _plan(), environment.read(os.environ)
    assert plan is not None
    group = init_process_group.introduce(here, dist.get_backend(), init_process_group.device(here.local_rank))
    _end_with_its_code()
    open_until_exit = contextlib.ExitStack()
    atexit.register(open_until_exit.close)
    between = open_until_exit.enter_context(between_regions.connect(here, plan, group))
    if between is not None:
        between.patience_s = peer_timeout_s(here, plan)
    return between


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
