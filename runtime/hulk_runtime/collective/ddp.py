"""torch's DistributedDataParallel with the planned all-reduce: a script changes one line.

    from hulk_runtime.collective.ddp import DistributedDataParallel      # instead of torch.nn.parallel

The plan says how many buckets the gradients go in; over a WAN few large ones win. Where the plan is gloo's or NCCL's
own ring only that changes; without a plan (a run by hand) it is torch's class.
"""

import atexit
import contextlib
import functools
import math
import os
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as TorchDDP

from hulk_runtime import environment, groups, silence, wan, wire
from hulk_runtime.collective.staging import AllReduce

MIB = 1 << 20
_open_until_exit = contextlib.ExitStack()
atexit.register(_open_until_exit.close)


class DistributedDataParallel(TorchDDP):
    """Torch's class; all its arguments. Needs `init_process_group`, like torch's."""

    def __init__(self, module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        plan = _plan()
        if plan is not None:
            num_bytes = sum(p.numel() * p.element_size() for p in module.parameters() if p.requires_grad)
            kwargs.setdefault("bucket_cap_mb", bucket_mib(num_bytes, plan.num_buckets))
        super().__init__(module, *args, **kwargs)
        between = None if plan is None else _between_regions()
        if between is not None:
            self.register_comm_hook(between, all_reduce_hook)


def all_reduce_hook(
    between: AllReduce,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # public, but not in torch's __all__
) -> torch.futures.Future[torch.Tensor]:
    """A bucket's mean over all ranks; what `register_comm_hook` takes.

    It ends with RankLostError, as a lost rank does, where one takes no part for as long as `between` has patience.
    """
    gradients_N = bucket.buffer()
    on_gpu = gradients_N.device.type == "cuda"
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=[gradients_N.device] if on_gpu else None)
    name = (bucket.index(), bucket.parameters()[0].data_ptr())  # torch makes other buckets after the first step
    work = between.all_reduce(gradients_N.div_(dist.get_world_size()), name=name)

    def ended(error: Exception | None) -> None:
        if error is None:
            future.set_result(gradients_N)
        else:
            future.set_exception(error)  # type: ignore[arg-type]  # torch's own annotation is the result's type

    work.on_end(ended)
    return future


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
    group = groups.introduce(here, dist.get_backend(), groups.device(here.local_rank))
    between = _open_until_exit.enter_context(wan.connect(here, plan, group))
    if between is not None:
        between.patience_s = silence.silence_s(here, plan)
    return between
