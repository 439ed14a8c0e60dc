"""`hulk plan` and `hulk predict`: plans of jobs that need not run, on machines that need not exist."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from hulk_operator.cli import files, plan_screen, planner_files, tables
from hulk_operator.cli.cluster_reads import Target
from hulk_operator.cli.options import Context, Details, Format, Kubeconfig, Namespace, TopologyFile, run
from hulk_operator.cli.output import Output, emit, note
from hulk_operator.cli.plan_inspection import Look, look_closer, write_page
from hulk_operator.cli.plan_sources import plans_of
from hulk_operator.cli.predict import predict_table
from hulk_operator.cli.replan import replan_table
from hulk_operator.cli.reports import PlanReports
from hulk_operator.cluster import ClusterError


def plan(
    file: Annotated[
        list[Path] | None, typer.Option("-f", "--filename", help="HulkJobs (and ConfigMaps); - is stdin.")
    ] = None,
    workload: Annotated[
        list[Path] | None, typer.Option("-w", "--workload", help="Files of kind Workload, in place of HulkJobs.")
    ] = None,
    topology: Annotated[
        Path | None,
        typer.Option(
            "-t", "--topology", help="Kind Topology, or HulkTopology; with machines in it the plan needs no cluster."
        ),
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Write the plan of the one workload to this file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page that shows the plans to this file.")] = None,
    advise: Annotated[bool, typer.Option("--advise", help="Plan anew for changes that would help.")] = False,
    seconds: Annotated[float, typer.Option(help="Of each new plan of --advise.")] = 1.0,
    current: Annotated[
        Path | None,
        typer.Option("--from", help="Plan that is carried out (kind Plan): say what changed, and whether to move."),
    ] = None,
    step: Annotated[int, typer.Option(min=0, help="With --from: steps that were made already.")] = 0,
    held: Annotated[
        float, typer.Option(min=0, help="With --from: seconds since the change; absent = long ago.", show_default=False)
    ] = math.inf,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    details: Details = False,
    output: Format = Output.TABLE,
) -> None:
    """Print the plan of jobs and why, creating nothing: from files alone, or for the cluster as it is now."""
    if bool(file) == bool(workload):
        raise ValueError("give jobs with -f, or workloads with -w")
    look = Look(advise, seconds)
    if current is None and (step or held != math.inf):
        raise ValueError("--step and --held are of a plan that is carried out: give it with --from")
    if current is not None:
        if html is not None or advise:
            raise ValueError("--html and --advise are of new plans: they do not go with --from")
        _replan(workload or [], topology, save, Running(current, step, held), output, details)
        return
    if workload:
        if save is not None and len(workload) > 1:
            raise ValueError(f"--save writes one plan, and there are {len(workload)}")
        report = _plan_workloads(workload, topology)
    elif save is not None:
        raise ValueError("--save is for workloads (-w)")
    else:
        report = _plan_jobs(file or [], topology, namespace, Target(kubeconfig, context))
    report = look_closer(report, look)
    emit(report.wire(), tables.plans(report) if details or advise else plan_screen.plans(report), output)
    if save is not None:
        _save(report, save)
    if html is not None:
        write_page([job.details for job in report.jobs if job.details is not None], report.coordinates, html)
    if not all(job.planned for job in report.jobs):
        raise typer.Exit(1)


def _plan_jobs(file: list[Path], topology: Path | None, namespace: str | None, target: Target) -> PlanReports:
    own = None if topology is None else planner_files.planner_topology(topology)
    declared = topology if own is None else None
    documents = files.read(file, declared, sys.stdin, namespace or target.namespace)
    if not documents.jobs:
        raise ValueError(f"no HulkJob in {', '.join(map(str, file))}{_instead(documents.other_kinds)}")
    try:
        report = run(plans_of(documents, target, None if own is None else own.topology))
    except ClusterError as error:
        if error.status:
            raise
        hint = f"{error.message}; or plan from files with --topology examples/topology.yaml"
        raise ClusterError(error.status, error.reason, hint) from error
    return report if own is None else report.model_copy(update={"coordinates": own.coordinates})


def _instead(kinds: Sequence[str]) -> str:
    return f" (it holds a {' and a '.join(kinds)}; names are compared in docs/reference/api.md)" if kinds else ""


def _plan_workloads(paths: list[Path], topology: Path | None) -> PlanReports:
    if topology is None:
        raise ValueError("workloads (-w) are planned on a topology: give one with -t")
    return planner_files.plan_workloads(paths, planner_files.any_topology(topology, sys.stdin))


def _save(report: PlanReports, path: Path) -> None:
    (job,) = report.jobs
    if job.made is None:
        note(f"--save {path}: there is no plan to write")
    else:
        planner_files.save_plan(planner_files.kept_of(job.made), path)


class Running(NamedTuple):
    """A plan that is carried out, after how many steps, and how long ago the cluster changed."""

    plan: Path
    num_made: int
    held_s: float


def _replan(
    paths: list[Path], topology: Path | None, save: Path | None, running: Running, output: Output, details: bool
) -> None:
    if len(paths) != 1 or topology is None:
        raise ValueError("--from is of one workload (-w) on a topology (-t)")
    now = planner_files.any_topology(topology, sys.stdin).topology
    report, kept = planner_files.replan_workload(paths[0], running.plan, now, running.num_made, running.held_s)
    emit(report.wire(), replan_table(report, details), output)
    if save is not None and kept is not None:
        planner_files.save_plan(kept, save)
    if kept is None:
        raise typer.Exit(1)


def predict(
    topology: TopologyFile,
    workload: Annotated[Path, typer.Option("-w", "--workload", help="Model and training: kind Workload.")],
    plan: Annotated[Path, typer.Option("-p", "--plan", help="Who does what: kind Plan.")],
    html: Annotated[Path | None, typer.Option(help="Write a page that shows the plan to this file.")] = None,
    output: Format = Output.TABLE,
) -> None:
    """Predict a given plan, of machines that need not exist: a step's time, where it goes, memory, price."""
    read = planner_files.any_topology(topology, sys.stdin)
    report = planner_files.predict_plan(workload, plan, read.topology)
    if html is not None:
        write_page([report.details], read.coordinates, html)
    emit(report.wire(), predict_table(report), output)
