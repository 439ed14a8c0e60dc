"""A trial under way: how far it is, and what goes from one of its units to the next."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from hulk_runtime.sharp.activations import Moving
from hulk_runtime.sharp.device import Device, DeviceMemoryError
from hulk_runtime.sharp.pilot_partitioning import Cut
from hulk_runtime.sharp.rng_stream import Stream
from hulk_runtime.sharp.shard import Shard
from hulk_runtime.sharp.trial import Model, Outcome, State, Trial
from hulk_runtime.sharp.unit_times import Pace, UnitTimes


class DivergedError(Exception):
    """A trial's loss is no number any more."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One shard's forward or backward pass of a mini-batch: one of a trial's units in a step, by number."""

    number: int
    shard: int
    kind: Literal["forward", "backward"]


def units_of_step(num_shards: int) -> list[Unit]:
    """In their order.

    >>> [(unit.shard, unit.kind) for unit in units_of_step(2)]
    [(0, 'forward'), (1, 'forward'), (1, 'backward'), (0, 'backward')]
    """
    forward = [Unit(i, i, "forward") for i in range(num_shards)]
    return forward + [Unit(2 * num_shards - 1 - i, i, "backward") for i in reversed(range(num_shards))]


class TrialRun:
    """One trial's shards and state. Only the device that holds it touches it."""

    def __init__(
        self,
        number: int,
        trial: Trial,
        model: Model,
        shards: Sequence[Shard],
        cuts: Sequence[Cut],
        stream: Stream,
        pace: Pace,
    ) -> None:
        self.number, self.trial, self.model = number, trial, model
        self.shards, self.cuts, self.stream = shards, cuts, stream
        self.units = units_of_step(len(shards))
        self.batch_bytes = sum(tensor.nbytes for tensor in model.batches(1))
        self.step = 0
        """Mini-batches that are done."""
        self.position = 0
        self.losses: list[float] = []
        self.state: State = "running"
        self.reason = ""
        pilot_s = [(cuts[u.shard].forward_s, cuts[u.shard].backward_s)[u.kind == "backward"] for u in self.units]
        self._times = UnitTimes(pilot_s, pace)
        self._boundary: Moving | None = None
        self._inputs: Moving | None = None
        self._targets: Moving | None = None
        self._loss = math.nan

    def resume(self, step: int) -> None:
        """Go on after a mini-batch that another run has done."""
        self.step = step

    @property
    def unit(self) -> Unit:
        """The next one, or the one under way."""
        return self.units[self.position]

    @property
    def is_last_of_step(self) -> bool:
        """Whether a mini-batch ends with this unit."""
        return self.position == len(self.units) - 1

    def following(self) -> tuple[Unit, int]:
        """The unit after this one, and the mini-batch that it is of."""
        return self.units[(self.position + 1) % len(self.units)], self.step + 1 + self.is_last_of_step

    def remaining_s(self, *, after_this: bool = False) -> float:
        """How long the rest takes alone, as the units took so far."""
        seconds = self._times.seconds()
        return (self.trial.num_steps - self.step) * sum(seconds) - sum(seconds[: self.position + after_this])

    @property
    def step_s(self) -> float:
        """The units of one mini-batch."""
        return sum(self._times.seconds())

    def seconds_left(self) -> list[float]:
        """Of every unit that is left."""
        return self._times.seconds() * (self.trial.num_steps - self.step)

    def load(self, unit: Unit, step: int, device: Device, *, input_comes: bool) -> None:
        """Bring what the unit of mini-batch `step` needs to the device, but for its input where the unit before it
        leaves that there."""
        with device.transferring():
            self.shards[unit.shard].load(device, backward=unit.kind == "backward")
            if unit.number == 0:
                self._inputs, self._targets = self._batch(step, device)
                self._inputs.load(device)
            elif self._boundary is not None and not input_comes:
                self._boundary.load(device)
            if unit.number == len(self.shards) - 1 and self._targets is not None:
                self._targets.load(device)

    def _batch(self, step: int, device: Device) -> tuple[Moving, Moving]:
        """Raises DeviceMemoryError where it is larger than that of the pilot runs: it would take others' memory."""
        inputs, targets = self.model.batches(step)
        if inputs.nbytes + targets.nbytes > self.batch_bytes:
            raise DeviceMemoryError(
                f"the batch of step {step} has {inputs.nbytes + targets.nbytes} bytes, that of step 1, by which shards "
                f"were cut, {self.batch_bytes}"
            )
        return Moving(device.home(inputs)), Moving(device.home(targets))

    def compute(self, device: Device) -> None:
        """The next unit, which was loaded. Raises DivergedError, and what the trial's own code raises."""
        shard, arrived = self.shards[self.unit.shard], self._boundary
        self._boundary = None
        begin_s = time.perf_counter()
        if self.unit.kind == "backward":
            with device.computing(shard.random_numbers(self.stream)):
                left = shard.backward(arrived.tensor if arrived else None)
        else:
            left = self._forward(shard, arrived, device)
        self._boundary = None if left is None else Moving(left, device)
        self._times.observe(self.position, time.perf_counter() - begin_s)

    def _forward(self, shard: Shard, arrived: Moving | None, device: Device) -> torch.Tensor | None:
        inputs, self._inputs = arrived or self._inputs, None
        is_last = shard is self.shards[-1]
        targets = self._targets if is_last else None
        assert inputs is not None, "the first unit's batch was loaded, and every other one's input"
        with device.computing(self.stream):
            output = shard.forward(inputs.tensor, targets.tensor if targets else None, self.stream)
            if not is_last:
                return output
            self._loss = output.item()
        self._targets = None
        if not math.isfinite(self._loss):
            raise DivergedError(f"{self.model.metric} is {self._loss} in step {self.step + 1}")
        return None

    def unload(self, unit: Unit, device: Device, *, shard_stays: bool, boundary_stays: bool) -> None:
        """Bring home what the unit leaves on the device."""
        with device.transferring():
            if not shard_stays:
                self.shards[unit.shard].unload()
            if not boundary_stays and self._boundary is not None:
                self._boundary.unload()

    def advance(self) -> bool:
        """To the next unit; whether a mini-batch has ended with this one."""
        ended = self.is_last_of_step
        self.position = 0 if ended else self.position + 1
        if ended:
            self.step += 1
            self.losses.append(self._loss)
        return ended

    def end(self, state: State, reason: str = "") -> None:
        """It has no more units; what it has on a device is given up unless it is at home already."""
        self.state, self.reason = state, reason
        for shard in self.shards:
            shard.discard()
        self._boundary = self._inputs = self._targets = None

    def outcome(self) -> Outcome:
        """What became of it."""
        parameters = {name: home for shard in self.shards for name, home in shard.named_homes().items()}
        return Outcome(
            self.trial.name,
            self.state,
            self.step,
            self.model.metric,
            tuple(self.losses),
            self.reason,
            parameters,
        )
