"""A bucket of a model's gradients -> their mean over all ranks: by the plan, by torch, or by the script's own hook."""

import contextlib
import functools
import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist

from hulk_runtime.collective.connecting import Connecting
from hulk_runtime.collective.reduction.vector import DTYPES
from hulk_runtime.collective.staging import AllReduce

log = logging.getLogger(__name__)

Gradients = torch.futures.Future[torch.Tensor]


class Bucket(Protocol):
    """Torch's GradBucket."""

    def buffer(self) -> torch.Tensor:
        """All gradients in it, flat."""

    def index(self) -> int:
        """Its place among the model's."""

    def parameters(self) -> list[torch.Tensor]:
        """Whose gradients they are."""


Sums = AllReduce | Connecting
Hook = Callable[[Any, Bucket], Gradients]


class GradientSums:
    """Of one model, torch's DistributedDataParallel. `hook`: the script's own, with its state, in place of the plan's.

    `why_torch` says why torch sums all of them, empty where it need not; `has_joined` whether this rank has no more
    inputs, and only does in `join()` what the others do.
    """

    def __init__(self, between: Sums, model: torch.nn.parallel.DistributedDataParallel) -> None:
        self.between, self._model = between, weakref.ref(model)
        self.hook: tuple[Hook, Any] | None = None
        self.why_torch = ""
        self.has_joined = False

    def mean(self, bucket: Bucket) -> Gradients:
        """In place, as the plan has it where it can."""
        model, gradients = self._model(), bucket.buffer()
        assert model is not None
        mean = gradients.div_(self._num_taking_part(model, gradients.device))
        why = self.why_torch or why_not_planned([gradients])
        if why:
            say_by_torch(why)
            return _summed_by_torch(mean, model.process_group)
        return _summed_as_planned(self.between, mean, bucket)

    def _num_taking_part(self, model: torch.nn.parallel.DistributedDataParallel, device: torch.device) -> int:
        """By how many ranks sums are divided: in `join()` perhaps only by those that have inputs still."""
        group = model.process_group
        if not model._join_config.enable or model._divide_by_initial_world_size:
            return dist.get_world_size(group)
        count = torch.tensor([0 if self.has_joined else 1], device=device)
        dist.all_reduce(count, group=group)
        return int(count.item())


def all_reduce_hook(
    sums: GradientSums,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # not in torch's __all__, but torch looks for this annotation
) -> torch.futures.Future[torch.Tensor]:
    """What `register_comm_hook` takes.

    backward ends with RankLostError, as it does when a rank is lost, where one takes no part for as long as `between`
    has patience.
    """
    if sums.hook is not None:
        hook, state = sums.hook
        return hook(state, bucket)
    return sums.mean(bucket)


@functools.cache
def say_by_torch(why: str) -> None:
    """Once for each reason."""
    log.warning("gradients are summed by torch, not as planned: %s", why)


def why_not_planned(
    tensors: Sequence[torch.Tensor], dtypes: Sequence[torch.dtype] = DTYPES, *, are_written: bool = True
) -> str:
    """Why the plan's sums cannot take these as values of such types; empty where they can."""
    first = tensors[0]
    if any(tensor.layout is not torch.strided for tensor in tensors):
        return "some are sparse"
    if first.dtype not in dtypes:
        return f"some are {str(first.dtype).removeprefix('torch.')}"
    if first.device.type != ("cuda" if torch.cuda.is_available() else "cpu"):
        return f"some are on {first.device}"
    if any(tensor.dtype is not first.dtype or tensor.device != first.device for tensor in tensors):
        return "some are of several types, or on several devices"
    if are_written and any(map(_is_expanded, tensors)):
        return "some have one value at several places"
    return ""


def _is_expanded(tensor: torch.Tensor) -> bool:
    return any(length > 1 and not step for length, step in zip(tensor.shape, tensor.stride(), strict=True))


def _summed_as_planned(between: Sums, mean_N: torch.Tensor, bucket: Bucket) -> Gradients:
    on_gpu = mean_N.device.type == "cuda"
    future: Gradients = torch.futures.Future(devices=[mean_N.device] if on_gpu else None)
    # torch makes other buckets after the first step; a rank that only joins in has none of the parameters at hand
    name = (bucket.index(), *(parameter.data_ptr() for parameter in bucket.parameters()[:1]))
    work = between.all_reduce(mean_N, name=name)
    # torch takes what a future fails with for a tensor; what a callback of backward raises reaches the script as it is.
    with contextlib.suppress(RuntimeError):  # there is no such backward where buckets are reduced outside it
        torch.autograd.Variable._execution_engine.queue_callback(work.wait)

    def ended(error: Exception | None) -> None:
        if error is None:
            future.set_result(mean_N)
        else:
            future.set_exception(error)  # type: ignore[arg-type]  # torch's own annotation is the result's type

    work.on_end(ended)
    return future


def _summed_by_torch(values: torch.Tensor, group: "dist.ProcessGroup | None") -> Gradients:
    under_way = dist.all_reduce(values, group=group, async_op=True)
    assert under_way is not None
    return under_way.get_future().then(lambda future: future.value()[0])
