"""`kubectl hulk`: kubectl finds the program `kubectl-hulk` in PATH, beside `hulk`, and hands everything on to it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hulk_lab.builds.golang import program

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = Path(sys.executable).parent


def run(*command: str | Path, path: str = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}") -> tuple[int, str, str]:
    environment = {**os.environ, "PATH": path, "KUBECONFIG": "/does/not/exist"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def kubectl() -> Path:
    """The lab's own kubectl."""
    path = program("kubectl")
    if not path.exists():
        pytest.fail(f"{path} is not built yet: run `make tools` and then `.venv/bin/hulk-lab build`", pytrace=False)
    return path


def test_kubectl_lists_the_plugin(kubectl: Path) -> None:
    code, printed, said = run(kubectl, "plugin", "list", path=str(PROGRAMS))
    assert code == 0, said
    assert str(PROGRAMS / "kubectl-hulk") in printed.splitlines()


def test_kubectl_hulk_plans_as_hulk_does(kubectl: Path) -> None:
    arguments = ("plan", "-f", EXAMPLES / "hulkjob.yaml", "--topology", EXAMPLES / "topology.yaml", "-o", "json")
    code, printed, said = run(kubectl, "hulk", *arguments)
    assert code == 0, said
    assert (code, printed, said) == run(PROGRAMS / "hulk", *arguments)


def test_kubectl_hulk_fails_as_hulk_does(kubectl: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").touch()
    code, printed, said = run(kubectl, "hulk", "plan", "-f", tmp_path / "empty.yaml")
    assert (code, printed) == (1, "")
    assert "no HulkJob in" in said
