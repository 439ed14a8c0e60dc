"""The commands of `hulk`, each a few lines: read, make a report, print it. Errors are one sentence and exit code 1."""

import asyncio
import math
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import typer
from hulk_placement.compiled import announced
from hulk_placement.files.hulk_data import import_hulk
from hulk_placement.topology import is_positive
from rich.text import Text

from hulk_operator import VERSION, names
from hulk_operator.api.crds import crds as all_crds
from hulk_operator.api.generate import to_yaml
from hulk_operator.cli import brief, files, planner_files, tables
from hulk_operator.cli.commands import explain_job, follow_logs, job_status, measured_topology, plans_of
from hulk_operator.cli.fleet import fleet_app
from hulk_operator.cli.gnn import gnn_app
from hulk_operator.cli.live import Target
from hulk_operator.cli.output import Output, emit, note
from hulk_operator.cli.predicting import predict_table
from hulk_operator.cli.replanning import replan_table
from hulk_operator.cli.reports import PlanReports
from hulk_operator.cli.schedule import schedule
from hulk_operator.cli.seeing import Look, look_closer, write_page
from hulk_operator.cluster import ClusterError

T = TypeVar("T")
app = typer.Typer(
    help="Plans, shows and explains training jobs across regions. No command changes anything in the cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
topology_app = typer.Typer(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
app.add_typer(topology_app, name="topology")
app.add_typer(gnn_app, name="gnn")
app.add_typer(fleet_app, name="fleet")

Job = Annotated[str, typer.Argument(help="Name of the HulkJob.")]
Namespace = Annotated[
    str | None, typer.Option("-n", "--namespace", help="Namespace of the job. Default: the context's.")
]
Kubeconfig = Annotated[Path | None, typer.Option("--kubeconfig", help="Default: $KUBECONFIG or ~/.kube/config.")]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig. Default: its current one.")]
Details = Annotated[bool, typer.Option("--details", help="Also memory, flows by size, links and all reasons.")]
Format = Annotated[Output, typer.Option("-o", "--output", help="table for people, json or yaml for programs.")]


TopologyFile = Annotated[
    Path, typer.Option("-t", "--topology", help="Machines and links: kind Topology, or HulkTopology with spec.nodes.")
]


@app.command()
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
    compare: Annotated[
        bool, typer.Option("--compare", help="Run every search, and plan anew for changes that would help.")
    ] = False,
    seconds: Annotated[float, typer.Option(help="Of each search and each new plan of --compare.")] = 1.0,
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
    look = Look(compare, seconds)
    if current is None and (step or held != math.inf):
        raise ValueError("--step and --held are of a plan that is carried out: give it with --from")
    if current is not None:
        if html is not None or compare:
            raise ValueError("--html and --compare are of new plans: they do not go with --from")
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
    emit(report.wire(), tables.plans(report) if details or compare else brief.plans(report), output)
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
        raise ValueError(f"no HulkJob in {', '.join(map(str, file))}")
    report = run(plans_of(documents, target, None if own is None else own.topology))
    return report if own is None else report.model_copy(update={"coordinates": own.coordinates})


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


@app.command()
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


app.command()(schedule)


@app.command()
def status(
    job: Annotated[str | None, typer.Argument(help="Name of the HulkJob or HulkSweep; absent = all of them.")] = None,
    namespace: Namespace = None,
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="Of every namespace.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Format = Output.TABLE,
) -> None:
    """Show where a job is: step, loss, predicted beside observed step time, failures, conditions; a sweep's trials."""
    if all_namespaces and (job or namespace):
        raise ValueError("-A shows the jobs and sweeps of every namespace: it goes with neither a name nor -n")
    target = Target(kubeconfig, context)
    document, people = run(job_status(job, None if all_namespaces else namespace or target.namespace, target))
    emit(document, people, output)


@app.command()
def explain(
    job: Job,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    details: Details = False,
    output: Format = Output.TABLE,
) -> None:
    """Show a job's plan, with --details worker by worker and with the links it uses, and how the prediction holds."""
    target = Target(kubeconfig, context)
    document, people = run(explain_job(job, namespace or target.namespace, target, details))
    emit(document, people, output)


@app.command()
def logs(
    job: Job,
    namespace: Namespace = None,
    worker: Annotated[int, typer.Option("-w", "--worker", min=0, help="Worker; 0 prints step and loss.")] = 0,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the pod ends.")] = False,
    tail: Annotated[int | None, typer.Option(help="Only the last lines.")] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Print the log of one worker of the current attempt; of a failed one, what the job kept of it."""
    target = Target(kubeconfig, context)
    run(follow_logs(job, namespace or target.namespace, worker, follow, tail, target))


@topology_app.callback()
def topology(
    subcommand: typer.Context,
    resource: Annotated[str, typer.Option(help="Resource that counts accelerators.")] = names.DEFAULT_RESOURCE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Format = Output.TABLE,
) -> None:
    """Print the links between regions as measured, and the nodes of each region."""
    if subcommand.invoked_subcommand is None:
        report = run(measured_topology(resource, Target(kubeconfig, context)))
        emit(report.wire(), tables.topology(report), output)


@topology_app.command("import")
def topology_import(
    hulk: Annotated[Path, typer.Option(help="Folder with the Hulk paper's node_feature.csv and edge.txt.")],
    bandwidth_mbits: Annotated[
        float | None, typer.Option(help="Mbit/s to assume of every link; the data have none.")
    ] = None,
    accelerators: Annotated[int, typer.Option(min=1, help="Accelerators of each machine, which share its memory.")] = 1,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File to write; absent = print it.")] = None,
) -> None:
    """Make a topology file of the Hulk paper's own data, and say what is wrong with them."""
    if bandwidth_mbits is not None and not is_positive(bandwidth_mbits):
        raise ValueError(f"--bandwidth-mbits {bandwidth_mbits} must be > 0 and finite")
    planner_files.write_imported(import_hulk(hulk, bandwidth_mbits, accelerators), output)


@app.command()
def crds() -> None:
    """Print the CustomResourceDefinitions, for `kubectl apply --server-side -f -`."""
    print("---\n".join(to_yaml(crd) for crd in all_crds()), end="")


@app.command()
def version(output: Format = Output.TABLE) -> None:
    """Print the version of this program and of the API it knows."""
    found = {"version": VERSION, "api": names.API_VERSION}
    emit(found, Text(f"hulk {found['version']} ({found['api']})"), output)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run one command's I/O."""
    return asyncio.run(work)


def main() -> None:
    """Entry point of `hulk` and `kubectl-hulk`."""
    try:
        with announced(lambda: note("compiling the planner, once per installation, takes some minutes")):
            app()
    except (ClusterError, ValueError, OSError) as error:
        raise SystemExit(f"hulk: {error}") from None
