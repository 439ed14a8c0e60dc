"""Ways to train several models on some devices: a function from trials and devices to seconds and losses.

Every way computes on the same devices, with the same counted memory, one thread each. What is measured begins when the
models are made and, for SHARP, cut by pilot runs, whose seconds are said apart.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from hulk_runtime.sharp import Trial
from hulk_runtime.sharp.cpu_threads import divided_threads, take_threads
from hulk_runtime.sharp.host_device import HostDevice
from hulk_runtime.sharp.rng_stream import Stream
from hulk_runtime.sharp.run import Run, prepare
from hulk_runtime.sharp.scheduling_policy import Scheduler
from hulk_runtime.sharp.trial import Model


@dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    seconds: float
    losses: tuple[tuple[float, ...], ...]
    pilot_s: float = 0.0
    num_shards: int = 1


Way = Callable[[Sequence[Trial], Sequence[HostDevice]], Measured]


def sharp(*, double_buffer: bool = True, scheduler: Scheduler = "lrtf") -> Way:
    """Hulk's."""

    def way(trials: Sequence[Trial], devices: Sequence[HostDevice]) -> Measured:
        with divided_threads(devices):
            before_s = time.perf_counter()
            courses, failed = prepare(trials, devices, double_buffer=double_buffer)
            begin_s = time.perf_counter()
            Run(courses, lambda _: None, lambda: False).go(devices, scheduler, double_buffer)
            seconds = time.perf_counter() - begin_s
        reasons = [outcome.reason for outcome in failed]
        reasons += [course.reason for course in courses if course.state != "succeeded"]
        assert not reasons, reasons
        losses = tuple(tuple(course.losses) for course in courses)
        return Measured(seconds, losses, begin_s - before_s, max(len(course.shards) for course in courses))

    return way


def model_parallel(trials: Sequence[Trial], devices: Sequence[HostDevice]) -> Measured:
    """One model after the other, its stages on all devices, one mini-batch at a time."""
    return _pipelined(trials, devices, 1)


def gpipe(num_micro_batches: int) -> Way:
    """As model parallel, with micro-batches: all forward, then all backward, then the update."""
    return lambda trials, devices: _pipelined(trials, devices, num_micro_batches)


def task_parallel(trials: Sequence[Trial], devices: Sequence[HostDevice]) -> Measured:
    """A model per device, whole, the next one when it is done. Raises DeviceMemoryError where it does not fit."""
    made = [_made(trial) for trial in trials]
    free: queue.SimpleQueue[HostDevice] = queue.SimpleQueue()
    for device in devices:
        free.put(device)

    def one(trial: Trial, model: Model) -> tuple[float, ...]:
        device = free.get()
        try:
            return _pipeline(trial, model, [device], 1)
        finally:
            free.put(device)

    with divided_threads(devices), ThreadPoolExecutor(len(devices)) as pool:
        begin_s = time.perf_counter()
        losses = tuple(pool.map(one, trials, made))
        return Measured(time.perf_counter() - begin_s, losses)


def _pipelined(trials: Sequence[Trial], devices: Sequence[HostDevice], num_micro_batches: int) -> Measured:
    made = [_made(trial) for trial in trials]
    with divided_threads(devices):
        begin_s = time.perf_counter()
        losses = tuple(_pipeline(t, model, devices, num_micro_batches) for t, model in zip(trials, made, strict=True))
        return Measured(time.perf_counter() - begin_s, losses, num_shards=len(devices))


def _made(trial: Trial) -> Model:
    torch.manual_seed(trial.seed)
    return trial.make()


def _pipeline(trial: Trial, model: Model, devices: Sequence[HostDevice], num_micro: int) -> tuple[float, ...]:
    """Train one model with a stage on each device."""
    num_layers, num_stages = len(model.layers), len(devices)
    bounds = [num_layers * i // num_stages for i in range(num_stages + 1)]
    wires = [_Wire() for _ in range(num_stages + 1)]
    stages = [_Stage(model, devices[i], bounds[i], bounds[i + 1], wires[i : i + 2]) for i in range(num_stages)]
    threads = [threading.Thread(target=stage.run, args=(trial.num_steps, num_micro)) for stage in stages]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for stage in stages:
        if stage.error:
            raise stage.error
    return tuple(stages[-1].losses)


class _Wire:
    """Between two stages, by the host."""

    def __init__(self) -> None:
        self.forward: queue.SimpleQueue[torch.Tensor | None] = queue.SimpleQueue()
        self.backward: queue.SimpleQueue[torch.Tensor | None] = queue.SimpleQueue()


class _Stage:
    """Layers that stay on one device until the model is trained."""

    def __init__(self, model: Model, device: HostDevice, start: int, stop: int, wires: Sequence[_Wire]) -> None:
        self._layers, self._device, self._model = model.layers[start:stop], device, model
        self._is_first, self._is_last = start == 0, stop == len(model.layers)
        self._before, self._behind = wires
        self._parameters = [p for layer in self._layers for p in layer.parameters()]
        self._optimizer = model.optimizer(self._parameters)
        self._stream = Stream(0, torch.get_rng_state())
        self.losses: list[float] = []
        self.error: BaseException | None = None

    def run(self, num_steps: int, num_micro: int) -> None:
        """All steps. A failure is left for whoever waits, and its neighbours end too."""
        take_threads()
        homes = [p.data for p in self._parameters]
        try:
            for p in self._parameters:
                p.data = self._device.load(p.data)
            for step in range(1, num_steps + 1):
                self._step(step, num_micro)
        except BaseException as error:  # noqa: BLE001 - raised again by `_pipeline`
            self.error = error.with_traceback(None)
            self._before.backward.put(None)
            self._behind.forward.put(None)
        for p, home in zip(self._parameters, homes, strict=True):
            p.data, p.grad = home, None

    def _step(self, step: int, num_micro: int) -> None:
        inputs, targets = (tensor.chunk(num_micro) for tensor in self._model.batches(step))
        passes = [self._forward(inputs[i], targets[i], num_micro) for i in range(num_micro)]
        if self._is_last:
            self.losses.append(sum(output.item() for _, output in passes))
        while passes:
            self._backward(*passes.pop())
        with self._device.computing(self._stream):
            self._optimizer.step()
            self._optimizer.zero_grad()

    def _forward(self, x: torch.Tensor, targets: torch.Tensor, num: int) -> tuple[torch.Tensor, torch.Tensor]:
        arrived = self._device.load(x if self._is_first else _there(self._before.forward))
        wanted = self._device.load(targets) if self._is_last else None
        with self._device.computing(self._stream):
            y = arrived.requires_grad_(not self._is_first)
            for layer in self._layers:
                y = layer(y)
            if wanted is not None:
                y = self._model.loss(y, wanted) / num
        if not self._is_last:
            self._behind.forward.put(self._device.unload(y))
        return arrived, y

    def _backward(self, arrived: torch.Tensor, y: torch.Tensor) -> None:
        gradient = None if self._is_last else self._device.load(_there(self._behind.backward))
        with self._device.computing(self._stream):
            y.backward(gradient)  # type: ignore[no-untyped-call]
        if arrived.grad is not None:
            self._before.backward.put(self._device.unload(arrived.grad))


def _there(arrivals: queue.SimpleQueue[torch.Tensor | None]) -> torch.Tensor:
    tensor = arrivals.get()
    if tensor is None:
        raise RuntimeError("the stage beside this one has failed")
    return tensor
