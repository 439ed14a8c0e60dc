"""Machines -> kinds that compute alike, each with the best that is known of its speed.

Best first: the model's own profile on that product; what this very workload did on that machine; the machine's
declared figure; what the workload did on other machines of the product, else their declared figure; the product's data
sheet with the assumed efficiency, times what machines with a figure of their own reach of theirs (so that only the
ratio of products is assumed where one of them is known); the median of the other machines; an assumed figure for all.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from hulk_placement.accelerators import Accelerator, layer_seconds, look_up
from hulk_placement.topology import Machine, Topology
from hulk_placement.workload import Workload

ASSUMED_FLOPS_PER_S = 1e12
"""What a prediction takes for the speed of all machines where none is known; such plans say `calibrated: False`."""


class Source(StrEnum):
    """How a machine's speed came to be known, best first."""

    PROFILE = "profile of the model"
    MEASURED = "measured there"
    DECLARED = "declared"
    PRODUCT = "others of its product"
    DATA_SHEET = "data sheet"
    OTHERS = "other machines"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Kind:
    """All that decides a machine's seconds.

    `flops_per_s`: of one accelerator, over the whole model at the workload's micro-batch (1 where the planner chooses
    it) without tensor parallelism. `reached`: its share of what the product's curve says, where that is the source.
    """

    product: str
    memory_bandwidth_bytes_per_s: float
    source: Source
    flops_per_s: float
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
    """What FLOP/s are of: a sequence's FLOPs; 1 for a model that is known by measured seconds alone."""
    return workload.model.flops_per_sequence or 1.0


def data_sheet(product: str, memory_bandwidth_bytes_per_s: float) -> Accelerator | None:
    """The product's data sheet; None where the table does not know it."""
    found = look_up(product)
    if found is None or not memory_bandwidth_bytes_per_s:
        return found
    return replace(found, memory_bandwidth_bytes_per_s=memory_bandwidth_bytes_per_s)


class Knowledge:
    """What is known of the speed of a topology's machines with one workload: FLOP/s of one accelerator."""

    def __init__(self, workload: Workload, topology: Topology) -> None:
        self._workload, self._topology = workload, topology
        self._profiled: dict[str, float | None] = {}
        self._estimates: dict[tuple[str, float], float | None] = {}
        self._others: tuple[Source, float] | None = None
        self._reached: float | None = None
        own = [(machine, self.own(machine)) for machine in topology.machines]
        self._own = [(machine, found[1]) for machine, found in own if found]
        self._medians = {
            product: statistics.median(figures)
            for source in (Source.DECLARED, Source.MEASURED)  # the later stands
            for product, figures in _by_product(own, source).items()
        }

    def kind(self, machine: Machine) -> Kind:
        """The machine's kind."""
        source, flops_per_s = self.own(machine) or self._of_product(machine) or self._of_others()
        reached = self._share_of_curve() if source is Source.DATA_SHEET else 1.0
        return Kind(machine.product, machine.memory_bandwidth_bytes_per_s, source, flops_per_s, reached)

    def own(self, machine: Machine) -> tuple[Source, float] | None:
        """What was measured, or declared, of the machine itself or of the model on its product."""
        profiled = self._profile(machine.product)
        if profiled is not None:
            return Source.PROFILE, profiled
        measured = self._workload.flops_per_s.get(machine.name)
        if measured is not None:
            return Source.MEASURED, measured
        return None if machine.flops_per_s is None else (Source.DECLARED, machine.flops_per_s)

    def estimate(self, machine: Machine) -> float | None:
        """By data sheet and efficiency curve."""
        key = machine.product, machine.memory_bandwidth_bytes_per_s
        if key not in self._estimates:
            self._estimates[key] = self._by_curve(data_sheet(*key))
        return self._estimates[key]

    def is_any_known(self) -> bool:
        """Whether any machine's speed is known, or by data sheets that machines differ."""
        return bool(self._own) or len({*map(self.estimate, self._topology.machines)} - {None}) > 1

    @property
    def _micro_batch(self) -> int:
        return self._workload.micro_batch or 1

    def _of_product(self, machine: Machine) -> tuple[Source, float] | None:
        if machine.product in self._medians:
            return Source.PRODUCT, self._medians[machine.product]
        estimate = self.estimate(machine)
        return None if estimate is None else (Source.DATA_SHEET, estimate * self._share_of_curve())

    def _share_of_curve(self) -> float:
        """What machines with a figure of their own reach of their product's curve: the median, 1 without any."""
        if self._reached is None:
            estimates = ((figure, self.estimate(machine)) for machine, figure in self._own)
            shares = [figure / estimate for figure, estimate in estimates if estimate is not None]
            self._reached = statistics.median(shares) if shares else 1.0
        return self._reached

    def _of_others(self) -> tuple[Source, float]:
        if self._others is None:
            estimates = () if self._own else map(self.estimate, self._topology.machines)
            own = [figure for _, figure in self._own]
            found = own or [estimate for estimate in estimates if estimate is not None]
            known = Source.OTHERS, statistics.median(found) if found else 0.0
            self._others = known if found else (Source.ASSUMED, ASSUMED_FLOPS_PER_S)
        return self._others

    def _profile(self, product: str) -> float | None:
        times = self._workload.model.times
        if times is None:
            return None
        if product not in self._profiled:
            found = times.seconds(product, self._micro_batch, 1)
            self._profiled[product] = None if found is None else self._whole(*map(np.asarray, found))
        return self._profiled[product]

    def _by_curve(self, accelerator: Accelerator | None) -> float | None:
        workload = self._workload
        if accelerator is None or not workload.model.flops_per_sequence:
            return None
        return self._whole(*layer_seconds(accelerator, workload.precision, workload.model.layers, self._micro_batch))

    def _whole(self, forward_s: NDArray[np.float64], backward_s: NDArray[np.float64]) -> float:
        """FLOP/s over the whole model."""
        total_s = float(np.sum(forward_s) + np.sum(backward_s))
        return self._micro_batch * work(self._workload) / total_s


def _by_product(own: Iterable[tuple[Machine, tuple[Source, float] | None]], source: Source) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for machine, figure in own:
        if figure is not None and figure[0] is source:
            found.setdefault(machine.product, []).append(figure[1])
    return found
