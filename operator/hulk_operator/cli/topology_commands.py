"""`hulk topology`: the links of the cluster as measured; `hulk topology import`: a file of the Hulk paper's data."""

from pathlib import Path
from typing import Annotated

import typer

from hulk_operator import names
from hulk_operator.cli import tables
from hulk_operator.cli.cluster_reads import Target
from hulk_operator.cli.options import HELP, PLAIN, Context, Format, Kubeconfig, run
from hulk_operator.cli.output import Output, emit
from hulk_operator.cli.topology import measured_topology

topology_app = typer.Typer(invoke_without_command=True, context_settings=HELP, **PLAIN)


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
    from hulk_placement.files.hulk_data import import_hulk
    from hulk_placement.topology import is_positive

    from hulk_operator.cli import planner_files

    if bandwidth_mbits is not None and not is_positive(bandwidth_mbits):
        raise ValueError(f"--bandwidth-mbits {bandwidth_mbits} must be > 0 and finite")
    planner_files.write_imported(import_hulk(hulk, bandwidth_mbits, accelerators), output)
