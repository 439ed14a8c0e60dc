"""A part of this process as a device: a hard memory budget in which everything that is made there is counted.

Every operation of the device's threads is seen (torch's dispatch mode): the storage of what it returns is charged
when it appears and given back when it is freed. So parameters, gradients, optimizer state, activations and what is
loaded ahead all count; what a kernel needs inside itself does not.
"""

import threading
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hulk_runtime.sharp.device import DeviceMemoryError
from hulk_runtime.sharp.rng_stream import Stream


class HostDevice:
    """A device on the processor; `recomputes` is a choice here."""

    def __init__(self, memory_bytes: int, name: str = "host", *, recomputes: bool = False) -> None:
        if memory_bytes < 1:
            raise ValueError(f"device {name}: memory {memory_bytes} bytes must be > 0")
        self.name, self.memory_bytes, self.recomputes = name, memory_bytes, recomputes
        self._budget = Budget(name, memory_bytes)

    @contextmanager
    def computing(self, stream: Stream) -> Iterator[None]:
        """Operations inside are counted and draw from the stream."""
        with _Counting(self._budget, stream):
            yield

    @contextmanager
    def transferring(self) -> Iterator[None]:
        """Copies here are done when they return."""
        yield

    def home(self, tensor: torch.Tensor) -> torch.Tensor:
        """As it is."""
        return tensor

    def load(self, tensor: torch.Tensor) -> torch.Tensor:
        """A counted copy."""
        copy = tensor.detach().clone()
        self._budget.charge(copy)
        return copy

    def unload(self, tensor: torch.Tensor, home: torch.Tensor | None = None) -> torch.Tensor:
        """A copy that is not counted."""
        return tensor.detach().clone() if home is None else home.copy_(tensor.detach())

    def in_use_bytes(self) -> int:
        """Of everything that is alive on the device."""
        return self._budget.in_use()

    def peak_bytes(self) -> int:
        """As `Device` has it."""
        return self._budget.peak_bytes

    def watch_peak(self) -> None:
        """As `Device` has it."""
        self._budget.peak_bytes = self._budget.in_use()


class Budget:
    """The storages that are alive on one device."""

    def __init__(self, name: str, memory_bytes: int) -> None:
        self.peak_bytes = 0
        self._name, self._memory_bytes = name, memory_bytes
        self._used_bytes = 0
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        # A storage may be freed anywhere, also inside `charge`: whoever frees takes no lock.
        self._freed: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()

    def charge(self, tensor: torch.Tensor) -> None:
        """Count the tensor's storage if it is new here. Raises DeviceMemoryError, and then it is still counted."""
        storage = tensor.untyped_storage()
        key, num_bytes = storage._cdata, storage.nbytes()
        with self._lock:
            self._settle()
            if key in self._alive:
                return
            self._alive[key] = weakref.ref(storage, lambda _: self._freed.append((key, num_bytes)))
            before, self._used_bytes = self._used_bytes, self._used_bytes + num_bytes
            self.peak_bytes = max(self.peak_bytes, self._used_bytes)
        if before + num_bytes > self._memory_bytes:
            raise DeviceMemoryError(
                f"device {self._name}: {num_bytes} bytes more do not fit beside {before} in use of {self._memory_bytes}"
            )

    def in_use(self) -> int:
        """Bytes of all that is alive."""
        with self._lock:
            self._settle()
            return self._used_bytes

    def _settle(self) -> None:
        while self._freed:
            key, num_bytes = self._freed.popleft()
            del self._alive[key]
            self._used_bytes -= num_bytes


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, budget: Budget, stream: Stream) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._budget, self._stream = budget, stream

    def __torch_dispatch__(
        self, function: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if torch.Tag.nondeterministic_seeded in function.tags:
            result = self._stream.draw(lambda: function(*args, **named))
        else:
            result = function(*args, **named)
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._budget.charge(leaf)
        return result
