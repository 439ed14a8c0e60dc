"""A device whose units take a stated time: it computes for real, and waits until a stated rate would be done.

Two cores cannot show what many devices do, nor a copy within the host what a link to a device costs. Here both are
stated: matrix products at so many operations a second, copies at so many bytes a second. Everything else is real:
threads, order, memory, results. A unit that the cores could not finish in its time is late, and is counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from hulk_runtime.sharp.host_device import HostDevice
from hulk_runtime.sharp.rng_stream import Stream
from torch.utils._python_dispatch import TorchDispatchMode


class PacedDevice(HostDevice):
    """One of stated speed."""

    def __init__(self, memory_bytes: int, name: str, flops_per_s: float, link_bytes_per_s: float) -> None:
        super().__init__(memory_bytes, name)
        self._flops_per_s, self._link_bytes_per_s = flops_per_s, link_bytes_per_s
        self._copies = threading.local()
        """Bytes copied so far, where copies are waited for together."""
        self.num_units = self.num_late = 0

    @contextmanager
    def computing(self, stream: Stream) -> Iterator[None]:
        """Ends when the stated time is over."""
        begin_s, counting = time.perf_counter(), _Flops()
        with super().computing(stream), counting:
            yield
        left_s = begin_s + counting.flops / self._flops_per_s - time.perf_counter()
        if counting.flops:
            self.num_units += 1
            self.num_late += left_s < 0
        time.sleep(max(0.0, left_s))

    @contextmanager
    def transferring(self) -> Iterator[None]:
        """Ends when all copies inside would be done at the link's rate."""
        begin_s = time.perf_counter()
        self._copies.num_bytes = 0
        try:
            yield
            self._wait(begin_s, self._copies.num_bytes)
        finally:
            del self._copies.num_bytes

    def load(self, tensor: torch.Tensor) -> torch.Tensor:
        """At the link's rate."""
        with self._counted(tensor):
            return super().load(tensor)

    def unload(self, tensor: torch.Tensor, home: torch.Tensor | None = None) -> torch.Tensor:
        """At the link's rate."""
        with self._counted(tensor):
            return super().unload(tensor, home)

    @contextmanager
    def _counted(self, tensor: torch.Tensor) -> Iterator[None]:
        begin_s = time.perf_counter()
        yield
        if hasattr(self._copies, "num_bytes"):
            self._copies.num_bytes += tensor.nbytes
        else:
            self._wait(begin_s, tensor.nbytes)

    def _wait(self, begin_s: float, num_bytes: int) -> None:
        time.sleep(max(0.0, begin_s + num_bytes / self._link_bytes_per_s - time.perf_counter()))


class _Flops(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts two operations for each multiplication of a matrix product."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0.0

    def __torch_dispatch__(
        self, function: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
            self.flops += 2.0 * result.numel() * args[-2].shape[1]
        return result
