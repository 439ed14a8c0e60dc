"""What an init container brought is imported by Hulk alone."""

import importlib
import importlib.util
import sys
import threading
from pathlib import Path

import pytest
from hulk_runtime import dependencies


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hulk's folder has a package, and so has the program, another one."""
    for folder, whose in (("ours", "Hulk's"), ("theirs", "the program's")):
        package = tmp_path / folder / "hulk_test_package"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("from hulk_test_package import inside\n")
        (package / "inside.py").write_text(f"whose = {whose!r}\n")
    monkeypatch.setattr(dependencies, "FOLDER", tmp_path / "ours")
    monkeypatch.syspath_prepend(tmp_path / "theirs")


def owner() -> str:
    return importlib.import_module("hulk_test_package.inside").whose


@pytest.mark.usefixtures("brought")
@pytest.mark.parametrize("has_imported", [True, False])
def test_the_program_finds_its_own_before_and_afterwards(has_imported: bool) -> None:
    path, finders = list(sys.path), list(sys.meta_path)
    theirs = importlib.import_module("hulk_test_package") if has_imported else None
    with dependencies.brought_alone({"hulk_test_package"}):
        assert owner() == "Hulk's"
    assert sys.modules.get("hulk_test_package") is theirs
    assert (sys.path, sys.meta_path) == (path, finders)
    assert owner() == "the program's"
    for name in ("hulk_test_package", "hulk_test_package.inside"):
        del sys.modules[name]


@pytest.mark.usefixtures("brought")
def test_what_cannot_be_imported_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "ours" / "hulk_test_package" / "inside.py").write_text("import hulk_test_missing\n")
    finders = list(sys.meta_path)
    with pytest.raises(ImportError, match="hulk_test_missing"), dependencies.brought_alone({"hulk_test_package"}):
        owner()
    assert not [name for name in sys.modules if name.startswith("hulk_test")]
    assert sys.meta_path == finders


@pytest.mark.usefixtures("brought")
def test_another_thread_does_not_find_it() -> None:
    found: list[object] = []
    with dependencies.brought_alone({"hulk_test_package"}):
        other = threading.Thread(target=lambda: found.append(importlib.util.find_spec("hulk_test_package")))
        other.start()
        other.join()
    assert "theirs" in str(found[0])
