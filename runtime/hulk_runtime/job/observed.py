"""Runs a program as `python` would, and counts its optimizers' steps: `observed.py RECORD script.py | -m module ...`.

`hulk-launch` starts ranks with it, by this file's path. Nothing is imported for the program: only where it imports
torch.optim itself, torch's hook for steps of all optimizers is set as soon as that is there. The program is `__main__`
with the names, sys.argv and sys.path that python gives it, so that it pickles and spawns as ever. Its children, forked
or spawned, are not observed.
"""

import io
import os
import pkgutil
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any, Final

from hulk_runtime.job import step_record
from hulk_runtime.job.after_import import after_import
from hulk_runtime.job.compute_time import ComputeTime
from hulk_runtime.job.step_record import StepRecord

OPTIMIZERS: Final = "torch.optim.optimizer"
NUM_MEASURED_STEPS: Final = 2
"""Optimizers that step for the first time later than that are not counted as parts of the model."""


def main() -> None:
    """Observe, where that is possible, and run."""
    record, *arguments = sys.argv[1:]
    observe(record)
    sys.argv[:] = arguments
    sys.orig_argv[:] = [sys.executable, "-u", *arguments]
    run(arguments)


def observe(path: str) -> None:
    """Write into the record at `path` once torch.optim is there. What cannot be observed runs all the same."""
    try:
        record = step_record.observe(path)
    except OSError as error:
        print(f"hulk-launch: steps are not counted: {error}", file=sys.stderr, flush=True)
        return
    after_import(OPTIMIZERS, lambda optimizers: _count_steps(optimizers, record))


def _count_steps(optimizers: Any, record: StepRecord) -> None:
    """Set torch's hook after a step of any optimizer."""
    torch = optimizers.torch  # not whole yet
    measured: set[int] = set()  # optimizers, and parameters: a wrapper has those of what it wraps
    num_steps, compute_time = 0, ComputeTime(record, is_alone=os.environ.get("WORLD_SIZE", "1") == "1")

    def stepped(optimizer: Any, *_: Any) -> None:
        nonlocal num_steps
        if (
            torch.compiler.is_compiling() or step_record.own is not record
        ):  # compiled steps call no Python; or this is a child
            return
        if record.optimizer_stepped(id(optimizer)):
            num_steps += 1
            compute_time.stepped()
        if num_steps <= NUM_MEASURED_STEPS and id(optimizer) not in measured:
            measured.add(id(optimizer))
            record.add_model(*_size(optimizer, measured))

    optimizers.register_optimizer_step_post_hook(stepped)


def _size(optimizer: Any, counted: set[int]) -> tuple[int, int]:
    """Parameters that an optimizer updates and no other has had before, and the bytes of their gradients."""
    updated = [one for group in optimizer.param_groups for one in group["params"] if one.requires_grad]
    new = [one for one in updated if id(one) not in counted]
    counted.update(map(id, new))
    return sum(one.numel() for one in new), sum(one.numel() * one.element_size() for one in new)


def run(arguments: Sequence[str]) -> None:
    """What `python -m module ...`, `python script.py ...` or `python folder ...` does, in this process."""
    program = sys.modules["__main__"] = ModuleType("__main__")
    vars(program).update(__annotations__={}, __builtins__=sys.modules["builtins"])
    as_main: Any = vars(runpy)["_run_module_as_main"]  # what the interpreter itself calls
    if arguments[0] == "-m":
        sys.argv[:] = ["-m", *arguments[2:]]
        _first_on_path(os.getcwd())
        as_main(arguments[1])
        return
    path = os.path.abspath(arguments[0])
    if pkgutil.get_importer(path) is not None:  # a folder or an archive
        _first_on_path(path, always=True)
        as_main("__main__", False)
        return
    _first_on_path(os.path.dirname(os.path.realpath(path)))
    try:
        with io.open_code(path) as script:
            source = script.read()
    except OSError as error:
        print(f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        sys.exit(2)
    vars(program).update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
    exec(compile(source, path, "exec", dont_inherit=True), vars(program))


def _first_on_path(folder: str, always: bool = False) -> None:
    """In place of this file's own folder, which python put there unless it is told not to (PYTHONSAFEPATH)."""
    if not sys.flags.safe_path:
        sys.path[0] = folder
    elif always:
        sys.path.insert(0, folder)


if __name__ == "__main__":
    main()
