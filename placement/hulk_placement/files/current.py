"""A plan document of a plan that is carried out -> the plan and what it was made of, though machines may be lost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from hulk_placement.basis import Basis
from hulk_placement.files.basis import parse_basis
from hulk_placement.files.cells import machines_of
from hulk_placement.files.plan import PlanFile
from hulk_placement.files.plan_reading import read_document, to_unchecked_plan
from hulk_placement.plan import Plan
from hulk_placement.topology import Machine, Topology
from hulk_placement.workload import Workload

GONE = "unknown"
"""The region of a machine that is lost, and of which nothing more is known."""


@dataclass(frozen=True, slots=True)
class Current:
    """A plan that is carried out, and what it was made of, where that is known."""

    plan: Plan
    basis: Basis | None


def read_current(path: Path, workload: Workload, topology: Topology) -> Current:
    """The plan in a file, not predicted. ValueError where the file holds none; lost machines are no mistake."""
    document = read_document(path)
    basis = None if document.made_of is None else parse_basis(document.made_of, f"{path}: madeOf")
    known = {machine.name for machine in topology.machines}
    try:
        lost = replace(topology, machines=(*topology.machines, *_lost(document, basis, known)))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return Current(to_unchecked_plan(document, workload, lost, str(path)), basis)


def _lost(document: PlanFile, basis: Basis | None, known: set[str]) -> list[Machine]:
    """The plan's machines that the topology lacks."""
    regions = {} if basis is None else basis.regions
    names = dict.fromkeys(name for name, _ in machines_of(document, known | regions.keys()) if name not in known)
    return [Machine(name, regions.get(name, GONE), num_accelerators=0) for name in names]
