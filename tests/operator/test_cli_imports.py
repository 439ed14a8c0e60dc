"""A command imports what it needs when it runs: `--help` neither the planner nor a client, `status` no planner."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer
from hulk_operator.cli.app import COMMANDS

PLANNER = {"hulk_native", "ortools", "pandas", "scipy", "torch"}
CLIENT = {"aiohttp", "kubernetes", "pydantic", "numpy", "highspy", "rich", "yaml", "jinja2"}
MOST_MODULES_FOR_HELP = 250
"""Python itself and typer are some 190 of them."""

RUN = """
import sys
from hulk_operator.cli import main
sys.argv = ["hulk", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    print(f"code {ended.code}", file=sys.stderr)
print("modules", *sorted(sys.modules), file=sys.stderr)
"""


def loaded(*arguments: str, **environment: str) -> tuple[str, set[str]]:
    """What a command prints, and the modules that it loads."""
    command = [sys.executable, "-c", RUN, *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    last = done.stderr.splitlines()[-1].split()
    assert last[0] == "modules"
    return done.stdout, set(last[1:])


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)])
def test_help_loads_next_to_nothing(arguments: tuple[str, ...]) -> None:
    printed, modules = loaded(*arguments)
    assert printed
    assert not modules & (PLANNER | CLIENT)
    assert len(modules) < MOST_MODULES_FOR_HELP, sorted(modules)


def test_names_of_commands_are_completed_without_loading_them() -> None:
    environment = {"_HULK_COMPLETE": "complete_bash", "COMP_WORDS": "hulk s", "COMP_CWORD": "1"}
    printed, modules = loaded(**environment)
    assert printed.split() == ["schedule", "status", "support-bundle"]
    assert not modules & (PLANNER | CLIENT - {"rich", "pydantic"})  # by which typer cleans help and reads options


def test_options_of_a_command_are_completed() -> None:
    environment = {"_HULK_COMPLETE": "complete_bash", "COMP_WORDS": "hulk logs --fo", "COMP_CWORD": "2"}
    assert loaded(**environment)[0].split() == ["--follow"]


def test_a_plan_from_files_loads_no_client_and_no_constraint_solver() -> None:
    examples = Path(__file__).parents[2] / "examples"
    job, topology = str(examples / "hulkjob.yaml"), str(examples / "topology.yaml")
    printed, modules = loaded("plan", "-f", job, "--topology", topology, KUBECONFIG="/does/not/exist")
    assert "predicted" in printed
    assert "hulk_operator.cli.plan_sources" in modules
    unneeded = {"aiohttp", "jinja2", "kubernetes", "ortools", "pandas", "requests", "torch"}
    assert not modules & (unneeded | {"hulk_operator.reconcile", "hulk_operator.probing", "hulk_operator.planning"})


@pytest.mark.parametrize("arguments", [("status", "one"), ("logs", "one"), ("topology",)])
def test_what_reads_the_cluster_loads_no_planner(arguments: tuple[str, ...]) -> None:
    _, modules = loaded(*arguments, KUBECONFIG="/does/not/exist")
    assert {"hulk_operator.cli.job_state", "hulk_operator.cli.topology"} & modules
    assert not modules & (PLANNER | {"numpy", "highspy", "jinja2"})


def test_what_explains_a_plan_loads_no_search() -> None:
    _, modules = loaded("explain", "one", KUBECONFIG="/does/not/exist")
    assert "hulk_operator.cli.explain" in modules
    assert not modules & PLANNER


def test_every_command_is_where_the_list_says() -> None:
    for name, command in COMMANDS.items():
        found = getattr(import_module(f"hulk_operator.cli.{command.module}"), command.attribute)
        assert isinstance(found, typer.Typer) or found.__doc__, name
        assert f"\n  {name} " in loaded("--help")[0]
