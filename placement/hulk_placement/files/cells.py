"""The machines of a plan document, with its shorthands, -> workers in rank order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from hulk_placement.files.plan import PlanFile
from hulk_placement.plan import WorkerSlot
from hulk_placement.topology import Topology

MAX_CELLS = 1 << 20
_TIMES = re.compile(r"(?P<name>.*\S) x (?P<times>[1-9]\d*)")
_RANGE = re.compile(r"(?P<before>.*)\[(?P<first>\d+)-(?P<last>\d+)\](?P<after>.*)")


def workers_of(document: PlanFile, topology: Topology) -> tuple[WorkerSlot, ...]:
    """The workers. ValueError with each mistake in a line: cells that are no layout, machines that do not exist."""
    known = {machine.name: machine.region for machine in topology.machines}
    asked = machines_of(document, known)
    unknown = dict.fromkeys(name for name, _ in asked if name not in known)
    if unknown:
        raise ValueError(f"no such machine in the topology: {', '.join(unknown)}")
    return tuple(WorkerSlot(name, known[name], num_accelerators) for name, num_accelerators in asked)


def machines_of(document: PlanFile, known: Iterable[str]) -> list[tuple[str, int]]:
    """The machine and the accelerators of every worker, whether there is such a machine or not."""
    if document.workers is not None:
        return [(worker.machine, worker.accelerators) for worker in document.workers]
    return [(name, document.layout.tensor * document.layout.shard) for name in _cells(document, known)]


def _cells(document: PlanFile, known: Iterable[str]) -> list[str]:
    """The machine of every cell, (replica, stage). ValueError where there are not as many as the layout has."""
    data, pipeline = document.layout.data, document.layout.pipeline
    if document.replicas is None:
        cells = list(expand(document.machines or (), known))
        if len(cells) != data * pipeline:
            raise ValueError(f"machines: {len(cells)} cells for {data} replicas of {pipeline} stages")
        return cells
    if len(document.replicas) != data:
        raise ValueError(f"replicas: {len(document.replicas)}, of a layout with {data}")
    replicas = [list(expand(names, known)) for names in document.replicas]
    for number, cells in enumerate(replicas):
        if len(cells) != pipeline:
            raise ValueError(f"replicas[{number}]: {len(cells)} cells for {pipeline} stages")
    return [cell for cells in replicas for cell in cells]


def expand(names: Iterable[str], known: Iterable[str] = ()) -> Iterator[str]:
    """The names with their shorthands written out; one that is in `known` stands for itself.

    ValueError for a shorthand of more than MAX_CELLS.

    >>> list(expand(["a", "gpu-[8-10]", "b x 2"]))
    ['a', 'gpu-8', 'gpu-9', 'gpu-10', 'b', 'b']
    """
    exact = frozenset(known)
    for name in names:
        times = None if name in exact else _TIMES.fullmatch(name)
        one = times["name"] if times else name
        span = None if one in exact else _RANGE.fullmatch(one)
        numbers = range(int(span["first"]), int(span["last"]) + 1) if span else range(1)
        num_each = int(times["times"]) if times else 1
        num_cells = max(0, numbers.stop - numbers.start) * num_each
        if num_cells > MAX_CELLS:
            raise ValueError(f"{name!r} stands for {num_cells} cells, at most {MAX_CELLS}")
        for number in numbers:
            yield from [f"{span['before']}{number}{span['after']}" if span else one] * num_each
