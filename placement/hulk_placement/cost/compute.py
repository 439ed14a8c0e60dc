"""How long each machine computes, layer by layer, and how the sequences of a batch are shared.

`layer_seconds` is the one answer; `cost.known` says what it is made of. The searches that know whole models only take
`speeds`, which sums it up.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hulk_placement.cost import efficiency
from hulk_placement.cost.known import Kind, Kinds, Knowledge, Source, kinds_of, work
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

SLOWEST_FLOPS_PER_S = 1e8
"""Slower than any accelerator. A machine that lengthens the step by its links although all compute as slowly as this
lengthens it at every speed; where no speed is known no other one is left out."""

SHARE_HALVINGS = 60

Floats = NDArray[np.float64]
Pass = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True)
class LayerSeconds:
    """Seconds of one micro-batch by machine and layer, held once for each kind of machine.

    `kind_of` (machines,) numbers the rows of `kinds_forward_s` and `kinds_backward_s` (kinds, layers).
    """

    kind_of: NDArray[np.intp]
    kinds_forward_s: Floats
    kinds_backward_s: Floats

    @property
    def forward_s(self) -> Floats:
        """Forward seconds, (machines, layers)."""
        return self.kinds_forward_s[self.kind_of]

    @property
    def backward_s(self) -> Floats:
        """Backward seconds, (machines, layers)."""
        return self.kinds_backward_s[self.kind_of]


def layer_seconds(
    workload: Workload, topology: Topology, names: Iterable[str], micro_batch: float, tensor: int = 1
) -> LayerSeconds:
    """Seconds of every layer on the named machines for one micro-batch of so many sequences; see `kind_seconds`."""
    return kind_seconds(workload, kinds_of(workload, topology, names), micro_batch, tensor)


def kind_seconds(
    workload: Workload, found: Kinds, micro_batch: float, tensor: int = 1, passes: Passes | None = None
) -> LayerSeconds:
    """Seconds of every layer for one micro-batch, by the kinds that `kinds_of` found.

    With a tensor degree: what one rank computes, without the all-reduces between the ranks. A single figure of a
    machine says what the whole model takes without tensor parallelism, at the micro-batch that it was measured with,
    else at every one; layers, and other sizes, follow the product's curve, or their FLOPs where that is not known.
    `passes` keeps the curves from call to call.
    ValueError unless the micro-batch is above 0 and the degree at least 1.
    """
    if not micro_batch > 0 or tensor < 1:
        raise ValueError(f"micro-batch {micro_batch} must be > 0 and tensor degree {tensor} >= 1")
    passes = passes or Passes(workload)
    rows = [passes.seconds(kind, micro_batch, tensor) for kind in found.kinds]
    forward_s, backward_s = (np.array([row[side] for row in rows]) for side in (0, 1))
    return LayerSeconds(found.kind_of, forward_s, backward_s)


def speeds(workload: Workload, topology: Topology, names: Iterable[str]) -> dict[str, float]:
    """FLOP/s per accelerator of the named machines, over the whole model."""
    known = Knowledge(workload, topology)
    return {name: known.kind(topology.machine(name)).flops_per_s for name in names}


def is_any_known(workload: Workload, topology: Topology) -> bool:
    """Whether machines can be told apart by their speed, or computing be weighed against communication.

    So it is where one speed was measured or declared, or where data sheets tell two products apart. Otherwise all
    machines count as equally fast, and nothing but a guess would say how fast.
    """
    return Knowledge(workload, topology).is_any_known()


def is_calibrated(workload: Workload, topology: Topology, names: Iterable[str], tensor: int = 1) -> bool:
    """Whether the speed of every named machine was measured, or declared, for stages of this tensor degree."""
    known = Knowledge(workload, topology)
    return all(known.is_measured(topology.machine(name), tensor) for name in names)


def share_out(global_batch: int, rank_speeds: Sequence[float]) -> tuple[int, ...]:
    """Sequences per rank: as equal as whole numbers allow, the larger shares to the faster ranks, ties to the lower.

    >>> share_out(8, [1.0, 2.0, 2.0])
    (2, 3, 3)
    """
    base, extra = divmod(global_batch, len(rank_speeds))
    fastest_first = sorted(range(len(rank_speeds)), key=lambda rank: (-rank_speeds[rank], rank))
    larger = set(fastest_first[:extra])
    return tuple(base + (rank in larger) for rank in range(len(rank_speeds)))


def share_by_speed(global_batch: int, rank_speeds: Sequence[float]) -> tuple[int, ...]:
    """Sequences per rank, one at least, so that the slowest rank is as quick as can be; ties to the lower ranks.

    All take what they compute in a time that is just too short for the batch; what is left goes, one by one, to whoever
    would be through with it first.

    >>> share_by_speed(8, [1.0, 3.0, 1.0])
    (2, 5, 1)
    """
    speed_R = np.array(rank_speeds, dtype=np.float64) / max(rank_speeds)
    short, long = 0.0, global_batch / float(speed_R.min())
    shares_R, num_left = np.ones(len(speed_R)), global_batch - len(speed_R)
    for _ in range(SHARE_HALVINGS):
        if num_left < len(speed_R):
            break
        middle = (short + long) / 2
        tried_R = np.maximum(1, np.floor(middle * speed_R))
        rest = global_batch - int(tried_R.sum())
        if rest < 0:
            long = middle
        else:
            short, shares_R, num_left = middle, tried_R, rest
    shares, speeds = [int(share) for share in shares_R], speed_R.tolist()
    through = [((share + 1) / speed, rank) for rank, (share, speed) in enumerate(zip(shares, speeds, strict=True))]
    heapq.heapify(through)
    for _ in range(num_left):
        _, rank = through[0]
        shares[rank] += 1
        heapq.heapreplace(through, ((shares[rank] + 1) / speeds[rank], rank))
    return tuple(shares)


class Passes:
    """Forward and backward seconds of kinds, (layers,) each; each product's curve is drawn once for a size."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._drawn: dict[tuple[str, float, float, int], Pass] = {}

    def seconds(self, kind: Kind, micro_batch: float, tensor: int) -> Pass:
        """By the profile, by the product's curve, or by a curve through the kind's figure."""
        times = self._workload.model.times
        profiled = times and times.seconds(kind.product, micro_batch, tensor)
        if profiled:
            return np.array(profiled[0]), np.array(profiled[1])
        if kind.source is Source.DATA_SHEET:
            return _scaled(self._curve(kind, micro_batch, tensor), 1 / kind.reached)
        measured_at = kind.micro_batch or self._workload.micro_batch or 1
        whole_s = measured_at * work(self._workload) / kind.flops_per_s
        factor = whole_s / sum(float(side.sum()) for side in self._curve(kind, measured_at, 1))
        if kind.micro_batch is None:
            return _scaled(self._curve(kind, measured_at, tensor), factor * micro_batch / measured_at)
        return _scaled(self._curve(kind, micro_batch, tensor), factor)

    def _curve(self, kind: Kind, micro_batch: float, tensor: int) -> Pass:
        key = kind.product, kind.memory_bandwidth_bytes_per_s, micro_batch, tensor
        if key not in self._drawn:
            self._drawn[key] = self._draw(kind, micro_batch, tensor)
        return self._drawn[key]

    def _draw(self, kind: Kind, micro_batch: float, tensor: int) -> Pass:
        """By data sheet, in seconds; else in proportion to what was profiled on another product, else to FLOPs."""
        accelerator, model = kind.accelerator, self._workload.model
        if accelerator is not None and model.flops_per_sequence:
            return efficiency.layer_seconds(accelerator, self._workload.precision, model.layers, micro_batch, tensor)
        if model.times is not None:
            first = model.times.rows[0]
            return _scaled((np.array(first.forward_s), np.array(first.backward_s)), micro_batch / tensor)
        flops = np.array([(layer.forward_flops, layer.backward_flops) for layer in model.layers])
        return _scaled((flops[:, 0], flops[:, 1]), micro_batch / tensor)


def _scaled(sides: Pass, factor: float) -> Pass:
    return factor * sides[0], factor * sides[1]
