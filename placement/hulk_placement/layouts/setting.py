"""From a workload and a topology to the arrays that compiled searches read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hulk_placement.cost.compute import speeds
from hulk_placement.cost.pipeline import SCHEDULES
from hulk_placement.layouts.arrays import Floats, Ints, Setting
from hulk_placement.layouts.sync import GLOO, WAN
from hulk_placement.model import Layer
from hulk_placement.topology import SAME_MACHINE, Link, LinkKind, Machine, Topology
from hulk_placement.workload import OPTIMIZER_BYTES_PER_PARAMETER, Workload

BYTES_PER_VALUE = 4
COPIES = 3
"""Of every parameter: itself, its gradient, and the bucket that the all-reduce works on."""


@dataclass(frozen=True, slots=True)
class Option:
    """What the arrays of a setting depend on beside workload and machines."""

    micro_batch: int
    tensor: int = 1
    schedule: str = "1f1b"
    recompute: bool = False
    overlap: bool = True
    num_buckets: int = 1


@dataclass(frozen=True)
class Ground:
    """The machines of one search and the links between them, as far as no option changes them."""

    workload: Workload
    topology: Topology
    machines: tuple[Machine, ...]
    regions: tuple[str, ...]
    region_M: Ints
    place_M: Ints
    latency_QQ: Floats
    flow_QQ: Floats
    latency_RR: Floats
    flow_RR: Floats
    capacity_RR: Floats
    uplink_R: Floats

    @classmethod
    def of(cls, workload: Workload, topology: Topology, machines: Sequence[Machine]) -> Ground:
        """The ground of these machines; links that the workload may not use have rate 0."""
        regions = tuple(dict.fromkeys(machine.region for machine in machines))
        region = {name: number for number, name in enumerate(regions)}
        own = {name for pair in topology.node_links for name in pair}
        apart = [machine for machine in machines if machine.name in own]
        place = {machine.name: len(regions) + number for number, machine in enumerate(apart)}
        places = [(name, None) for name in regions] + [(machine.region, machine.name) for machine in apart]

        def between(a: tuple[str, str | None], b: tuple[str, str | None]) -> Link:
            if a[1] is not None and b[1] is not None and a != b:
                return topology.link(a[1], b[1])
            return topology.region_link(a[0], b[0])

        regional: list[tuple[str, str | None]] = [(name, None) for name in regions]
        latency_RR, flow_RR = _figures([[between(a, b) for b in regional] for a in regional], workload)
        latency_QQ, flow_QQ = latency_RR, flow_RR
        if apart:
            latency_QQ, flow_QQ = _figures([[between(a, b) for b in places] for a in places], workload)
        capacity_RR = np.where(flow_RR > 0, flow_RR, 1.0)
        np.fill_diagonal(capacity_RR, math.inf)
        return cls(
            workload=workload,
            topology=topology,
            machines=tuple(machines),
            regions=regions,
            region_M=np.array([region[machine.region] for machine in machines]),
            place_M=np.array([place.get(machine.name, region[machine.region]) for machine in machines]),
            latency_QQ=latency_QQ,
            flow_QQ=flow_QQ,
            latency_RR=latency_RR,
            flow_RR=flow_RR,
            capacity_RR=capacity_RR,
            uplink_R=np.array([topology.uplinks.get(name, math.inf) for name in regions]),
        )

    def setting(self, option: Option) -> Setting:
        """The arrays of one option."""
        workload, model, t, b = self.workload, self.workload.model, option.tensor, option.micro_batch
        speed = speeds(workload, self.topology, (machine.name for machine in self.machines))
        figures = [(m.product, m.memory_bytes, speed[m.name]) for m in self.machines]
        kinds = list(dict.fromkeys(figures))
        number = {kind: k for k, kind in enumerate(kinds)}
        layers = model.layers
        forward_L = np.array([layer.forward_flops for layer in layers]) * b / t
        backward_L = np.array([layer.backward_flops for layer in layers]) * b / t
        parameters_L = np.array([layer.num_parameters for layer in layers]) / t
        output_L = np.array([float(layer.output_bytes) for layer in layers]) * b
        replicated_L = np.array([layer.replicated_activation_bytes for layer in layers])
        kept_L = (replicated_L + (np.array([layer.activation_bytes for layer in layers]) - replicated_L) / t) * b
        per_parameter = COPIES * BYTES_PER_VALUE + OPTIMIZER_BYTES_PER_PARAMETER[workload.optimizer]
        modes = {"ring": GLOO, "wan": WAN}
        return Setting(
            kind_M=np.array([number[figure] for figure in figures]),
            region_M=self.region_M,
            place_M=self.place_M,
            slots_M=np.array([machine.num_accelerators // t for machine in self.machines]),
            memory_K=np.array([float(memory) or math.inf for _, memory, _ in kinds]),
            price_K=np.zeros(len(kinds)),
            forward_KJ=_sums(np.array([forward_L / kind[2] for kind in kinds])),
            backward_KJ=_sums(np.array([backward_L / kind[2] for kind in kinds])),
            held_J=_sums(parameters_L * per_parameter),
            gradient_J=_sums(parameters_L * BYTES_PER_VALUE),
            kept_J=_sums(kept_L),
            input_J=_sums(np.concatenate([[0.0], output_L[:-1]])),
            peak_L=kept_L,
            output_L=output_L,
            ties_T2=_ties(layers),
            latency_QQ=self.latency_QQ,
            flow_QQ=self.flow_QQ,
            inside_latency_K=np.full(len(kinds), SAME_MACHINE.rtt_s / 2),
            inside_flow_K=np.full(len(kinds), SAME_MACHINE.bandwidth_bytes_per_s),
            latency_RR=self.latency_RR,
            flow_RR=self.flow_RR,
            capacity_RR=self.capacity_RR,
            uplink_R=self.uplink_R,
            egress_RR=np.zeros_like(self.latency_RR),
            tensor=t,
            schedule=SCHEDULES[option.schedule],
            overlap=option.overlap,
            recompute=option.recompute,
            transports=modes.get(workload.sync.mode, GLOO | WAN),
            num_buckets=option.num_buckets,
            is_money=False,
        )


def _figures(links: list[list[Link]], workload: Workload) -> tuple[Floats, Floats]:
    """One-way seconds and bytes a second of each pair; rate 0 where the link must not be used."""

    def rate(link: Link) -> float:
        usable = workload.allow_unknown_links or link.kind is not LinkKind.UNKNOWN
        return link.bandwidth_bytes_per_s if usable else 0.0

    return (
        np.array([[link.rtt_s / 2 for link in row] for row in links]),
        np.array([[rate(link) for link in row] for row in links]),
    )


def _ties(layers: Sequence[Layer]) -> Ints:
    """Pairs of a layer and the earlier one whose parameters it uses; (T, 2)."""
    found = [(number, layer.tied_to) for number, layer in enumerate(layers) if layer.tied_to is not None]
    return np.array(found, np.int64).reshape(-1, 2)


def _sums(values: Floats) -> Floats:
    """Prefix sums along the last axis, 0 first.

    >>> _sums(np.array([1.0, 2.0]))
    array([0., 1., 3.])
    """
    zeros = np.zeros((*values.shape[:-1], 1))
    return np.ascontiguousarray(np.concatenate([zeros, np.cumsum(values, axis=-1)], axis=-1))
