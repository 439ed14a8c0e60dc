"""What several commands of `hulk` take, and how their I/O is run."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from hulk_operator.cli.output import Output

T = TypeVar("T")
HELP: Final = {"help_option_names": ["-h", "--help"]}
PLAIN: Final[dict[str, Any]] = {"add_completion": False, "rich_markup_mode": None}
"""Help is plain text: what draws boxes takes a third of a second to import."""

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


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run one command's I/O."""
    return asyncio.run(work)
