"""Python's site runs this at each start where its folder is on PYTHONPATH, and it runs the one that it hides.

What goes wrong here never ends a program: it then sums by torch alone, and says so.
"""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder


def _run_hidden() -> None:
    """The environment's own sitecustomize, behind this folder on the path, and behind another one of Hulk's."""
    done = vars(sys).setdefault("hulk_folders", set())
    done.add(os.path.dirname(os.path.abspath(__file__)))
    others = [folder for folder in sys.path if os.path.abspath(folder) not in done]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def _instrument() -> None:
    try:
        from hulk_runtime import instrumentation

        instrumentation.instrument()
    except Exception as error:  # noqa: BLE001  # whatever it is, the program runs
        print(f"hulk: not instrumented: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


_instrument()
_run_hidden()
