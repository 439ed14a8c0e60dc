"""The fewest machines of one kind whose memory holds a model, by the very figures that searches go by.

Parameters and their gradients can be split by layers and, inside a machine, by tensor degree, and no further: whole
layers, the activations of the micro-batches in flight and tied parameters decide, not the sum of all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from hulk_native import stages_that_hold

from hulk_placement.accelerators.framework_memory import framework_memory
from hulk_placement.cost.closed_form.evaluate import memory_bytes
from hulk_placement.cost.closed_form.setting import Ground, Option, holds_workers, whole_cells
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import Shape
from hulk_placement.topology import Machine
from hulk_placement.training_memory import Overhead


@dataclass(frozen=True, slots=True)
class Fit:
    """A shape that machines of one kind have the memory for, and how many of them it takes."""

    num_machines: int
    shape: Shape

    @property
    def size(self) -> tuple[int, int]:
        """Machines, then accelerators."""
        return self.num_machines, self.shape.num_accelerators


@dataclass(frozen=True, slots=True)
class Lack:
    """The layer that no accelerator of a kind holds, however it is split, and what it needs at least.

    `tensor_bytes`: without what the process takes besides, which is `overhead`; at tensor degree `tensor`.
    """

    layer: int
    tensor: int
    tensor_bytes: float
    overhead: Overhead

    @property
    def need_bytes(self) -> float:
        """Of an accelerator."""
        return self.overhead.total(self.tensor_bytes)


def fewest_machines(ground: Ground, space: Space, machine: Machine) -> Fit | Lack | None:
    """What the fewest machines like this one hold, or the layer that is too large for any number of them.

    None where each layer has room for itself and yet no number would do: because of the micro-batches in flight, or of
    the degrees that are asked for. Pins, price and links do not count.
    """
    found = min(fits(ground, space, machine), key=lambda fit: fit.size, default=None)
    return found or _lack(ground, space, machine)


def fits(ground: Ground, space: Space, machine: Machine) -> Iterator[Fit]:
    """The shapes that machines like this one have the memory for: of each number of stages those of fewest replicas.

    With the smallest micro-batches allowed, and the schedule that has fewest of them in flight.
    """
    for option in leanest(space, machine):
        setting = ground.setting(option)
        num_batches = math.ceil(ground.workload.global_batch / setting.micro_batch)
        room_bytes = ground.workload.room_bytes(machine, option.tensor, option.shard)
        cells_each = int(whole_cells([machine], option.width, setting.worker_cells)[0])
        for data in [space.data] if space.data else _divisions(num_batches, len(setting.output_L)):
            holds_P = stages_that_hold(setting, room_bytes, math.ceil(num_batches / data))
            for num_stages in map(int, np.flatnonzero(holds_P)):
                least = space.smallest(option, num_stages).data
                num_replicas = max(least, space.whole_up(data, num_stages * option.width))
                is_asked = ground.workload.pipeline in (None, num_stages)
                if is_asked and num_replicas <= (space.data or num_batches):
                    num_machines = math.ceil(num_stages * num_replicas / cells_each)
                    yield Fit(num_machines, Shape(option, num_replicas, num_stages))


def leanest(space: Space, machine: Machine) -> list[Option]:
    """The options that need least, of each tensor degree that the machine has room for, recomputing or not."""
    least = min(option.micro_batch for option in space.options)
    lean = (replace(option, micro_batch=least, schedule=space.options[0].schedule) for option in space.options)
    return [one for one in dict.fromkeys(lean) if holds_workers(machine, space.each, one.width)]


def _divisions(num_batches: int, most_in_flight: int) -> Iterator[int]:
    """Numbers of replicas, the least for each number of micro-batches that one may have, as far as that matters.

    Of 12 micro-batches, where at most 4 are in flight:

    >>> list(_divisions(12, 4))
    [1, 4, 6, 12]
    """
    yield 1
    for num in range(min(most_in_flight, num_batches) - 1, 0, -1):
        yield math.ceil(num_batches / num)


def _lack(ground: Ground, space: Space, machine: Machine) -> Lack | None:
    """The layer that lacks most where it is split as far as it can be, with one micro-batch in flight."""
    workload, framework = ground.workload, framework_memory(machine.product)
    options = [
        (one.tensor, ground.setting(one), workload.overhead(framework, one.tensor, shard=one.shard))
        for one in leanest(space, machine)
    ]
    needs = [
        min(
            (Lack(n, tensor, memory_bytes(each, n, n + 1, 0, 1, 1), overhead) for tensor, each, overhead in options),
            key=lambda lack: lack.need_bytes,
        )
        for n in range(len(workload.model.layers) if options else 0)
    ]
    worst = max(needs, key=lambda lack: lack.need_bytes, default=None)
    return worst if worst is not None and worst.need_bytes > machine.memory_bytes else None
