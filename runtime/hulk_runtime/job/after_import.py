"""Calls back once a program has imported a module itself, and imports nothing for it."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Callback = Callable[[ModuleType], None]


def after_import(name: str, callback: Callback) -> None:
    """Call with the module as soon as its code has run, before whoever imports it goes on; now, where it is there."""
    if (found := sys.modules.get(name)) is not None:
        callback(found)
    else:
        sys.meta_path.insert(0, _Finder(name, callback))


class _Finder:
    """A finder that finds nothing itself: it sees one module's import once, and is gone."""

    def __init__(self, name: str, callback: Callback) -> None:
        self._name, self._callback = name, callback

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            run_module = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                del loader.exec_module  # the loader's class has its own
                run_module(module)
                self._callback(module)

            loader.exec_module = exec_module
        return spec
