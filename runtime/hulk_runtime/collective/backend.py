"""Process groups of torch whose sums between regions go over the planned flows, and all else by gloo or NCCL.

    import hulk_runtime.collective.backend  # once, before
    dist.init_process_group("hulk")

Nothing else in a script changes, and where it is instrumented (see hulk_runtime.instrumentation) not even this: DDP,
FSDP2 and HSDP, DeviceMesh, DTensor and collectives of objects run through it. Groups of some of the ranks have their
part of the plan; in groups inside a region, and without a plan (a run by hand), all is by gloo or NCCL.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup, ReduceOp, Work

from hulk_runtime import background
from hulk_runtime.collective import planned_sums
from hulk_runtime.collective.carried import INTEGERS, MAX_RANKS, Carried, Gathered, Integers, Sent, Values
from hulk_runtime.collective.connecting import Connecting
from hulk_runtime.collective.gradient_sums import say_by_torch, why_not_planned
from hulk_runtime.collective.members import Introduction

NAME: Final = "hulk"
SMALL_BYTES: Final = 1 << 16
"""Of counts, norms and the like: what torch does with them is not worth a word, and round trips are all they cost."""


class PlannedGroup(ProcessGroup):
    """A group of ranks over torch's own backends, as torch registers them; its all-reduces are done here.

    So are small all-gathers and broadcasts, which cost round trips alone. Torch's other collectives pass through, and
    `get_backend` says what it would say without.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        try:
            super().__init__(store, rank, size)
        except TypeError:  # torch 2.9 makes no group of a class of Python's with a store
            super().__init__(rank, size)
        self.introduction: Introduction | None = None
        if size > 1 and planned_sums.is_planned():
            self.introduction = Introduction(store, rank)

    @functools.cached_property
    def regions(self) -> tuple[str, ...]:
        """Of its ranks, where the plan has sums between regions."""
        return planned_sums.regions_of(self)

    def allreduce(  # type: ignore[override]  # torch's has three forms, of which this is all
        self, tensors: Any, opts: Any = None, timeout: timedelta | None = None, *, op: Any = None
    ) -> Work:
        """As planned where the plan can; else as torch does."""
        return self._summed(tensors, _options(dist.AllreduceOptions(), opts if op is None else op), "allreduce")

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work:
        """Of several tensors as of one."""
        return self._summed(tensors, _options(dist.AllreduceCoalescedOptions(), opts), "allreduce_coalesced")

    def split_group(self, *arguments: Any, **options: Any) -> PlannedGroup | None:
        """As torch splits its communicators: the part's sums are planned, too."""
        part = super().split_group(*arguments, **options)
        return None if part is None else _over(part)

    def _summed(self, tensors: Any, options: Any, method: str) -> Work:
        found = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        carry = self._carrier(found, options.reduceOp)
        between = None if carry is None else planned_sums.between_regions_of(self._unless_world())
        if carry is None or between is None:
            by_torch: Callable[..., Work] = getattr(self._get_backend(found[0].device), method)
            return by_torch(found, options)
        return PlannedWork(between, carry())

    def _carrier(self, tensors: Sequence[torch.Tensor], operation: Any) -> Callable[[], Carried] | None:
        """What makes a vector of them that the plan sums; None where torch does, of which each reason is said once."""
        is_sum = operation == ReduceOp.SUM or operation == ReduceOp.AVG  # `in` compares the other way
        num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if not is_sum or not num_bytes or not planned_sums.is_planned():
            return None
        if not (why := why_not_planned(tensors)):
            return functools.partial(Values, tensors, self.size() if operation == ReduceOp.AVG else 1)
        if num_bytes > SMALL_BYTES:
            say_by_torch(why)
        elif operation == ReduceOp.SUM and self._takes_small() and not why_not_planned(tensors, INTEGERS):
            return functools.partial(Integers, tensors)
        return None

    def _takes_small(self) -> bool:
        """Not where replicas train apart: it would wait for the layers that are on their way."""
        plan = planned_sums.plan()
        return plan is not None and plan.inner_steps is None and self.size() <= MAX_RANKS

    def exchanged(self, carry: Callable[..., Carried | None], arguments: Sequence[Any]) -> Work | None:
        """Small tensors as planned, once the group has summed so; None where torch has them."""
        if len(arguments) < 2 or not self._takes_small():
            return None
        between = planned_sums.asked_for(self._unless_world())
        carried = None if between is None else carry(self, *arguments[:2])
        return None if between is None or carried is None else PlannedWork(between, carried)

    def _unless_world(self) -> ProcessGroup | None:
        return None if self is dist.group.WORLD else self


class PlannedWork(Work):
    """A sum under way, and torch's view of it."""

    def __init__(self, between: Connecting, carried: Carried) -> None:
        super().__init__()
        self._carried, self._giving, self._is_given = carried, threading.Lock(), False
        self._ended = threading.Event()
        self._copied: torch.cuda.Event | None = None
        with torch.inference_mode(False):  # other threads write what is made here
            self._waiting = between.all_reduce(carried.vector_N, num_exact=carried.vector_N.numel())
        self._waiting.on_end(self._end)  # also where nobody waits for it

    def wait(self, timeout: timedelta = timedelta()) -> bool:
        """Until the sums are in the tensors. Raises PeerLostError, within the plan's bounds, not torch's timeout."""
        try:
            self._waiting.wait()
            self._give()
        finally:
            self._ended.set()
        self._follow_copy()
        return True

    def result(self) -> list[torch.Tensor]:
        """The tensors, once it has ended."""
        return list(self._carried.tensors)

    def is_completed(self) -> bool:
        """Whether it has ended, well or not."""
        return self._ended.is_set()

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Of the tensors.

        torch takes what a future fails with for a tensor: what ends a backward raises out of it as it is.
        """
        device = self._carried.vector_N.device
        devices: list[int | str | torch.device] | None = [device] if device.type == "cuda" else None
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future(devices=devices)
        with contextlib.suppress(RuntimeError):  # there is no such backward where gradients are reduced outside it
            torch.autograd.Variable._execution_engine.queue_callback(self._waiting.wait)

        def tell(error: Exception | None) -> None:
            if error is None:
                self._give()
                self._follow_copy()
                future.set_result(self.result())
            else:
                future.set_exception(error)  # type: ignore[arg-type]  # torch's own annotation is the result's type

        def tell_beside(error: Exception | None) -> None:
            """What a script does then, it may do with other sums, for which the group's thread must be free."""
            try:
                background.Thread("hulk-futures", functools.partial(tell, error)).start()
            except RuntimeError:  # the process ends: no more threads
                tell(error)

        self._waiting.on_end(tell_beside)
        return future

    def _end(self, error: Exception | None) -> None:
        if error is None:
            self._give()
        self._ended.set()

    def _give(self) -> None:
        """To the tensors, once."""
        with self._giving:
            if self._is_given:
                return
            self._carried.give()
            self._is_given = True
            if (vector_N := self._carried.vector_N).is_cuda:
                stream = torch.cuda.current_stream(vector_N.device)
                vector_N.record_stream(stream)  # whose memory is another stream's
                self._copied = stream.record_event()

    def _follow_copy(self) -> None:
        """What the current stream does next is behind the copy, whichever thread made it."""
        if self._copied is not None:
            self._copied.wait(torch.cuda.current_stream(self._carried.vector_N.device))


def _options(plain: Any, asked: Any) -> Any:
    """Torch's options: as they were given, or made of an operation alone."""
    if asked is None:
        return plain
    if hasattr(asked, "reduceOp"):
        return asked
    plain.reduceOp = asked
    return plain


def _places(outputs: Any, num_ranks: int) -> list[torch.Tensor]:
    """Of each rank in what an all-gather fills: a list, a list of one list, or one tensor."""
    if not isinstance(outputs, torch.Tensor):
        return list(outputs[0]) if len(outputs) == 1 and not isinstance(outputs[0], torch.Tensor) else list(outputs)
    if not outputs.is_contiguous() or outputs.numel() % num_ranks:
        return []
    return list(outputs.view(-1).chunk(num_ranks))


def _over(group: ProcessGroup) -> PlannedGroup:
    """A planned group over another one's backends."""
    planned = PlannedGroup(group.get_group_store(), group.rank(), group.size())
    for device in group._device_types:
        backend = group._get_backend(device)
        planned._register_backend(device, dist.Backend.backend_type_map[backend.name()], backend)
    planned._set_default_backend(dist.Backend.backend_type_map[group.name()])
    planned._set_group_name(group.group_name)
    planned._set_group_desc(group.group_desc)
    return planned


def _over_default_backends(store: Any, rank: int, size: int, timeout: timedelta) -> PlannedGroup:
    """What `init_process_group("hulk")` makes: gloo for CPUs, NCCL for GPUs."""
    group = PlannedGroup(store, rank, size)
    gloo = ProcessGroup.BackendType.GLOO
    group._register_backend(torch.device("cpu"), gloo, dist.ProcessGroupGloo(store, rank, size, timeout))
    group._set_default_backend(gloo)
    if torch.cuda.is_available():
        nccl, options = ProcessGroup.BackendType.NCCL, dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        scoped = dist.PrefixStore("cuda", store)  # type: ignore[attr-defined]  # public, but not in torch's __all__
        group._register_backend(torch.device("cuda"), nccl, dist.ProcessGroupNCCL(scoped, rank, size, options))
        group._set_default_backend(nccl)
    return group


OTHERS: Final = """
broadcast reduce gather gather_single gather_into_tensor scatter send recv recv_anysource barrier
allgather _allgather_base allgather_coalesced all_gather_single all_gather_single_coalesced
reduce_scatter _reduce_scatter_base reduce_scatter_single reduce_scatter_single_coalesced
alltoall alltoall_base all_to_all_single
"""
"""What torch's backends do themselves; no torch has all of these names."""


def _gathered(group: PlannedGroup, outputs: Any, inputs: Any) -> Carried | None:
    """Where ranks have equal parts; what is wrong otherwise is torch's to say."""
    own, into = _only(inputs), _places(outputs, group.size())
    if own is None or not _is_small(own, group.size()) or [one.numel() for one in into] != [own.numel()] * group.size():
        return None
    if own.device != into[0].device or why_not_planned(into, (own.dtype,)):
        return None
    return Gathered(into, own, group.rank(), outputs if isinstance(outputs, torch.Tensor) else None)


def _sent(group: PlannedGroup, tensors: Any, options: Any) -> Carried | None:
    """From one rank, whose tensor is only read, to all."""
    own, root = _only(tensors), options if isinstance(options, int) else options.rootRank
    if own is None or not _is_small(own, 1):
        return None
    is_root = root == group.rank()
    if why_not_planned([own], (own.dtype,), are_written=not is_root):
        return None
    return Sent(own, is_root=is_root)


def _only(tensors: Any) -> torch.Tensor | None:
    if isinstance(tensors, torch.Tensor):
        return tensors
    return tensors[0] if len(tensors) == 1 else None


def _is_small(own: torch.Tensor, num_ranks: int) -> bool:
    """What is only read may be of any strides: ranks must not decide by them, each for itself."""
    return own.layout is torch.strided and 0 < own.numel() * own.element_size() * num_ranks <= SMALL_BYTES


SMALL: Final[Mapping[str, Callable[..., Carried | None]]] = {
    "broadcast": _sent,
    "allgather": _gathered,
    "_allgather_base": _gathered,
    "all_gather_single": _gathered,
}
"""Those of torch's that are planned for small tensors, by their first two arguments."""


def _by_torch(name: str) -> Callable[..., Any]:
    """The method of the backend of the tensors' device.

    Called from Python it lets other threads go on. Called from C++ by a functional collective it would not: where a
    thread of gloo's has the queue and waits for the interpreter, nobody would ever go on.
    """
    carry, scatters = SMALL.get(name), "reduce_scatter" in name

    def method(self: PlannedGroup, *arguments: Any, **options: Any) -> Any:
        if carry is not None and (work := self.exchanged(carry, arguments)) is not None:
            return work
        values = (*arguments, *options.values())
        found = next(_tensors(values), None)
        device = _device_without_tensors(self, values) if found is None else found.device
        if scatters and len(self.regions) > 1:
            regions = ", ".join(self.regions)
            say_by_torch(f"a model's shards are in {regions} (hulk.device_mesh() has them in one region)")
        return getattr(self._get_backend(device), name)(*arguments, **options)

    return method


def _device_without_tensors(group: PlannedGroup, values: Iterable[Any]) -> torch.device:
    """Of a barrier: as it is asked for, else a GPU where the group has any, as torch's own."""
    asked = next((device for value in values if (device := getattr(value, "device", None)) is not None), None)
    if asked is not None:
        return torch.device(asked)
    kinds = [torch.device(device) for device in group._device_types]
    return next((kind for kind in kinds if kind.type != "cpu"), kinds[0])


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


for _name in set(OTHERS.split()) & set(dir(ProcessGroup)) & set(dir(dist.ProcessGroupGloo)):
    setattr(PlannedGroup, _name, _by_torch(_name))
setattr(PlannedGroup, "recvAnysource", _by_torch("recv_anysource"))  # noqa: B010  # what C++ calls it

dist.Backend.register_backend(NAME, _over_default_backends, devices=["cpu", "cuda"])
