"""What compiled code is made of is what its cache goes by."""

from __future__ import annotations

import ast
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
