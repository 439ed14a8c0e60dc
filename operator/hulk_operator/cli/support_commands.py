"""`hulk support-bundle`: a file for whoever helps to find a fault."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from hulk_operator import names
from hulk_operator.cli.cluster_reads import Target, cluster_of
from hulk_operator.cli.options import Context, Kubeconfig, Namespace, run
from hulk_operator.support.archive import ADVICE, Bundle
from hulk_operator.support.collect import Wanted, collect


def support_bundle(
    jobs: Annotated[list[str] | None, typer.Argument(help="HulkJobs whose workers' logs are in it as well.")] = None,
    namespace: Namespace = None,
    system_namespace: Annotated[
        str, typer.Option("--system-namespace", help="Where Hulk is installed.")
    ] = names.DEFAULT_NAMESPACE,
    log_lines: Annotated[int, typer.Option("--log-lines", min=1, help="Of each log, the last lines.")] = 2000,
    file: Annotated[
        Path | None, typer.Option("--file", help="Where to write it. Default: hulk-support-TIME.tar.gz here.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Write objects, events, logs, metrics and versions into a tar.gz, without Secrets and values of environments."""
    now, target = datetime.now(UTC), Target(kubeconfig, context)
    path = file or Path(f"hulk-support-{now:%Y%m%d-%H%M%S}.tar.gz")
    if path.exists():
        raise ValueError(f"{path} exists")
    wanted = Wanted(system_namespace, namespace or target.namespace, tuple(jobs or ()), log_lines)
    bundle = Bundle(path, now)
    run(_write(target, bundle, wanted))
    print(f"{path}: {len(bundle.files)} files, {path.stat().st_size / 1e6:.1f} MB")
    if bundle.missing:
        print("not in it:", *(f"  {one['what']}: {one['reason']}" for one in bundle.missing), sep="\n")
    print(ADVICE)


async def _write(target: Target, bundle: Bundle, wanted: Wanted) -> None:
    async with cluster_of(target) as cluster:
        with bundle:
            await collect(cluster, bundle, wanted)
