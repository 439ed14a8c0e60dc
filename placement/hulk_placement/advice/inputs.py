"""Inputs with one thing changed: a link, an uplink, a kind of accelerator, its memory, who may be used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hulk_placement.cost.compute import kind_seconds
from hulk_placement.cost.known import Kind, Kinds, Source, kinds_of, work
from hulk_placement.model.times import LayerTimes
from hulk_placement.topology import Link, LinkKind, Machine, Pair, Topology
from hulk_placement.workload import Workload


def with_links(topology: Topology, pairs: frozenset[Pair], bandwidth: float = 1.0, rtt: float = 1.0) -> Topology:
    """The known links between these pairs of regions, and between machines of them, times factors.

    >>> topology = Topology((Machine("m", "a"),), region_links={("a", "b"): Link(0.1, 1e6, flow_bytes_per_s=5e5)})
    >>> made = with_links(topology, frozenset({("a", "b")}), bandwidth=2).region_links["a", "b"]
    >>> made.rtt_s, made.bandwidth_bytes_per_s, made.flow_bytes_per_s
    (0.1, 2000000.0, 1000000.0)
    """

    def changed(link: Link) -> Link:
        if link.kind is LinkKind.UNKNOWN:
            return link
        flow = link.flow_bytes_per_s
        return replace(
            link,
            rtt_s=link.rtt_s * rtt,
            one_way_s=None if link.one_way_s is None else link.one_way_s * rtt,
            bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * bandwidth,
            flow_bytes_per_s=None if flow is None else flow * bandwidth,
        )

    region = {machine.name: machine.region for machine in topology.machines}
    return replace(
        topology,
        node_links={
            (a, b): changed(link) if (region.get(a), region.get(b)) in pairs else link
            for (a, b), link in topology.node_links.items()
        },
        region_links={pair: changed(link) if pair in pairs else link for pair, link in topology.region_links.items()},
    )


def with_uplink(topology: Topology, region: str, factor: float) -> Topology:
    """A region's uplink times a factor."""
    return replace(topology, uplinks={**topology.uplinks, region: topology.uplinks[region] * factor})


def with_memory(topology: Topology, product: str, factor: int) -> Topology:
    """More memory on every accelerator of a product."""
    return _with_machines(topology, product, lambda m: replace(m, memory_bytes=m.memory_bytes * factor))


def with_inside(topology: Topology, product: str, factor: float) -> Topology:
    """Faster links between the accelerators of a machine, by product."""

    def changed(machine: Machine) -> Machine:
        inside = topology.inside(machine.name)
        faster = replace(inside, bandwidth_bytes_per_s=inside.bandwidth_bytes_per_s * factor)
        return replace(machine, inside=faster)

    return _with_machines(topology, product, changed)


def _with_machines(topology: Topology, product: str, changed: Callable[[Machine], Machine]) -> Topology:
    machines = (changed(m) if m.product == product else m for m in topology.machines)
    return replace(topology, machines=tuple(machines))


def with_speed(workload: Workload, topology: Topology, product: str, factor: float, micro_batch: int) -> Workload:
    """A product computes faster by a factor, and every other machine as before.

    Every machine gets a measured figure that says what was known of it already (at this micro-batch, where its data
    sheet was all), so that what is known of one product tells nothing new of another one.
    """
    names = [machine.name for machine in topology.machines]
    found = kinds_of(workload, topology, names)
    speeds = [_figure(workload, kind, micro_batch) for kind in found.kinds]
    flops_per_s, measured = dict(workload.flops_per_s), dict(workload.measured_micro_batch)
    for machine, number in zip(topology.machines, found.kind_of, strict=True):
        speed, size = speeds[number]
        flops_per_s[machine.name] = speed * (factor if machine.product == product else 1.0)
        measured.pop(machine.name, None)
        if size is not None:
            measured[machine.name] = size
    times = workload.model.times
    model = replace(workload.model, times=None if times is None else _scaled(times, product, factor))
    return replace(workload, model=model, flops_per_s=flops_per_s, measured_micro_batch=measured)


def _figure(workload: Workload, kind: Kind, micro_batch: int) -> tuple[float, int | None]:
    """The FLOP/s of a kind and the micro-batch that they are of, as one accelerator without tensor parallelism."""
    if kind.source is not Source.DATA_SHEET:
        return kind.flops_per_s, kind.micro_batch
    seconds = kind_seconds(workload, Kinds((kind,), np.zeros(1, dtype=np.intp)), micro_batch)
    whole_s = float(seconds.kinds_forward_s.sum() + seconds.kinds_backward_s.sum())
    return micro_batch * work(workload) / whole_s, micro_batch


def _scaled(times: LayerTimes, product: str, factor: float) -> LayerTimes:
    return LayerTimes(
        tuple(
            replace(
                row,
                forward_s=tuple(second / factor for second in row.forward_s),
                backward_s=tuple(second / factor for second in row.backward_s),
            )
            if row.product == product
            else row
            for row in times.rows
        )
    )


def with_region(workload: Workload, topology: Topology, region: str) -> Workload:
    """The workload may also use the machines of a region."""
    each = workload.accelerators_per_worker
    added = {m.name: m.num_accelerators // each for m in topology.machines if m.region == region}
    regions = (*workload.regions, region) if workload.regions else ()
    most = max(workload.max_workers, sum({**workload.candidates, **added}.values()))
    return replace(workload, candidates={**workload.candidates, **added}, regions=regions, max_workers=most)
