"""What a forked process runs. Not in conftest.py: every folder has one, and pickle finds a function by its module."""

import atexit
import os
import runpy
import sys
from pathlib import Path


def python(arguments: tuple[str, ...], environment: dict[str, str], log: Path) -> None:
    """In a forked process: `python -u ARGUMENTS > LOG 2>&1`."""
    os.setsid()
    with log.open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    os.environ.clear()
    os.environ.update(environment)
    try:
        _run(arguments)
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        raise
    finally:
        atexit._run_exitfuncs()


def _run(arguments: tuple[str, ...]) -> None:
    match arguments:
        case "-m", module, *others:
            sys.argv = [module, *others]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case "-c", program, *others:
            sys.argv = ["-c", *others]
            exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
        case path, *others:
            sys.argv = [path, *others]
            sys.path.insert(0, str(Path(path).parent))
            runpy.run_path(path, run_name="__main__")
