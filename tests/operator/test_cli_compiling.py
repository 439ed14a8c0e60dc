"""The first plan after an installation compiles for minutes: that is said, on stderr, and only then."""

import os
import subprocess
import sys
from pathlib import Path

from hulk_placement.split.warm import warm

EXAMPLES = Path(__file__).parents[2] / "examples" / "planner"
PLAN = ("plan", "-t", EXAMPLES / "topology.yaml", "-w", EXAMPLES / "workload.yaml", "-o", "json")
SAID = "hulk: note: compiling the planner, once per installation, takes some minutes\n"


def hulk(folder: str | None) -> "subprocess.Popen[str]":
    """`hulk plan` with the folder for what is compiled, in a process of its own."""
    places = {} if folder is None else {"HULK_COMPILED_DIR": folder}
    command = [sys.executable, "-c", "from hulk_operator.cli import main; main()", *map(str, PLAN)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, **places}, **streams)  # type: ignore[call-overload, no-any-return]


def test_it_is_said_before_anything_is_compiled(tmp_path: Path) -> None:
    with hulk(str(tmp_path)) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        assert SAID in process.stderr  # line by line, as far as that one
        process.kill()
        assert process.stdout.read() == ""


def test_it_is_not_said_where_everything_is_compiled_already() -> None:
    warm()
    with hulk(None) as process:
        printed, notes = process.communicate()
    assert process.returncode == 0
    assert printed.startswith("{")
    assert SAID not in notes
