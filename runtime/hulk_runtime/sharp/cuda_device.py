"""One GPU as a device: two CUDA streams, copies from and to pinned host memory."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from hulk_runtime.sharp.device import DeviceMemoryError
from hulk_runtime.sharp.rng_stream import Stream


class CudaDevice:
    """A GPU. A graph of one GPU cannot go backward on another, so activations are computed again."""

    recomputes = True

    def __init__(self, index: int = 0, memory_bytes: int | None = None) -> None:
        self.name = f"cuda:{index}"
        self._device = torch.device("cuda", index)
        total_bytes = torch.cuda.get_device_properties(index).total_memory
        self.memory_bytes = memory_bytes or total_bytes
        if self.memory_bytes > total_bytes:
            raise DeviceMemoryError(f"device {self.name} has {total_bytes} bytes, {memory_bytes} were asked for")
        torch.cuda.set_per_process_memory_fraction(self.memory_bytes / total_bytes, index)
        self._compute = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        self._copies = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]

    @contextmanager
    def computing(self, stream: Stream) -> Iterator[None]:
        """On the stream for computing; one unit at a time draws from the GPU's generator."""
        generator = torch.cuda.default_generators[self._device.index]
        if stream.gpu is None:
            generator.manual_seed(stream.seed)
        else:
            generator.set_state(stream.gpu)
        with self._inside(self._compute):
            yield
        stream.gpu = generator.get_state()

    @contextmanager
    def transferring(self) -> Iterator[None]:
        """On the stream for copies."""
        with self._inside(self._copies):
            yield

    def home(self, tensor: torch.Tensor) -> torch.Tensor:
        """Pinned."""
        return tensor.cpu().pin_memory()

    def load(self, tensor: torch.Tensor) -> torch.Tensor:
        """From pinned memory it runs beside the computing."""
        return tensor.detach().to(self._device, non_blocking=True)

    def unload(self, tensor: torch.Tensor, home: torch.Tensor | None = None) -> torch.Tensor:
        """Into pinned memory."""
        if home is None:
            home = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return home.copy_(tensor.detach(), non_blocking=True)

    def peak_bytes(self) -> int:
        """As `Device` has it."""
        return torch.cuda.max_memory_allocated(self._device)

    def watch_peak(self) -> None:
        """As `Device` has it."""
        torch.cuda.reset_peak_memory_stats(self._device)

    @contextmanager
    def _inside(self, of: torch.cuda.Stream) -> Iterator[None]:
        try:
            with torch.cuda.device(self._device), torch.cuda.stream(of):
                yield
            of.synchronize()
        except torch.OutOfMemoryError as error:
            raise DeviceMemoryError(f"device {self.name}: {error}") from error
