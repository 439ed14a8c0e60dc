"""How long each machine computes, layer by layer, and how the sequences of a batch are shared.

`layer_seconds` is the one answer; `cost.known` says what it is made of. The searches that know whole models only take
`speeds`, which sums it up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hulk_placement import accelerators
from hulk_placement.cost.known import Kind, Kinds, Knowledge, Source, kinds_of, work
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

SLOWEST_FLOPS_PER_S = 1e8
"""Slower than any accelerator. A machine that lengthens the step by its links although all compute as slowly as this
lengthens it at every speed; where no speed is known no other one is left out."""

Floats = NDArray[np.float64]


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


def kind_seconds(workload: Workload, found: Kinds, micro_batch: float, tensor: int = 1) -> LayerSeconds:
    """Seconds of every layer for one micro-batch, by the kinds that `kinds_of` found.

    With a tensor degree: what one rank computes, without the all-reduces between the ranks. A single figure of a
    machine (measured, declared, of others) says what the whole model takes at this micro-batch without tensor
    parallelism; its layers, and what a tensor degree does to them, follow the product's curve, or their FLOPs where
    that is not known. ValueError unless the micro-batch is above 0 and the degree at least 1.
    """
    if not micro_batch > 0 or tensor < 1:
        raise ValueError(f"micro-batch {micro_batch} must be > 0 and tensor degree {tensor} >= 1")
    shapes = _Shapes(workload, micro_batch, tensor)
    rows = [shapes.seconds(kind) for kind in found.kinds]
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


def is_calibrated(workload: Workload, topology: Topology, names: Iterable[str]) -> bool:
    """Whether the speed of every named machine was measured, or declared."""
    known = Knowledge(workload, topology)
    return all(known.own(topology.machine(name)) is not None for name in names)


def share_out(global_batch: int, rank_speeds: Sequence[float]) -> tuple[int, ...]:
    """Sequences per rank: as equal as whole numbers allow, the larger shares to the faster ranks, ties to the lower.

    >>> share_out(8, [1.0, 2.0, 2.0])
    (2, 3, 3)
    """
    base, extra = divmod(global_batch, len(rank_speeds))
    fastest_first = sorted(range(len(rank_speeds)), key=lambda rank: (-rank_speeds[rank], rank))
    larger = set(fastest_first[:extra])
    return tuple(base + (rank in larger) for rank in range(len(rank_speeds)))


def rank_seconds(
    workload: Workload, speed: Mapping[str, float], machines: Sequence[str], shares: Sequence[int]
) -> tuple[float, ...]:
    """Seconds each rank computes in one step: share x FLOPs a sequence / FLOP/s."""
    flops = work(workload)
    return tuple(share * flops / speed[name] for name, share in zip(machines, shares, strict=True))


@dataclass(frozen=True, slots=True)
class _Shape:
    """What kinds of one product have in common: seconds of the layers, or proportions that a kind's figure scales."""

    forward: Floats
    backward: Floats
    alone: float
    """The sum of both without tensor parallelism."""
    is_profiled: bool = False


class _Shapes:
    """The seconds of kinds for one micro-batch and tensor degree; each product's curve is drawn once."""

    def __init__(self, workload: Workload, micro_batch: float, tensor: int) -> None:
        self._workload, self._micro_batch, self._tensor = workload, micro_batch, tensor
        self._work = micro_batch * work(workload)
        self._known: dict[tuple[str, float], _Shape] = {}

    def seconds(self, kind: Kind) -> tuple[Floats, Floats]:
        """Forward and backward seconds of every layer."""
        key = kind.product, kind.memory_bandwidth_bytes_per_s
        if key not in self._known:
            self._known[key] = self._profiled(kind) or self._drawn(kind)
        shape = self._known[key]
        if shape.is_profiled:
            return shape.forward, shape.backward
        of_curve = kind.source is Source.DATA_SHEET
        factor = 1 / kind.reached if of_curve else self._work / kind.flops_per_s / shape.alone
        return factor * shape.forward, factor * shape.backward

    def _profiled(self, kind: Kind) -> _Shape | None:
        times = self._workload.model.times
        found = times and times.seconds(kind.product, self._micro_batch, self._tensor)
        return _Shape(np.array(found[0]), np.array(found[1]), 0.0, is_profiled=True) if found else None

    def _drawn(self, kind: Kind) -> _Shape:
        forward, backward = self._proportions(kind, self._tensor)
        alone = (forward, backward) if self._tensor == 1 else self._proportions(kind, 1)
        return _Shape(forward, backward, float(alone[0].sum() + alone[1].sum()))

    def _proportions(self, kind: Kind, tensor: int) -> tuple[Floats, Floats]:
        """By the curve, which has seconds; else as profiled on another product, else by FLOPs."""
        accelerator, model = kind.accelerator, self._workload.model
        if accelerator is not None:
            precision = self._workload.precision
            return accelerators.layer_seconds(accelerator, precision, model.layers, self._micro_batch, tensor)
        if model.times is not None:
            first = model.times.rows[0]
            return np.array(first.forward_s) / tensor, np.array(first.backward_s) / tensor
        flops = np.array([(layer.forward_flops, layer.backward_flops) for layer in model.layers])
        return flops[:, 0] / tensor, flops[:, 1] / tensor
