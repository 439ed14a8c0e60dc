"""`hulk gnn train`: makes the weights of the planner's value network again."""

from pathlib import Path
from typing import Annotated

import typer

from hulk_operator.cli.options import HELP, PLAIN
from hulk_operator.cli.output import note

gnn_app = typer.Typer(help="The planner's value network.", no_args_is_help=True, context_settings=HELP, **PLAIN)


@gnn_app.command()
def train(
    seed: Annotated[int, typer.Option(help="What problems are drawn by.")] = 0,
    problems: Annotated[int, typer.Option(min=20, help="How many are drawn.")] = 600,
    workers: Annotated[int, typer.Option(min=1, help="Processes that search them.")] = 2,
    folder: Annotated[Path, typer.Option("--out", help="Where the weights are written.")] = Path("weights"),
) -> None:
    """Train the value network on synthetic clusters; needs the extra gnn (torch and torch_geometric)."""
    try:
        from hulk_placement.gnn.training.train import train as train_network
    except ModuleNotFoundError as error:
        raise ValueError(f"training needs {error.name}: pip install 'hulk-operator[gnn]'") from error
    train_network(seed, problems, folder, workers, tell=note)
