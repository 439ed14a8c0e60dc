"""Machines that are alike to every job become pools, so that a division among jobs is numbers and not names.

Alike: in one region and the same in every figure, speed measured, room for each job's pods and pinned layer. Own links
of a machine do not count here: they decide where in its job it stands, not which job it is for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hulk_placement.cost.closed_form.arrays import Floats, Ints
from hulk_placement.cost.known import kinds_of
from hulk_placement.search.problem import slots
from hulk_placement.topology import Machine, Topology
from hulk_placement.workload import Workload

MACHINES_A_JOB = 3
"""With fewer than so many machines for each job, machines are divided by accelerator."""


@dataclass(frozen=True)
class Pools:
    """Pools (P), each region's one after another, and what each of J jobs may use of one machine of each."""

    machines: tuple[tuple[Machine, ...], ...]
    regions: tuple[str, ...]
    region_P: Ints
    total_P: Ints
    """Accelerators of each pool, without what is left of a machine in whole workers of any job."""
    quantum_JP: Ints
    """Accelerators that come to a job together, in the last row to nobody: whole machines, or the job's workers, where
    machines are few or one has more of the speed than is a job's equal part."""
    each_J: tuple[int, ...]
    """Accelerators of a job's worker; in the end those that nobody has are counted by."""
    usable_JP: Ints
    """Accelerators of one machine that a job's pods may hold."""
    most_JP: Ints
    """Accelerators of each pool that a job may have."""

    def largest_first(self, jobs: Sequence[int]) -> list[int]:
        """The jobs with the largest workers first: where there is little room, the others fit into what is left."""
        return sorted(jobs, key=lambda job: -self.each_J[job])

    @classmethod
    def of(cls, workloads: Sequence[Workload], topology: Topology) -> Pools:
        """The pools of all machines that some workload may use."""
        groups: dict[tuple[object, ...], list[Machine]] = {}
        for machine in topology.machines:
            usable = tuple(usable_by(workload, machine) for workload in workloads)
            if any(usable):
                groups.setdefault((machine.region, usable, *_figures(workloads, machine)), []).append(machine)
        regions = tuple(dict.fromkeys(machine.region for machine in topology.machines))
        number = {region: n for n, region in enumerate(regions)}
        keys = sorted(groups, key=lambda key: (number[str(key[0])], -(groups[key][0].flops_per_s or 0.0)))
        machines = tuple(tuple(groups[key]) for key in keys)
        usable_JP = np.array([key[1] for key in keys], np.int64).reshape(len(keys), len(workloads)).T.copy()
        each_J = [workload.accelerators_per_worker for workload in workloads]
        common = math.gcd(*each_J)
        each_J.append(common)
        size_P = np.array([members[0].num_accelerators // common * common for members in machines], np.int64)
        num_P = np.array([len(members) for members in machines], np.int64)
        are_many = num_P.sum() >= MACHINES_A_JOB * len(workloads)
        speed_JP = usable_JP * _speeds(workloads, topology, [members[0].name for members in machines])
        is_part_JP = len(workloads) * speed_JP <= (speed_JP @ num_P)[:, None]
        is_whole_P = (is_part_JP & ((usable_JP == 0) | (usable_JP == size_P))).all(axis=0)
        return cls(
            machines=machines,
            regions=regions,
            region_P=np.array([number[members[0].region] for members in machines], np.int64),
            total_P=size_P * num_P,
            quantum_JP=np.where(is_whole_P & are_many, size_P, np.minimum(size_P, np.array(each_J)[:, None])),
            each_J=tuple(each_J),
            usable_JP=usable_JP,
            most_JP=usable_JP * num_P,
        )


def usable_by(workload: Workload, machine: Machine) -> int:
    """Accelerators of a machine that a workload's pods may hold: those of whole workers."""
    if machine.name not in workload.candidates or (workload.regions and machine.region not in workload.regions):
        return 0
    return slots(workload, machine) * workload.accelerators_per_worker


def _speeds(workloads: Sequence[Workload], topology: Topology, names: Sequence[str]) -> Floats:
    """FLOP/s of one accelerator of each machine with each workload, (J, machines)."""
    known = [kinds_of(workload, topology, names) for workload in workloads]
    return np.array([[speeds.kinds[kind].flops_per_s for kind in speeds.kind_of] for speeds in known])


def _figures(workloads: Sequence[Workload], machine: Machine) -> tuple[object, ...]:
    """All in which two machines of a pool are alike beside their region."""
    measured = tuple(workload.flops_per_s.get(machine.name) for workload in workloads)
    likely = tuple(workload.likely_flops_per_s.get(machine.name) for workload in workloads)
    batches = tuple(workload.measured_micro_batch.get(machine.name) for workload in workloads)
    pinned = tuple(pin.allows(machine) for workload in workloads for pin in workload.layer_pins)
    own = replace(machine, name="-", region="-", zone="")
    return (own, measured, likely, batches, pinned)


def assign(pools: Pools, counts_JP: Ints) -> list[dict[str, int]]:
    """Accelerators of each machine for each job, in whole workers: the largest workers first, then whole machines, and
    what is left over where it fits best."""
    given: list[dict[str, int]] = [{} for _ in counts_JP]
    for pool, members in enumerate(pools.machines):
        left = [machine.num_accelerators for machine in members]
        usable_J = pools.usable_JP[:, pool]
        blocks = [
            (int(min(usable_J[job], count - done)), job)
            for job, count in enumerate(counts_JP[:, pool].tolist())
            for done in range(0, count, max(1, int(usable_J[job])))
        ]
        for size, job in sorted(blocks, key=lambda block: (-pools.each_J[block[1]], -block[0], block[1])):
            names, each = [machine.name for machine in members], pools.each_J[job]
            _take(given[job], names, left, size // each * each, int(usable_J[job]), each)
    return given


def _take(given: dict[str, int], names: Sequence[str], left: list[int], size: int, usable: int, each: int) -> None:
    """Take a block from the machine that it leaves least of; from several, in whole workers, where it fits none."""
    while size > 0:
        room = [min(free, usable - given.get(name, 0)) for name, free in zip(names, left, strict=True)]
        fitting = [(left[n], n) for n in range(len(names)) if room[n] >= size]
        n = min(fitting)[1] if fitting else max(range(len(names)), key=lambda k: (room[k], -k))
        part = min(size, room[n]) // each * each
        if part <= 0:
            return
        given[names[n]] = given.get(names[n], 0) + part
        left[n] -= part
        size -= part
