"""The planner's own files (`topology.yaml`, `workload.yaml`, `plan.yaml`) as the commands take them.

A topology may be a HulkTopology as well: its `kind` says which it is. What is odd about a file becomes a note.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from hulk_placement.basis import Basis, basis_of
from hulk_placement.cost.foresee import foresee
from hulk_placement.files import text
from hulk_placement.files.current import read_current
from hulk_placement.files.hulk_data import Imported
from hulk_placement.files.plan_reading import read_plan
from hulk_placement.files.plan_writing import plan_document
from hulk_placement.files.topology import TopologyFile
from hulk_placement.files.topology_reading import ReadTopology, to_topology
from hulk_placement.files.workload_reading import ReadWorkload, read_workload
from hulk_placement.plan import Plan
from hulk_placement.replan.answer import Situation
from hulk_placement.replan.decide import Verdict
from hulk_placement.replan.replan import replan
from hulk_placement.solve import solve
from hulk_placement.topology import Topology

from hulk_operator.cli import files
from hulk_operator.cli.output import note
from hulk_operator.cli.plan_reports import declared_topology, plan_report, refused
from hulk_operator.cli.predict import PredictReport, predict_report
from hulk_operator.cli.replan import ReplanReport, replan_report
from hulk_operator.cli.reports import Made, PlanReport, PlanReports


@dataclass(frozen=True, slots=True)
class Kept:
    """A plan to be kept in a file, and what it was made of, where that is known."""

    plan: Plan
    basis: Basis | None


def planner_topology(path: Path) -> ReadTopology | None:
    """The topology in a file of the planner's own kind; None for a file that holds something else."""
    found = text.read_all(path)
    if len(found) != 1 or not isinstance(found[0], dict) or found[0].get("kind") != "Topology":
        return None
    read = to_topology(text.parse(TopologyFile, found[0], str(path)), str(path))
    _notes(read.warnings)
    return read


def any_topology(path: Path, stdin: TextIO) -> ReadTopology:
    """The topology in a file of either kind; a HulkTopology must declare its nodes."""
    found = planner_topology(path)
    if found is not None:
        return found
    declared = files.read([], path, stdin, "default").topology
    assert declared is not None, path
    return ReadTopology(declared_topology(declared), {})


def plan_workloads(paths: Sequence[Path], read: ReadTopology) -> PlanReports:
    """Plans of all workloads in the files together, and the reports of them in the files' order."""
    topology = read.topology
    found = [read_workload(path, topology) for path in paths]
    for each in found:
        _notes(each.warnings)
    workloads = [each.workload for each in found]
    solution = solve(workloads, (), topology)
    reports: list[PlanReport] = []
    for workload in workloads:
        plan, unplaced = solution.plans.get(workload.key), solution.unplaced.get(workload.key)
        if plan is not None:
            reports.append(plan_report(plan, topology, workload))
        elif unplaced is not None:
            reports.append(refused(workload.key, unplaced.reason, unplaced.message))
    return PlanReports(jobs=tuple(reports), coordinates=dict(read.coordinates))


def replan_workload(
    workload_path: Path, plan_path: Path, topology: Topology, num_made: int, held_s: float
) -> tuple[ReplanReport, Kept | None]:
    """Whether to move from the plan in a file, after so many steps; and the plan that is carried out from then on.

    One that goes on keeps what it was made of: what has changed since then is not forgotten before it has lasted.
    """
    read = read_workload(workload_path, topology)
    if read.num_steps is None:
        raise ValueError(f"{workload_path}: training.steps is missing: what a move gains depends on the steps left")
    if num_made > read.num_steps:
        raise ValueError(f"--step {num_made}: the training has only {read.num_steps} steps")
    _notes(read.warnings)
    current = read_current(plan_path, read.workload, topology)
    left = read.num_steps - num_made
    found = replan(current.plan, current.basis, read.workload, topology, Situation(left, held_s, num_made), read.moving)
    report = replan_report(current.plan, found, topology, left)
    if found.verdict is Verdict.MOVE and found.new is not None:
        return report, kept_of(Made(found.new, read.workload, topology))
    return report, None if found.current is None else Kept(found.current, current.basis)


def kept_of(made: Made) -> Kept:
    """A plan that was made now."""
    return Kept(made.plan, basis_of(made.plan, made.workload, made.topology))


def save_plan(kept: Kept, path: Path) -> None:
    """Write the plan to a file, for `hulk predict` and `hulk plan --from`."""
    step = f"# Predicted: {kept.plan.prediction.step_s:.6g} s a step.\n"
    path.write_text(step + text.dump(plan_document(kept.plan, kept.basis)), encoding="utf-8")


def predict_plan(workload_path: Path, plan_path: Path, topology: Topology) -> PredictReport:
    """The prediction of a given plan."""
    workload: ReadWorkload = read_workload(workload_path, topology)
    read = read_plan(plan_path, workload.workload, topology)
    _notes(read.warnings)
    predicted = replace(read.plan, prediction=foresee(read.plan, workload.workload, topology))
    return predict_report(predicted, workload.workload, topology, workload.num_steps)


def write_imported(imported: Imported, path: Path | None) -> None:
    """Write an imported topology to a file, or print it, and note what was odd about the data."""
    _notes(imported.warnings)
    written = text.dump(imported.document)
    if path is None:
        print(written, end="")
    else:
        path.write_text(written, encoding="utf-8")


def _notes(warnings: Sequence[str]) -> None:
    for warning in warnings:
        note(warning)
