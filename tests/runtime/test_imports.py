"""What an init container brings into any image imports nothing that the image may lack, or have otherwise."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import hulk_runtime

ROOT = Path(hulk_runtime.__file__).parents[1]
ENTRIES = (
    "hulk_runtime.collective.backend",
    "hulk_runtime.instrumentation.sitecustomize",
    "hulk_runtime.sharded_checkpoints.checkpointer",
    "hulk.lightning",
    "hulk.pytorch_lightning",
)
CIPHERS = "hulk_runtime.collective.wire.ciphers"
"""Alone imports cryptography, by a name that it makes up."""
EVERYWHERE = sys.stdlib_module_names | {"torch", "fsspec"}
"""Torch itself requires fsspec."""
OURS = {"hulk", "hulk_runtime"}
OF_THE_PROGRAM = {
    "hulk.hf": {"transformers"},
    "hulk.lightning": {"lightning"},
    "hulk.pytorch_lightning": {"pytorch_lightning"},
}
"""What is imported only where the program has imported it before."""


def source(module: str) -> Path | None:
    """The file of one of Hulk's modules; None for any other, and for what is no module."""
    path = ROOT.joinpath(*module.split("."))
    found = (path / "__init__.py", path.with_suffix(".py"))
    return next((file for file in found if module.split(".")[0] in OURS and file.exists()), None)


def imported(tree: ast.AST) -> Iterator[str]:
    """By any statement that runs: those of functions as well, not those for type checkers alone."""
    if isinstance(tree, ast.Import):
        yield from (alias.name for alias in tree.names)
    elif isinstance(tree, ast.ImportFrom):
        assert tree.level == 0
        assert tree.module
        yield tree.module
        yield from (name for alias in tree.names if source(name := f"{tree.module}.{alias.name}"))
    is_for_checkers = isinstance(tree, ast.If) and isinstance(tree.test, ast.Name) and tree.test.id == "TYPE_CHECKING"
    for child in tree.orelse if is_for_checkers else ast.iter_child_nodes(tree):
        yield from imported(child)


def closure() -> dict[str, set[str]]:
    """Each of Hulk's modules that the entries need, and what it imports."""
    found: dict[str, set[str]] = {}
    ahead = list(ENTRIES)
    while ahead:
        module = ahead.pop()
        file = source(module)
        if file is not None and module not in found:
            found[module] = set(imported(ast.parse(file.read_text())))
            ahead += [*found[module], module.rpartition(".")[0]]
    return found


def test_only_the_standard_library_and_torch_are_imported() -> None:
    modules = closure()
    assert {"hulk_runtime.plan.wire", "hulk_runtime.collective.loop.engine", CIPHERS} <= modules.keys()
    foreign = {
        module: others
        for module, names in modules.items()
        if (others := {name for name in names if name.split(".")[0] not in EVERYWHERE | OURS})
    }
    assert foreign == {
        module: {name for name in modules[module] if name.split(".")[0] in others}
        for module, others in OF_THE_PROGRAM.items()
    }


def test_no_tensor_is_handed_to_numpy() -> None:
    """Torch itself imports numpy for it."""
    asks = [
        module
        for module in closure()
        for node in ast.walk(ast.parse(source(module).read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("numpy", "from_numpy")
    ]
    assert asks == []


def test_every_file_is_one_that_python_3_10_reads() -> None:
    for module in closure():
        ast.parse(source(module).read_text(), feature_version=(3, 10))
