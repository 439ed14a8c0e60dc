"""How many of the machine's processors each device on the host computes with."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from hulk_runtime.sharp.device import Device
from hulk_runtime.sharp.host_device import HostDevice


@contextmanager
def divided_threads(devices: Sequence[Device]) -> Iterator[None]:
    """Torch's number of threads, divided among the devices on the host; each device's own thread takes them."""
    num_host = sum(isinstance(device, HostDevice) for device in devices)
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before // max(1, num_host)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def take_threads() -> None:
    """Compute with that number in this thread too.

    OpenMP keeps a number for each thread by itself, and what torch leaves to other libraries (Fourier transforms) goes
    by it: with another one sums are made in another order, and their last bits differ.
    """
    torch.set_num_threads(torch.get_num_threads())
