"""How fast each machine computes, and how the sequences of a batch are shared."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from hulk_placement.topology import Machine, Topology
from hulk_placement.workload import Workload

ASSUMED_FLOPS_PER_S = 1e12
"""What a prediction takes for the speed of all machines where none is known; such plans say `calibrated: False`."""

SLOWEST_FLOPS_PER_S = 1e8
"""Slower than any accelerator. A machine that lengthens the step by its links although all compute as slowly as this
lengthens it at every speed; where no speed is known no other one is left out."""


def speeds(workload: Workload, topology: Topology, names: Iterable[str]) -> dict[str, float]:
    """FLOP/s per accelerator of the named machines.

    What was measured with this workload, else the machine's own figure, else the median of the machines of its product,
    else that of all machines, else an assumed figure for all of them: a machine is never better or worse for being
    unknown.
    """
    machines = [topology.machine(name) for name in names]
    known: dict[str, list[float]] = {}
    for machine in topology.machines:
        measured = _measured(workload, machine)
        if measured is not None:
            known.setdefault(machine.product, []).append(measured)
    medians = {product: statistics.median(values) for product, values in known.items()}
    everything = [value for values in known.values() for value in values]
    otherwise = statistics.median(everything) if everything else ASSUMED_FLOPS_PER_S
    return {m.name: _measured(workload, m) or medians.get(m.product, otherwise) for m in machines}


def is_any_known(workload: Workload, topology: Topology) -> bool:
    """Whether the speed of any machine was measured, so that computing can be weighed against communication."""
    return any(_measured(workload, machine) is not None for machine in topology.machines)


def is_calibrated(workload: Workload, topology: Topology, names: Iterable[str]) -> bool:
    """Whether the speed of every named machine was measured."""
    return all(_measured(workload, topology.machine(name)) is not None for name in names)


def _measured(workload: Workload, machine: Machine) -> float | None:
    return workload.flops_per_s.get(machine.name, machine.flops_per_s)


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
    flops = workload.model.flops_per_sequence
    return tuple(share * flops / speed[name] for name, share in zip(machines, shares, strict=True))
