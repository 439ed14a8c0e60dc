"""What compiled code is made of is what its cache goes by."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import hulk_placement
from hulk_placement.compiled import sources

ROOT = Path(hulk_placement.__file__).parent


def test_all_that_files_with_compiled_code_import_is_a_source() -> None:
    """However the import is written, over several lines too."""
    found = set(sources())
    compiled = [path for path in found if "@compiled" in path.read_text() and path.name != "compiled.py"]
    assert len(compiled) > 10
    for path in compiled:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hulk_placement."):
                there = ROOT.joinpath(*(node.module or "").split(".")[1:])
                module = there / "__init__.py" if there.is_dir() else there.with_suffix(".py")
                assert module in found, f"{path.name} imports {node.module}"
                inside = {there / f"{alias.name}.py" for alias in node.names}
                assert {each for each in inside if each.exists()} <= found


def test_what_is_compiled_is_announced_once_and_what_the_cache_has_is_not(tmp_path: Path) -> None:
    """Two functions: the first process compiles both, the next one neither."""
    program = tmp_path / "program.py"
    program.write_text(
        "from hulk_placement.compiled import announced, compiled\n"
        "once, twice = compiled(lambda x: x), compiled(lambda x: 2 * x)\n"
        "with announced(lambda: print('compiling')):\n"
        "    print(once(3), twice(3))\n"
    )
    there = {**os.environ, "HULK_COMPILED_DIR": str(tmp_path)}
    printed = [
        subprocess.run([sys.executable, program], env=there, check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    ]
    assert printed == ["compiling\n3 6\n", "3 6\n"]


def test_another_checkout_of_the_same_code_finds_what_this_one_compiled(tmp_path: Path) -> None:
    program = (
        "from hulk_placement.compiled import announced\n"
        "from hulk_placement.cost import windows\n"
        "with announced(lambda: print('compiling')):\n"
        "    print(windows.__file__, windows.packets_of(1e6))\n"
    )
    printed = []
    for name in ("one", "other"):
        shutil.copytree(ROOT, tmp_path / name / "hulk_placement", ignore=shutil.ignore_patterns("__pycache__"))
        there = {**os.environ, "HULK_COMPILED_DIR": str(tmp_path), "PYTHONPATH": str(tmp_path / name)}
        done = subprocess.run([sys.executable, "-c", program], env=there, check=True, capture_output=True, text=True)
        assert str(tmp_path / name) in done.stdout
        printed.append("compiling" in done.stdout)
    assert printed == [True, False]
