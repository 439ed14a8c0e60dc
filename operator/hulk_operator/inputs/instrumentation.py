"""HulkJob -> who brings Hulk's all-reduce into its program, which need not import it.

| the worker's command                 | who brings it in                                   |
|--------------------------------------|----------------------------------------------------|
| `python -m hulk_runtime...`          | nobody: the program makes the plan's sums itself   |
| `hulk-launch train.py`               | hulk-launch, which is in that image                |
| any other, or the image's own        | an init container, a folder and PYTHONPATH         |
"""

import re
from typing import Final

from hulk_operator import names
from hulk_operator.api import HulkJobSpec
from hulk_operator.inputs.stage_constraints import first_command

_OWN: Final = re.compile(r"(?:^|\s)-m\s+hulk_runtime\b")
_LAUNCHER: Final = re.compile(rf"(?:^|[\s/;&(]){names.LAUNCHER}(?:\s|$)")


def is_wanted(spec: HulkJobSpec) -> bool:
    """Whether Hulk is to bring its all-reduce into the program."""
    return spec.instrumentation == names.INSTRUMENTATION_AUTO and not has_runtime(spec)


def has_runtime(spec: HulkJobSpec) -> bool:
    """Whether the command is known to run a module of Hulk's runtime, which has it in its image."""
    return _OWN.search(first_command(spec)) is not None


def is_launched(spec: HulkJobSpec) -> bool:
    """Whether the command is known to start hulk-launch, also by a shell."""
    return _LAUNCHER.search(first_command(spec)) is not None


def can_sum_between_regions(spec: HulkJobSpec) -> bool:
    """Whether the program can make the plan's sums without an import of its own."""
    return spec.instrumentation == names.INSTRUMENTATION_AUTO or has_runtime(spec)
