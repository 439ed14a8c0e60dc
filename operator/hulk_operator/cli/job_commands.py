"""`hulk status`, `hulk explain` and `hulk logs`: how a job of the cluster is."""

from typing import Annotated

import typer

from hulk_operator.cli.cluster_reads import Target
from hulk_operator.cli.job_state import follow_logs, job_status
from hulk_operator.cli.options import Context, Details, Format, Job, Kubeconfig, Namespace, run
from hulk_operator.cli.output import Output, emit


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


def explain(
    job: Job,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    details: Details = False,
    output: Format = Output.TABLE,
) -> None:
    """Show a job's plan, with --details worker by worker and with the links it uses, and how the prediction holds."""
    from hulk_operator.cli.explain import explain_job

    target = Target(kubeconfig, context)
    document, people = run(explain_job(job, namespace or target.namespace, target, details))
    emit(document, people, output)


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
