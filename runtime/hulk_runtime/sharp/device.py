"""What SHARP needs of a device: a hard memory, copies to and from the host, and a place to compute."""

from contextlib import AbstractContextManager
from typing import Protocol

import torch

from hulk_runtime.errors import ConfigurationError
from hulk_runtime.sharp.rng_stream import Stream


class DeviceMemoryError(ConfigurationError):
    """Something did not fit into a device's memory."""


class Device(Protocol):
    """One device. Its compute thread and its transfer thread call it at the same time."""

    name: str
    memory_bytes: int

    recomputes: bool
    """Whether a backward pass makes the activations again; where not, they are spilled to the host in between."""

    def computing(self, stream: Stream) -> AbstractContextManager[None]:
        """What is computed inside happens here, with the trial's random numbers, and is done at the end."""

    def transferring(self) -> AbstractContextManager[None]:
        """Copies inside are done at the end."""

    def home(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same on the host, in memory from which this device copies fast."""

    def load(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy on the device. Raises DeviceMemoryError."""

    def unload(self, tensor: torch.Tensor, home: torch.Tensor | None = None) -> torch.Tensor:
        """A copy on the host, in `home` where it is given."""

    def peak_bytes(self) -> int:
        """The most that was ever in use since `watch_peak`."""

    def watch_peak(self) -> None:
        """Forget the peak so far."""
