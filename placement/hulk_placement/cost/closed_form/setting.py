"""From a workload and a topology to the arrays that compiled searches read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from hulk_placement.accelerators.framework_memory import FrameworkMemory, framework_memory
from hulk_placement.collective.plan import WIRE_SHARE
from hulk_placement.cost import sharding
from hulk_placement.cost.closed_form.arrays import Floats, Ints, Setting
from hulk_placement.cost.closed_form.joins import Joins, apart
from hulk_placement.cost.closed_form.pipeline import SCHEDULES
from hulk_placement.cost.closed_form.sync import GLOO, WAN
from hulk_placement.cost.compute import Passes, kind_seconds
from hulk_placement.cost.known import Kinds, kinds_of
from hulk_placement.cost.layer_sums import are_by_layer
from hulk_placement.cost.money import LIMIT_ROUNDING
from hulk_placement.model.layer import BYTES_PER_FP32
from hulk_placement.topology import SAME_MACHINE, Link, Machine, Pair, Topology
from hulk_placement.workload import Workload

NOTHING_AROUND: Final[Mapping[str, Link]] = MappingProxyType({})

BANNED = 1000.0
"""What a layer where it must not be counts for: more than machines that may have it are slower or dearer."""


@dataclass(frozen=True, slots=True)
class Option:
    """What the arrays of a setting depend on beside workload and machines."""

    micro_batch: int
    tensor: int = 1
    schedule: str = "1f1b"
    recompute: bool = False
    overlap: bool = True
    shard: int = 1
    cuts: tuple[int, ...] = (0,)
    """First layers of stages that gather their layers each for itself; of a search, which has none yet, the model's."""

    @property
    def width(self) -> int:
        """Ranks of a cell."""
        return self.tensor * self.shard

    @property
    def cell_batch(self) -> int:
        """Sequences of a micro-batch of all shards of a cell together."""
        return self.micro_batch * self.shard


@dataclass(frozen=True, slots=True)
class Figures:
    """All in which two machines of one kind are alike: `compute` numbers what decides their seconds."""

    compute: int
    memory_bytes: int
    framework: FrameworkMemory
    price_per_hour: float
    inside: Link
    around: Link
    """What a shard group sends over, on one machine or on several that stand for one."""
    keeps_windows: bool
    nic_bytes_per_s: float


@dataclass(frozen=True)
class Ground:
    """The machines of one search and the links between them, as far as no option changes them."""

    workload: Workload
    topology: Topology
    machines: tuple[Machine, ...]
    regions: tuple[str, ...]
    region_M: Ints
    place_M: Ints
    joins: Joins
    speeds: Kinds
    figures: tuple[Figures, ...]
    """Of each machine."""

    @classmethod
    def of(
        cls,
        workload: Workload,
        topology: Topology,
        machines: Sequence[Machine],
        own: Iterable[Pair] | None = None,
        around: Mapping[str, Link] = NOTHING_AROUND,
    ) -> Ground:
        """The ground of these machines; links that the workload may not use have rate 0.

        `own`: the machine pairs whose own links count; None: all that have one. `around`: what the shard groups of
        machines that stand for several send over; of others it is what their tensor-parallel ranks do.
        """
        regions = tuple(dict.fromkeys(machine.region for machine in machines))
        region = {name: number for number, name in enumerate(regions)}
        having_own = apart(topology, machines, topology.node_links if own is None else own)
        place = {machine.name: len(regions) + number for number, machine in enumerate(having_own)}
        speeds = kinds_of(workload, topology, (machine.name for machine in machines))
        return cls(
            workload=workload,
            topology=topology,
            machines=tuple(machines),
            regions=regions,
            region_M=np.array([region[machine.region] for machine in machines]),
            place_M=np.array([place.get(machine.name, region[machine.region]) for machine in machines]),
            joins=Joins.of(workload, topology, regions, having_own),
            speeds=speeds,
            figures=tuple(
                Figures(
                    int(compute),
                    machine.memory_bytes,
                    framework_memory(machine.product),
                    machine.price_per_hour,
                    topology.inside(machine.name),
                    around.get(machine.name) or topology.inside(machine.name),
                    machine.keeps_windows,
                    machine.nic_bytes_per_s or math.inf,
                )
                for compute, machine in zip(speeds.kind_of, machines, strict=True)
            ),
        )

    @property
    def has_own_links(self) -> bool:
        """Whether links of single machines are known, which may differ from what is typical of their regions."""
        return bool((self.place_M != self.region_M).any())

    @cached_property
    def passes(self) -> Passes:
        """Curves that were drawn for one option serve the next."""
        return Passes(self.workload)

    def setting(self, option: Option) -> Setting:
        """The arrays of one option; those of options that differ in their order of passes alone are the same ones."""
        shape = (option.micro_batch, option.tensor, option.shard, option.cuts)
        if shape not in self._made:
            self._made[shape] = self._setting(option)
        return self._made[shape]._replace(
            schedule=SCHEDULES[option.schedule], overlap=option.overlap, recompute=option.recompute
        )

    @cached_property
    def _made(self) -> dict[tuple[int, int, int, tuple[int, ...]], Setting]:
        """By micro-batch, tensor degree, shards and the stages that gather layers."""
        return {}

    def _setting(self, option: Option) -> Setting:
        workload = self.workload
        seconds = kind_seconds(workload, self.speeds, option.micro_batch, option.tensor, self.passes)
        kinds = list(dict.fromkeys(self.figures))
        number = {kind: k for k, kind in enumerate(kinds)}
        compute_K = [kind.compute for kind in kinds]
        tensor_s_KL = np.array([_tensor_seconds(workload, kind.inside, option) for kind in kinds])
        forward_KL = seconds.kinds_forward_s[compute_K] + tensor_s_KL
        backward_KL = seconds.kinds_backward_s[compute_K] + tensor_s_KL
        if option.shard > 1:
            forward_KL, backward_KL = _sharded(workload, kinds, option, forward_KL, backward_KL)
        modes = {"ring": GLOO, "wan": WAN}
        cells = worker_cells(workload.accelerators_per_worker, option.width)
        is_nccl = workload.stage_transport == "nccl"
        inside_K = [(workload.nccl.inside or kind.inside) if is_nccl else SAME_MACHINE for kind in kinds]
        return Setting(
            kind_M=np.array([number[figure] for figure in self.figures]),
            region_M=self.region_M,
            place_M=self.place_M,
            slots_M=whole_cells(self.machines, option.width, cells),
            worker_cells=cells,
            memory_K=np.array([_room_bytes(workload, kind, option) for kind in kinds]),
            price_K=np.array([kind.price_per_hour / 3600 * option.width for kind in kinds]),
            is_cold_K=np.array([not kind.keeps_windows for kind in kinds]),
            nic_K=np.array([kind.nic_bytes_per_s for kind in kinds]),
            forward_KJ=_sums(forward_KL),
            backward_KJ=_sums(backward_KL),
            **_bytes(workload, option),
            **self.joins._asdict(),
            inside_latency_K=np.array([link.latency_s for link in inside_K]),
            inside_flow_K=np.array([link.bandwidth_bytes_per_s for link in inside_K]),
            banned_MJ=_banned(workload, self.machines),
            price_limit=(workload.max_price_per_hour or math.inf) * LIMIT_ROUNDING / 3600,
            global_batch=workload.global_batch,
            micro_batch=option.cell_batch,
            tensor=option.width,
            schedule=SCHEDULES[option.schedule],
            overlap=option.overlap,
            recompute=option.recompute,
            transports=modes.get(workload.sync.mode, GLOO | WAN),
            wire_share=WIRE_SHARE[workload.sync.compression],
            inner_steps=workload.sync.planned_inner_steps or 1,
            sums_by_layer=are_by_layer(workload, option.width, workload.sync.planned_inner_steps),
            is_money=workload.objective != "time",
            is_equal=workload.shares == "equal",
        )


def whole_cells(machines: Sequence[Machine], width: int, worker_cells: int) -> Ints:
    """Cells of so many ranks that each machine has room for, where so many are whole workers; (M,)."""
    num_M = np.array([machine.num_accelerators for machine in machines], np.int64)
    return num_M // width // worker_cells * worker_cells


def worker_cells(each: int, width: int) -> int:
    """The fewest cells of so many ranks that are whole workers of so many accelerators.

    >>> worker_cells(6, 4)
    3
    """
    return each // math.gcd(each, width)


def holds_workers(machine: Machine, each: int, width: int) -> bool:
    """Whether a machine has room for a whole worker in cells of so many ranks."""
    return bool(whole_cells([machine], width, worker_cells(each, width)).any())


def _banned(workload: Workload, machines: Sequence[Machine]) -> Floats:
    """Layers that pins keep from each machine, as prefix sums."""
    if not workload.layer_pins:
        return np.zeros((len(machines), 1))
    banned_ML = np.zeros((len(machines), len(workload.model.layers)))
    for pin in workload.layer_pins:
        kept_out = [m for m, machine in enumerate(machines) if not pin.allows(machine)]
        banned_ML[np.ix_(kept_out, pin.layers)] = BANNED
    return _sums(banned_ML)


def _room_bytes(workload: Workload, kind: Figures, option: Option) -> float:
    """What tensors may take of an accelerator: all but what the framework takes of it."""
    return workload.overhead(kind.framework, option.tensor, shard=option.shard).room(kind.memory_bytes)


def _bytes(workload: Workload, option: Option) -> dict[str, Any]:
    """The arrays of bytes, by the layers' figures; see `Setting`."""
    layers, t, b, memory = workload.model.layers, option.tensor, option.micro_batch, workload.memory
    width = option.width
    output_L = np.array([float(layer.output_bytes) for layer in layers]) * b * option.shard
    input_L = np.array([memory.input_bytes(layer, t) for layer in layers]) * b
    kept_L = np.array([memory.kept_bytes(layer, t) for layer in layers]) * b
    per_parameter = workload.bytes_per_parameter.total
    tied = [n for n, layer in enumerate(layers) if layer.tied_to is not None]
    tied.sort(key=lambda n: (layers[n].tied_to, -layers[n].tied_parameters, n))
    return {
        "held_J": _sums(np.array([layer.held_bytes(per_parameter) for layer in layers]) / width),
        "gradient_J": _sums(np.array([BYTES_PER_FP32 * layer.trained_parameters for layer in layers]) / width),
        "kept_J": _sums(kept_L),
        "input_J": _sums(np.concatenate([[0.0], input_L[:-1]])),
        "peak_GL": _maxima(kept_L),
        "output_L": output_L,
        "ties_T2": np.array([(n, layers[n].tied_to) for n in tied], np.int64).reshape(-1, 2),
        "tied_held_T": np.array([layers[n].tied_held_bytes(per_parameter) / width for n in tied], np.float64),
        "tied_gradient_T": np.array(
            [BYTES_PER_FP32 * layers[n].trained_tied_parameters / width for n in tied], np.float64
        ),
    }


def _sharded(
    workload: Workload, kinds: Sequence[Figures], option: Option, forward_KL: Floats, backward_KL: Floats
) -> tuple[Floats, Floats]:
    """The same passes where each kind's ranks gather parameters, and reduce-scatter gradients."""
    found: list[tuple[Floats, Floats]] = []
    for kind, forward_L, backward_L in zip(kinds, forward_KL, backward_KL, strict=True):
        collectives_s = sharding.collectives_s(workload, kind.around, option.shard, option.tensor, option.cuts)
        found.append(sharding.passes_s(option.cuts, forward_L, backward_L, *collectives_s))
    return np.array([forward_L for forward_L, _ in found]), np.array([backward_L for _, backward_L in found])


def _tensor_seconds(workload: Workload, inside: Link, option: Option) -> list[float]:
    """Seconds of each layer's all-reduces between tensor-parallel ranks in one pass of a micro-batch.

    Each is a ring inside the machine: 2 (T - 1) steps of half a round trip, 2 (T - 1) / T of its bytes over a link.
    """
    t = option.tensor
    return [
        (t - 1) * layer.num_tensor_allreduces * inside.rtt_s
        + 2 * (t - 1) / t * layer.tensor_bytes * option.micro_batch / inside.bandwidth_bytes_per_s
        for layer in workload.model.layers
    ]


def _maxima(values: Floats) -> Floats:
    """The greatest of 2^g values from each on, by g; a range's greatest is that of two of these.

    >>> _maxima(np.array([1.0, 3.0, 2.0]))
    array([[1., 3., 2.],
           [3., 3., 2.]])
    """
    rows = [values]
    while 2 << (len(rows) - 1) <= len(values):
        step, last = 1 << (len(rows) - 1), rows[-1]
        rows.append(np.maximum(last, np.concatenate([last[step:], last[-1:].repeat(step)])))
    return np.array(rows)


def _sums(values: Floats) -> Floats:
    """Prefix sums along the last axis, 0 first.

    >>> _sums(np.array([1.0, 2.0]))
    array([0., 1., 3.])
    """
    zeros = np.zeros((*values.shape[:-1], 1))
    return np.ascontiguousarray(np.concatenate([zeros, np.cumsum(values, axis=-1)], axis=-1))
