"""Machines -> kinds that compute alike, each with the best that is known of its speed.

Best first: the model's own profile on that product; what this very workload did on that machine; the machine's
declared figure; what other workloads lead to expect there; what the workload did on other machines of the product, else
their declared figure; the product's data sheet with the assumed efficiency, times what machines with a figure of their
own reach of theirs (so that only the ratio of products is assumed where one of them is known); the median of the other
machines; an assumed figure for all.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk_placement.accelerators import Accelerator, look_up
from hulk_placement.cost.efficiency import layer_seconds
from hulk_placement.topology import Machine, Topology
from hulk_placement.workload import Workload

ASSUMED_FLOPS_PER_S = 1e12
"""What a prediction takes for the speed of all machines where none is known; such plans say `calibrated: False`."""


class Source(StrEnum):
    """How a machine's speed came to be known, best first."""

    PROFILE = "profile of the model"
    MEASURED = "measured there"
    DECLARED = "declared"
    LIKELY = "other models there"
    PRODUCT = "others of its product"
    DATA_SHEET = "data sheet"
    OTHERS = "other machines"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Kind:
    """All that decides a machine's seconds.

    `flops_per_s`: of one accelerator, over the whole model without tensor parallelism; at `micro_batch` where it was
    measured with a known one, by profile and data sheet at the workload's (1 where the planner chooses it). `reached`:
    its share of what the product's curve says, where that is the source.
    """

    product: str
    memory_bandwidth_bytes_per_s: float
    source: Source
    flops_per_s: float
    micro_batch: int | None = None
    reached: float = 1.0

    @property
    def accelerator(self) -> Accelerator | None:
        """The product's data sheet with the machine's own memory bandwidth where it has one."""
        return data_sheet(self.product, self.memory_bandwidth_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of some machines: `kind_of` (machines,) numbers those of `kinds`."""

    kinds: tuple[Kind, ...]
    kind_of: NDArray[np.intp]


def kinds_of(workload: Workload, topology: Topology, names: Iterable[str]) -> Kinds:
    """The kinds of the named machines, in their order."""
    known = Knowledge(workload, topology)
    numbers: dict[Kind, int] = {}
    kind_of = [numbers.setdefault(known.kind(topology.machine(name)), len(numbers)) for name in names]
    return Kinds(tuple(numbers), np.array(kind_of, dtype=np.intp))


def work(workload: Workload) -> float:
    """What FLOP/s are of: a sequence's FLOPs; a round figure for a model that is known by measured seconds alone."""
    return workload.model.flops_per_sequence or 1e12


def data_sheet(product: str, memory_bandwidth_bytes_per_s: float) -> Accelerator | None:
    """The product's data sheet; None where the table does not know it."""
    found = look_up(product)
    if found is None or not memory_bandwidth_bytes_per_s:
        return found
    return replace(found, memory_bandwidth_bytes_per_s=memory_bandwidth_bytes_per_s)


class Figure(NamedTuple):
    """FLOP/s of one accelerator, how they are known, and the micro-batch they were measured with, None: unknown."""

    source: Source
    flops_per_s: float
    micro_batch: int | None = None


class Knowledge:
    """What is known of the speed of a topology's machines with one workload."""

    def __init__(self, workload: Workload, topology: Topology) -> None:
        self._workload, self._topology = workload, topology
        self._profiled: dict[str, Figure | None] = {}
        self._estimates: dict[tuple[str, float, int], float | None] = {}

    def kind(self, machine: Machine) -> Kind:
        """The machine's kind."""
        figure = self._there(machine) or self._of_products.get(machine.product) or self._by_data_sheet(machine)
        figure = figure or self._of_others
        reached = self._reached if figure.source is Source.DATA_SHEET else 1.0
        return Kind(machine.product, machine.memory_bandwidth_bytes_per_s, *figure, reached)

    def own(self, machine: Machine) -> Figure | None:
        """What was measured, or declared, of the machine itself or of the model on its product."""
        profiled = self._profile(machine.product)
        if profiled is not None:
            return profiled
        name = machine.name
        if name in self._workload.flops_per_s:
            micro_batch = self._workload.measured_micro_batch.get(name)
            return Figure(Source.MEASURED, self._workload.flops_per_s[name], micro_batch)
        return None if machine.flops_per_s is None else Figure(Source.DECLARED, machine.flops_per_s)

    def is_measured(self, machine: Machine, tensor: int) -> bool:
        """Whether its speed was measured or declared, or the model's layers on its product with this tensor degree."""
        times = self._workload.model.times
        is_profiled = times is not None and times.seconds(machine.product, self._micro_batch, tensor) is not None
        return is_profiled or self.own(machine) is not None

    def _there(self, machine: Machine) -> Figure | None:
        """The machine's own figure, else what other workloads lead to expect."""
        likely = self._workload.likely_flops_per_s.get(machine.name)
        return self.own(machine) or (None if likely is None else Figure(Source.LIKELY, likely))

    def is_any_known(self) -> bool:
        """Whether any machine's speed is known, or by data sheets that machines differ."""
        return bool(self._known) or len({*map(self._estimate, self._topology.machines)} - {None}) > 1

    @cached_property
    def _known(self) -> list[tuple[Machine, Figure]]:
        """All machines with a figure: asked for only where one has none of its own, since there may be thousands."""
        return [(machine, figure) for machine in self._topology.machines if (figure := self._there(machine))]

    @property
    def _micro_batch(self) -> int:
        return self._workload.micro_batch or 1

    @cached_property
    def _of_products(self) -> dict[str, Figure]:
        """By product, the median of what was measured, else of what was declared, else of what is likely."""
        found: dict[str, Figure] = {}
        for source in (Source.LIKELY, Source.DECLARED, Source.MEASURED):
            of_product: dict[str, list[Figure]] = {}
            for machine, figure in self._known:
                if figure.source is source:
                    of_product.setdefault(machine.product, []).append(figure)
            found |= {product: _median(figures) for product, figures in of_product.items()}
        return found

    def _by_data_sheet(self, machine: Machine) -> Figure | None:
        estimate = self._estimate(machine)
        return None if estimate is None else Figure(Source.DATA_SHEET, estimate * self._reached)

    @cached_property
    def _reached(self) -> float:
        """What machines with a figure reach of their product's curve: the median, 1 without any."""
        estimates = ((own.flops_per_s, self._estimate(machine, own.micro_batch)) for machine, own in self._known)
        shares = [figure / estimate for figure, estimate in estimates if estimate is not None]
        return statistics.median(shares) if shares else 1.0

    @cached_property
    def _of_others(self) -> Figure:
        there = [figure.flops_per_s for _, figure in self._known]
        found = there or [known for known in map(self._estimate, self._topology.machines) if known is not None]
        if not found:
            return Figure(Source.ASSUMED, ASSUMED_FLOPS_PER_S)
        return Figure(Source.OTHERS, statistics.median(found))

    def _profile(self, product: str) -> Figure | None:
        times = self._workload.model.times
        if times is None:
            return None
        if product not in self._profiled:
            found = times.seconds(product, self._micro_batch, 1)
            whole = found and self._whole(sum(found[0]) + sum(found[1]), self._micro_batch)
            self._profiled[product] = Figure(Source.PROFILE, whole) if whole else None
        return self._profiled[product]

    def _estimate(self, machine: Machine, micro_batch: int | None = None) -> float | None:
        """FLOP/s by data sheet and efficiency curve."""
        size = micro_batch or self._micro_batch
        key = machine.product, machine.memory_bandwidth_bytes_per_s, size
        if key not in self._estimates:
            accelerator, model = data_sheet(*key[:2]), self._workload.model
            if accelerator is None or not model.flops_per_sequence:
                self._estimates[key] = None
            else:
                passes = layer_seconds(accelerator, self._workload.precision, model.layers, size)
                self._estimates[key] = self._whole(sum(float(side.sum()) for side in passes), size)
        return self._estimates[key]

    def _whole(self, seconds: float, micro_batch: int) -> float:
        """FLOP/s over the whole model."""
        return micro_batch * work(self._workload) / seconds


def _median(figures: Sequence[Figure]) -> Figure:
    """The median; at the micro-batch of all, where they have the same."""
    sizes = {figure.micro_batch for figure in figures}
    flops_per_s = statistics.median(figure.flops_per_s for figure in figures)
    return Figure(Source.PRODUCT, flops_per_s, sizes.pop() if len(sizes) == 1 else None)
