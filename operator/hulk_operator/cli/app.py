"""The commands of `hulk`, each a few lines: read, make a report, print it. Errors are one sentence and exit code 1."""

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.text import Text

from hulk_operator import VERSION, names
from hulk_operator.api.crds import crds as all_crds
from hulk_operator.api.generate import to_yaml
from hulk_operator.cli import files, tables
from hulk_operator.cli.commands import explain_job, follow_logs, job_status, measured_topology, plans_of
from hulk_operator.cli.live import Target
from hulk_operator.cli.output import Output, emit
from hulk_operator.cluster import ClusterError

T = TypeVar("T")
app = typer.Typer(
    help="Plans, shows and explains training jobs across regions. No command changes anything in the cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Job = Annotated[str, typer.Argument(help="Name of the HulkJob.")]
Namespace = Annotated[
    str | None, typer.Option("-n", "--namespace", help="Namespace of the job. Default: the context's.")
]
Kubeconfig = Annotated[Path | None, typer.Option("--kubeconfig", help="Default: $KUBECONFIG or ~/.kube/config.")]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig. Default: its current one.")]
Format = Annotated[Output, typer.Option("-o", "--output", help="table for people, json or yaml for programs.")]


@app.command()
def plan(
    file: Annotated[list[Path], typer.Option("-f", "--filename", help="HulkJobs (and ConfigMaps); - is stdin.")],
    topology: Annotated[
        Path | None, typer.Option(help="HulkTopology; with spec.nodes the plan needs no cluster.")
    ] = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Format = Output.TABLE,
) -> None:
    """Print the plan of jobs and why, creating nothing: from files alone, or for the cluster as it is now."""
    target = Target(kubeconfig, context)
    documents = files.read(file, topology, sys.stdin, namespace or target.namespace)
    if not documents.jobs:
        raise ValueError(f"no HulkJob in {', '.join(map(str, file))}")
    report = run(plans_of(documents, target))
    emit(report.wire(), tables.plans(report), output)
    if not all(job.planned for job in report.jobs):
        raise typer.Exit(1)


@app.command()
def status(
    job: Annotated[str | None, typer.Argument(help="Name of the HulkJob; absent = all.")] = None,
    namespace: Namespace = None,
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="Jobs of every namespace.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Format = Output.TABLE,
) -> None:
    """Show where a job is: step, loss, predicted beside observed step time, failures, conditions."""
    if all_namespaces and (job or namespace):
        raise ValueError("-A shows the jobs of every namespace: it goes with neither a job's name nor -n")
    target = Target(kubeconfig, context)
    document, people = run(job_status(job, None if all_namespaces else namespace or target.namespace, target))
    emit(document, people, output)


@app.command()
def explain(
    job: Job,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Format = Output.TABLE,
) -> None:
    """Show a job's plan worker by worker, the links it uses, and how the prediction holds."""
    target = Target(kubeconfig, context)
    document, people = run(explain_job(job, namespace or target.namespace, target))
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


@app.command()
def topology(
    resource: Annotated[str, typer.Option(help="Resource that counts accelerators.")] = names.DEFAULT_RESOURCE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Format = Output.TABLE,
) -> None:
    """Print the links between regions as measured, and the nodes of each region."""
    report = run(measured_topology(resource, Target(kubeconfig, context)))
    emit(report.wire(), tables.topology(report), output)


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
        app()
    except (ClusterError, ValueError, OSError) as error:
        raise SystemExit(f"hulk: {error}") from None
