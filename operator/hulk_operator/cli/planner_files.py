"""The planner's own files (`topology.yaml`, `workload.yaml`, `plan.yaml`) as the commands take them.

A topology may be a HulkTopology as well: its `kind` says which it is. What is odd about a file becomes a note.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from hulk_placement.cost import predict
from hulk_placement.cost.closed_form.pipeline import SCHEDULES
from hulk_placement.files import text
from hulk_placement.files.hulk_data import Imported
from hulk_placement.files.plan_reading import read_plan
from hulk_placement.files.plan_writing import plan_document
from hulk_placement.files.topology import TopologyFile
from hulk_placement.files.topology_reading import ReadTopology, to_topology
from hulk_placement.files.workload_reading import ReadWorkload, read_workload
from hulk_placement.plan import Plan
from hulk_placement.solve import solve
from hulk_placement.topology import Topology

from hulk_operator.cli import files
from hulk_operator.cli.output import note
from hulk_operator.cli.planning import declared_topology, plan_report, refused
from hulk_operator.cli.predicting import PredictReport, predict_report
from hulk_operator.cli.reports import PlanReport, PlanReports


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


def plan_workloads(paths: Sequence[Path], read: ReadTopology) -> tuple[PlanReports, dict[str, Plan]]:
    """Plans of all workloads in the files together, and the reports of them in the files' order."""
    topology = read.topology
    workloads = [read_workload(path, topology).workload for path in paths]
    solution = solve(workloads, (), topology)
    reports: list[PlanReport] = []
    for workload in workloads:
        plan, unplaced = solution.plans.get(workload.key), solution.unplaced.get(workload.key)
        if plan is not None:
            reports.append(plan_report(plan, topology, workload))
        elif unplaced is not None:
            reports.append(refused(workload.key, unplaced.reason, unplaced.message))
    return PlanReports(jobs=tuple(reports), coordinates=dict(read.coordinates)), dict(solution.plans)


def save_plan(plans: dict[str, Plan], path: Path) -> None:
    """Write the plan to a file, for `hulk predict`. ValueError unless there is exactly one."""
    if len(plans) != 1:
        raise ValueError(f"--save writes one plan, and there are {len(plans)}")
    (plan,) = plans.values()
    step = f"# Predicted: {plan.prediction.step_s:.6g} s a step.\n"
    path.write_text(step + text.dump(plan_document(plan)), encoding="utf-8")


def predict_plan(workload_path: Path, plan_path: Path, topology: Topology) -> PredictReport:
    """The prediction of a given plan."""
    workload: ReadWorkload = read_workload(workload_path, topology)
    read = read_plan(plan_path, workload.workload, topology)
    _notes(read.warnings)
    if read.plan.schedule not in SCHEDULES:
        raise ValueError(f"{plan_path}: a schedule {read.plan.schedule} is not predicted; {', '.join(SCHEDULES)} are")
    predicted = replace(read.plan, prediction=predict(read.plan, workload.workload, topology))
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
