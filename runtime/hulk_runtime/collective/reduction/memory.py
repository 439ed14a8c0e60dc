"""A tensor's memory as Python's own view of it, by which sockets send and receive. Needs no numpy."""

import ctypes

import torch


def view(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the CPU; the view keeps the tensor.

    >>> values = torch.zeros(2, dtype=torch.int16)
    >>> view(values)[2:] = b"\\1\\0"
    >>> values.tolist(), view(values).tobytes()
    ([0, 1], b'\\x00\\x00\\x01\\x00')
    """
    if not tensor.numel():
        return memoryview(bytearray())
    place = (ctypes.c_ubyte * (tensor.numel() * tensor.element_size())).from_address(tensor.data_ptr())
    place.tensor = tensor  # type: ignore[attr-defined]  # an attribute of this one array
    return memoryview(place).cast("B")
