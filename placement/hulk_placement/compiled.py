"""Compiles the planner's inner loops, once for each version of them: what runs a million times a second.

`compiled` is numba's njit with a cache on disk. A cached function knows only its own file, not those of the functions
it calls: so the cache's folder is named by all files that hold compiled code or that such a file imports. It lies in
`$HULK_COMPILED_DIR`, else in the user's cache. Where that cannot be written, as in the operator's image whose root is
read-only and whose functions were compiled when it was built (`python -m hulk_placement.split.warm`), it is used as a
copy in the temporary directory.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import UserProvidedCacheLocator
from numba.core.event import Listener, install_listener

Function = TypeVar("Function", bound=Callable[..., object])

_HERE = Path(__file__).resolve().parent
_IMPORT = re.compile(r"^from (hulk_placement[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


def sources() -> list[Path]:
    """The files that hold compiled code, and those that they take functions, constants and types from."""
    found: set[Path] = set()
    for source in _HERE.rglob("*.py"):
        imports = _IMPORT.findall(source.read_text())
        if any(module == __name__ for module, _ in imports):
            found |= {source, *(path for module, names in imports for path in _files(module, names))}
    return sorted(found)


def _files(module: str, names: str) -> Iterator[Path]:
    """That of a module, or of a package, and those of modules in it that are among these names."""
    path = _HERE.joinpath(*module.split(".")[1:])
    inside = (path / f"{name}.py" for name in re.findall(r"\w+", names))
    yield from filter(Path.exists, (path.with_suffix(".py"), path / "__init__.py", *inside))


def _folder() -> Path:
    """Where compiled functions are kept: written by whoever is first."""
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sources():
        digest.update(source.read_bytes())
    name = f"hulk-compiled-{digest.hexdigest()[:16]}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kept = Path(os.environ.get("HULK_COMPILED_DIR") or cache) / name
    try:
        kept.mkdir(parents=True, exist_ok=True)
        if os.access(kept, os.W_OK):
            return kept
    except OSError:
        pass
    copy = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    if kept.is_dir() and not copy.exists():
        shutil.copytree(kept, copy, dirs_exist_ok=True)
    return copy


class Locator(UserProvidedCacheLocator):
    """Where a function's machine code is kept in that folder: by its package, wherever that lies.

    Numba's own locator goes by the file's path: then each checkout and each environment compiles the same code anew.
    """

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """The folder of the package that a file is in; numba's choice for files of others."""
        folder = Path(py_file).resolve().parent
        if not folder.is_relative_to(_HERE):
            return str(super().get_suitable_cache_subpath(py_file))  # type: ignore[no-untyped-call]
        return "-".join((_HERE.name, *folder.relative_to(_HERE).parts))


def inlined(function: Function) -> Function:
    """As `compiled`, put into whatever calls it: small functions of many arrays cost more to call than to run."""
    return cast(Function, numba.njit(cache=True, error_model="numpy", forceinline=True)(function))


def compiled(function: Function) -> Function:
    """The function, compiled at its first call with each set of types; no fastmath: the same input, the same bits."""
    return cast(Function, numba.njit(cache=True, error_model="numpy")(function))


class _First(Listener):
    """Says once that something is compiled."""

    def __init__(self, say: Callable[[], None]) -> None:
        self.say: Callable[[], None] | None = say

    def on_start(self, event: Any) -> None:
        say, self.say = self.say, None
        if say is not None:
            say()

    def on_end(self, event: Any) -> None:
        pass


@contextmanager
def announced(say: Callable[[], None]) -> Iterator[None]:
    """Within it, `say` is called before the first function that is compiled; never for those that the cache has."""
    with install_listener("numba:compile", _First(say)):
        yield


for _name, _value in (("CACHE_DIR", str(_folder())), ("CACHE_LOCATOR_CLASSES", f"{__name__}.{Locator.__name__}")):
    setattr(numba.config, _name, _value)  # its settings are not declared
