"""Cuts a trial's layers into shards that fit, by pilot runs on the smallest device.

Layers are added until the device is full, with a whole mini-batch each time: forward, backward, update, twice, so that
the optimizer's state is there in the second. Then the layers are cut, and the next shard begins. Beside what a shard
needs at its most, the device must hold a slot as large as anything that is brought in for a unit or taken out after
it, if transfers are to run while it computes.
"""

import time
from dataclasses import dataclass
from typing import Protocol

import torch

from hulk_runtime.errors import ConfigurationError
from hulk_runtime.sharp.device import Device, DeviceMemoryError
from hulk_runtime.sharp.rng_stream import Stream
from hulk_runtime.sharp.shard import Shard
from hulk_runtime.sharp.trial import Model


@dataclass(frozen=True, slots=True)
class Cut:
    """Layers `start` to `stop` - 1 as a shard: what its units need and take on the device where it was tried."""

    start: int
    stop: int
    peak_bytes: int
    slot_bytes: int
    forward_s: float
    backward_s: float


class MakeShard(Protocol):
    """Makes the shard of layers `start` to `stop` - 1."""

    def __call__(self, start: int, stop: int) -> Shard: ...


def shard_maker(model: Model) -> MakeShard:
    """Shards of one model. A parameter that is in several of their layers is one."""

    def make(start: int, stop: int) -> Shard:
        loss = model.loss if stop == len(model.layers) else None
        return Shard(start, model.layers[start:stop], model.optimizer, loss)

    return make


def cut(name: str, model: Model, stream: Stream, device: Device, *, double_buffer: bool) -> list[Cut]:
    """Shards with as many layers each as fit. Raises DeviceMemoryError when a single layer does not."""
    if not len(model.layers):
        raise ConfigurationError(f"trial {name}: the model has no layers; it needs at least 1")
    inputs, targets = model.batches(1)
    pilot = Pilot(name, model, device, stream.copy(), targets, double_buffer)
    cuts: list[Cut] = []
    start, x, length = 0, inputs, 1
    while start < len(model.layers):
        found, x = pilot.longest(start, x, length)
        cuts.append(found)
        start, length = found.stop, found.stop - found.start
    return cuts


class Pilot:
    """Tries shards of one model on one device; nothing of it stays but times and sizes."""

    def __init__(
        self, name: str, model: Model, device: Device, stream: Stream, targets: torch.Tensor, double_buffer: bool
    ) -> None:
        self._name, self._model, self._device, self._stream = name, model, device, stream
        self._targets, self._double_buffer = targets, double_buffer
        self._make = shard_maker(model)

    def longest(self, start: int, x: torch.Tensor, guess: int) -> tuple[Cut, torch.Tensor]:
        """The longest shard from layer `start` on that fits, and its output. Begins with `guess` layers."""
        fits, too_long = None, len(self._model.layers) - start + 1
        length = min(guess, too_long - 1)
        while length < too_long and (fits is None or length > fits[0].stop - start):
            try:
                fits = self._try(start, start + length, x)
                length = min(2 * length, (length + too_long) // 2)
            except DeviceMemoryError as error:
                if length == 1:
                    raise self._too_large(start, error) from error
                too_long = length
                known = fits[0].stop - start if fits else 0
                length = max(1, (known + too_long) // 2)
        assert fits is not None, "the last length that is tried is one layer"
        return fits

    def _try(self, start: int, stop: int, x: torch.Tensor) -> tuple[Cut, torch.Tensor]:
        """Raises DeviceMemoryError when it does not fit."""
        device, shard = self._device, self._make(start, stop)
        device.watch_peak()
        before_bytes = device.peak_bytes()
        try:
            self._mini_batch(shard, x)
            forward_s, backward_s, slot_bytes, output = self._mini_batch(shard, x)
        finally:
            shard.discard()
        peak_bytes = device.peak_bytes() - before_bytes
        needed_bytes = peak_bytes + (slot_bytes if self._double_buffer else 0)
        if needed_bytes > device.memory_bytes:
            raise DeviceMemoryError(
                f"{peak_bytes} bytes for computing and {slot_bytes} for transfers meanwhile, "
                f"device {device.name} has {device.memory_bytes}"
            )
        return Cut(start, stop, peak_bytes, slot_bytes, forward_s, backward_s), output

    def _mini_batch(self, shard: Shard, x: torch.Tensor) -> tuple[float, float, int, torch.Tensor]:
        """Seconds forward and backward, bytes of what moves, the output.

        What is computed is done when `computing` ends, on a GPU not before.
        """
        device = self._device
        with device.transferring():
            shard.load(device, backward=True)
            there = device.load(x)
            targets = device.load(self._targets) if shard.loss is not None else None
        begin_s = time.perf_counter()
        with device.computing(self._stream):
            output = shard.forward(there, targets, self._stream)
        forward_s = time.perf_counter() - begin_s
        del there, targets
        with device.computing(self._stream):
            gradient = torch.ones_like(output) if shard.loss is None else None
        brought_bytes = shard.state_bytes + x.nbytes + (self._targets.nbytes if shard.loss is not None else 0)
        moved_bytes = max(brought_bytes, shard.backward_bytes + (x.nbytes if shard.first else 0) + output.nbytes)
        with device.transferring():
            output = device.unload(output)
        begin_s = time.perf_counter()
        with device.computing(shard.random_numbers(self._stream)):
            shard.backward(gradient)
        return forward_s, time.perf_counter() - begin_s, moved_bytes, output

    def _too_large(self, layer: int, why: DeviceMemoryError) -> DeviceMemoryError:
        module = self._model.layers[layer]
        num_bytes = sum(p.numel() * p.element_size() for p in module.parameters())
        return DeviceMemoryError(
            f"trial {self._name}: layer {layer} ({type(module).__name__}, {num_bytes} bytes of parameters) is larger "
            f"than device {self._device.name} of {self._device.memory_bytes} bytes, the smallest: {why}"
        )
