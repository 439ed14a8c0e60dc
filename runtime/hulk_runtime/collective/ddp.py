"""torch's DistributedDataParallel with the planned all-reduce: a script changes one line.

    from hulk_runtime.collective.ddp import DistributedDataParallel      # instead of torch.nn.parallel

The plan says how many buckets the gradients go in; over a WAN few large ones win. Where the plan is gloo's or NCCL's
own ring only that changes; without a plan (a run by hand) it is torch's class.
"""

import functools
import inspect
import logging
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, fp16_compress_hook
from torch.distributed.algorithms.join import JoinHook
from torch.nn.parallel import DistributedDataParallel as TorchDDP
from torch.nn.parameter import is_lazy

from hulk_runtime.collective import planned_sums
from hulk_runtime.collective.gradient_sums import GradientSums, all_reduce_hook, say_by_torch
from hulk_runtime.plan import wire

MIB = 1 << 20

log = logging.getLogger(__name__)


class DistributedDataParallel(TorchDDP):
    """Torch's class; all its arguments. Needs `init_process_group`, like torch's.

    What the planned all-reduce cannot do torch does, and the log says so once. Its communication hook is the plan's
    until the script registers one of its own.
    """

    _sums: GradientSums | None = None
    """None where torch sums without a hook of Hulk's."""

    def __init__(self, module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        _begin(self, module, super().__init__, args, kwargs)
        self._sum_as_planned()

    def _sum_as_planned(self) -> None:
        if planned_sums.plan() is None:
            return
        reason = self._why_no_hook() or self._why_torch()
        if reason:
            say_by_torch(reason)
            return
        between = planned_sums.between_regions_of(None)
        if between is not None:
            sums = GradientSums(between, self)
            super().register_comm_hook(sums, all_reduce_hook)
            self._sums = sums

    def _why_no_hook(self) -> str:
        """Why the model can have no hook of Hulk's; empty where it can."""
        if self.mixed_precision is not None:
            return "mixed_precision brings a hook of its own"
        if self._delay_all_reduce_all_params:
            return "delay_all_reduce_named_params names all parameters"
        return "compiled autograd calls no hook with buckets" if self._use_python_reducer else ""

    def _why_torch(self) -> str:
        """Why the planned all-reduce cannot serve this model; empty where it can."""
        ranks = dist.get_process_group_ranks(self.process_group)
        if ranks != list(range(dist.get_world_size())):
            return f"a model's process group has ranks {ranks} of {dist.get_world_size()}"
        return "a model is on several devices" if self.is_multi_device_module else ""

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """In place of the planned all-reduce, as torch's own; once, as torch's."""
        if self._sums is None:
            super().register_comm_hook(state, hook)
            return
        if self._sums.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self._check_comm_hook(hook)  # type: ignore[no-untyped-call]
        assert self.logger is not None
        self.logger._set_comm_hook_name(hook.__qualname__)
        self._sums.hook, self._comm_hooks = (hook, state), [(hook, state)]
        say_by_torch(f"the script has registered {hook.__qualname__}")

    def _register_builtin_comm_hook(self, comm_hook_type: dist.BuiltinCommHookType) -> None:  # type: ignore[name-defined]
        if self._sums is None:
            super()._register_builtin_comm_hook(comm_hook_type)  # type: ignore[no-untyped-call]
            return
        is_fp16 = comm_hook_type == dist.BuiltinCommHookType.FP16_COMPRESS  # type: ignore[attr-defined]
        self.register_comm_hook(self.process_group, fp16_compress_hook if is_fp16 else allreduce_hook)

    def _update_process_group(self, new_process_group: "dist.ProcessGroup") -> None:
        super()._update_process_group(new_process_group)  # type: ignore[no-untyped-call]
        if self._sums is not None:
            self._sums.why_torch = self._why_torch()

    def _match_all_reduce_for_bwd_pass(self) -> None:
        """What a rank without inputs does in `join()`."""
        if self._sums is not None:
            self._sums.has_joined = True
        super()._match_all_reduce_for_bwd_pass()  # type: ignore[no-untyped-call]

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """As torch's, at the beginning of `join()`: every rank has inputs."""
        if self._sums is not None:
            self._sums.has_joined = False
        hook: JoinHook = super().join_hook(**kwargs)  # type: ignore[no-untyped-call]
        return hook

    def __getstate__(self) -> dict[str, Any]:
        """Connections are not copied: what is made of it has its own, by `__setstate__`."""
        kept: dict[str, Any] = super().__getstate__()  # type: ignore[no-untyped-call]
        if kept.pop("_sums", None) is not None:
            kept["_comm_hooks"] = [known for known in self._comm_hooks if known[0] is not all_reduce_hook]
        return kept

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._sum_as_planned()


def take_over(plain: type[TorchDDP]) -> None:
    """From now on torch's own class makes the planned buckets; its process group sums them as planned.

    Only what a group cannot do, compress gradients, needs models of this module's class: torch's own become that. A
    class that a program derived from torch's stays its own.
    """
    init = plain.__init__

    @functools.wraps(init)
    def as_planned(self: TorchDDP, module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        plan = planned_sums.plan()
        found = plan.collective_plan() if plan is not None else None
        if isinstance(self, DistributedDataParallel):
            init(self, module, *args, **kwargs)
        elif type(self) is plain and found is not None and found.compression != "none":
            self.__class__ = DistributedDataParallel
            self.__init__(module, *args, **kwargs)  # type: ignore[misc]  # the other class's
        else:
            _begin(self, module, functools.partial(init, self), args, kwargs, least_mib=1.0)

    plain.__init__ = as_planned  # type: ignore[method-assign]


def _begin(
    model: TorchDDP,
    module: torch.nn.Module,
    init: Callable[..., None],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    least_mib: float = 0.0,
) -> None:
    """Torch's constructor, with the plan's number of buckets where the script names no size.

    `least_mib`: torch's compiler asks for as much as torch's first bucket has.
    """
    plan = planned_sums.plan()
    if plan is not None:
        arguments = inspect.signature(TorchDDP).bind(module, *args, **kwargs).arguments
        if arguments.get("bucket_cap_mb") is None:
            kwargs["bucket_cap_mb"] = max(least_mib, bucket_mib(_gradient_bytes(module), plan.num_buckets))
    init(module, *args, **kwargs)
    if plan is not None and plan.layout.shard > 1 and dist.get_world_size(model.process_group) > plan.layout.data:
        _say_whole(plan.layout)


@functools.cache
def _say_whole(layout: wire.Layout) -> None:
    log.warning(
        "the plan divides each of %d models among %d shards, and DistributedDataParallel holds a whole one on each "
        "rank: shard it (fully_shard over hulk.device_mesh()), or set parallelism.shard: 1",
        layout.data,
        layout.shard,
    )


def _gradient_bytes(module: torch.nn.Module) -> int:
    ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
    named = ((name, p) for name, p in module.named_parameters() if p.requires_grad and name not in ignored)
    return sum(p.numel() * p.element_size() for _, p in named if not is_lazy(p))  # which torch refuses in its own words


def bucket_mib(num_bytes: int, num_buckets: int) -> float:
    """The size of `num_buckets` equal buckets in MiB, rounded up so that not one more is needed.

    >>> bucket_mib(8 << 20, 2)
    4.0
    """
    return math.ceil(num_bytes / num_buckets / 1024) * 1024 / MIB
