"""Lets programs that know nothing of Hulk sum between regions as planned.

    environment says so -> torch.distributed is imported -> init_process_group -> the program's groups are planned ones

Python runs `sitecustomize.py` at its start where this package's folder is on PYTHONPATH; `hulk-launch` does the same
for the ranks that it starts. Nothing is imported before the program imports torch, and nothing changes before it
makes its process group.
"""

import functools
import os
from types import ModuleType

from hulk_runtime import names
from hulk_runtime.instrumentation import trainers
from hulk_runtime.job.after_import import after_import


@functools.cache  # this folder may be on the path twice
def instrument() -> None:
    """Wait for the program's own import of torch, where the environment wants it."""
    if os.environ.get(names.ENV_INSTRUMENTATION) == names.INSTRUMENTATION_AUTO:
        after_import("torch.distributed.distributed_c10d", _wrap)
        after_import("torch.distributed.elastic.multiprocessing.errors", _leave_as_ranks_do)
        after_import("transformers.trainer", trainers.hugging_face)
        for package in ("lightning.pytorch", "pytorch_lightning"):
            after_import(f"{package}.trainer.trainer", trainers.lightning)


def _wrap(torch_distributed: ModuleType) -> None:
    from hulk_runtime.instrumentation import process_groups  # slow to load

    process_groups.wrap(torch_distributed)


def _leave_as_ranks_do(errors: ModuleType) -> None:
    from hulk_runtime.instrumentation import torchrun  # slow to load

    torchrun.leave_as_ranks_do(errors)
