"""`hulk`, also `kubectl hulk`: which commands there are. Each is imported when it runs, and nothing before it.

A command's module loads what it needs: `hulk status` no planner, `hulk --help` not even a client of Kubernetes. Errors
are one sentence and exit code 1.
"""

from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperGroup

from hulk_operator import version
from hulk_operator.cli.options import HELP, PLAIN


class Command(NamedTuple):
    """Where a command or a group of commands is, and what it does in one line."""

    module: str
    attribute: str
    help: str


COMMANDS: Final = {
    "plan": Command("plan_commands", "plan", "Print the plan of jobs and why, creating nothing."),
    "predict": Command("plan_commands", "predict", "Predict the step of a given plan."),
    "schedule": Command("schedule", "schedule", "Find and draw the order of a pipeline's blocks."),
    "status": Command("job_commands", "status", "Show how jobs and sweeps are."),
    "explain": Command("job_commands", "explain", "Show a job's plan and how its prediction holds."),
    "logs": Command("job_commands", "logs", "Print the log of one worker."),
    "topology": Command("topology_commands", "topology_app", "Print the links between regions as measured."),
    "support-bundle": Command("support_commands", "support_bundle", "Collect what helps to find a fault into a file."),
    "export": Command("export_commands", "export_app", "Print regions and zones for Kueue or Volcano."),
    "crds": Command("api_commands", "crds", "Print the CustomResourceDefinitions."),
    "version": Command("api_commands", "version", "Print the version of this program and of its API."),
}


class LazyGroup(TyperGroup):
    """Lists commands by what `COMMANDS` says of them, and imports the one that runs or whose options are completed."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The named command itself, in place of the entry that stands for it in lists."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed if name is None else load(name), rest


def load(name: str) -> Any:
    """The command or group of this name, imported."""
    command = COMMANDS[name]
    found = getattr(import_module(f"hulk_operator.cli.{command.module}"), command.attribute)
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    alone = typer.Typer(**PLAIN)
    alone.command(name, context_settings=HELP)(found)
    return typer.main.get_command(alone)


def _version(asked: bool) -> None:
    if asked:
        print(f"hulk {version()}")
        raise typer.Exit


app = typer.Typer(
    cls=LazyGroup,
    help="Plans, shows and explains training jobs across regions. No command changes anything in the cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=HELP,
)


@app.callback()
def hulk(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Plans, shows and explains training jobs across regions. No command changes anything in the cluster."""


for _name, _command_of in COMMANDS.items():
    app.command(_name, help=_command_of.help)(lambda: None)


def main() -> None:
    """Entry point of `hulk` and `kubectl-hulk`."""
    from hulk_operator.cluster.errors import ClusterError

    try:
        app()
    except (ClusterError, ValueError, OSError) as error:
        raise SystemExit(f"hulk: {error}") from None
