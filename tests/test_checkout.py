"""The repository has what it needs: no file of it names a path outside its own checkout."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TEXT = {".py", ".toml", ".yaml", ".sh", ".go", ".rs", ".json", ""}  # "": Makefile, Dockerfile, scripts
ABOVE = re.compile(r"""(?:^|[\s"'=(\[,:])((?:\.\./)+)""", re.MULTILINE)


def climbed(node: ast.AST) -> int | None:
    """Folders between a file and what an expression on its `__file__` names; None for any other expression.

    >>> [climbed(ast.parse(text, mode="eval").body) for text in ("Path(__file__).parent", "x.parent")]
    [1, None]
    >>> climbed(ast.parse("Path(__file__).resolve().parents[1].parent.parent", mode="eval").body)
    4
    """
    match node:
        case ast.Call(func=ast.Name(id="Path"), args=[ast.Name(id="__file__")]):
            return 0
        case ast.Call(func=ast.Attribute(value=value, attr="resolve" | "absolute")):
            return climbed(value)
        case ast.Attribute(value=value, attr="parent"):
            below = climbed(value)
            return None if below is None else below + 1
        case ast.Subscript(value=ast.Attribute(value=value, attr="parents"), slice=ast.Constant(value=int(number))):
            below = climbed(value)
            return None if below is None else below + number + 1
    return None


def leaves(name: Path, text: str) -> list[str]:
    """What a file at this path in the checkout reads outside of it: expressions on `__file__`, and `../` too many."""
    depth = len(name.parts)  # as many steps up lead from the file to the checkout
    found = [f"{name}: {steps}" for steps in ABOVE.findall(text) if len(steps) // 3 >= depth]
    if name.suffix == ".py":
        tree = ast.parse(text)
        climbs = ((node, climbed(node)) for node in ast.walk(tree))
        found += [f"{name}: {ast.unparse(node)}" for node, steps in climbs if steps is not None and steps > depth]
        loops = (node.iter for node in ast.walk(tree) if isinstance(node, ast.For | ast.comprehension))
        found += [f"{name}: any of {ast.unparse(walk)}" for walk in loops if _all_parents(walk)]
    return found


def _all_parents(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "parents" and climbed(node.value) is not None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bench/a.py", 'X = Path(__file__).parents[1].parent / "data"'),
        ("bench/b/a.py", 'X = Path(__file__).resolve().parents[3] / "data"'),
        ("bench/a.py", "X = next(p for p in Path(__file__).resolve().parents if p)"),
        ("bench/a.py", 'X = "../../data.csv"'),
        ("Makefile", "\tcp ../data.csv ."),
        (".ci/run", 'cat "../../data.csv"'),
    ],
)
def test_a_path_out_of_the_checkout_is_found(name: str, text: str) -> None:
    assert leaves(Path(name), text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bench/a.py", 'X = Path(__file__).parents[1] / "lab"'),
        ("bench/b/a.py", "X = Path(__file__).parents[2]"),
        ("tests/chart/a.yaml", "files: [../../charts/hulk]"),
    ],
)
def test_a_path_inside_the_checkout_is_none(name: str, text: str) -> None:
    assert leaves(Path(name), text) == []


def test_nothing_reads_outside_the_checkout(repository: Path) -> None:
    names = [name.relative_to(repository) for name in _files(repository)]
    assert Path("bench/data/__init__.py") in names
    assert [line for name in names for line in leaves(name, (repository / name).read_text())] == []


def _files(repository: Path) -> list[Path]:
    """Text files of the repository, also where only its tree was exported; not this one, which has examples."""
    made = {line.strip().strip("/") for line in (repository / ".gitignore").read_text().splitlines()} | {".git"}
    rooms = [path for path in repository.iterdir() if path.name not in made]
    files = [path for room in rooms for path in (room.rglob("*") if room.is_dir() else [room]) if path.is_file()]
    built = [repository / name for name in made if "/" in name]
    kept = [path for path in files if path.suffix in TEXT and not any(map(path.is_relative_to, built))]
    kept = [path for path in kept if "__pycache__" not in path.parts]
    return [path for path in kept if path != Path(__file__)]
