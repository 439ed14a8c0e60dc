"""Packages that an init container brought beside Hulk's own, which Hulk alone imports.

The program goes on to find its own, or none: neither its `sys.path` nor its `sys.modules` ever shows these.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[1] / "hulk_dependencies"


@contextmanager
def brought_alone(names: Collection[str]) -> Iterator[None]:
    """What this thread imports by these names is what was brought; afterwards nothing shows that it did.

    What a module imports only when it is used it must have been made to import by then.
    """
    finder = _Finder(names)
    theirs = {name: sys.modules.pop(name) for name in _loaded(names)}
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in _loaded(names):
            del sys.modules[name]
        sys.modules.update(theirs)


def _loaded(names: Collection[str]) -> list[str]:
    return [name for name in list(sys.modules) if name.partition(".")[0] in names]


class _Finder:
    """Finds what was brought, for the thread that made it."""

    def __init__(self, names: Collection[str]) -> None:
        self._names, self._thread = names, threading.get_ident()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As importlib asks for a module; None: others are asked."""
        if name not in self._names or threading.get_ident() != self._thread:
            return None
        return PathFinder.find_spec(name, [str(FOLDER)])
