"""What a worker's command and resources say that Hulk would do otherwise: reported, or refused, before planning.

A program that starts as it always did elsewhere may train apart from the others here, and nobody would notice.
"""

import re
from collections.abc import Iterator
from typing import Final

from hulk_operator.api import HulkJobSpec
from hulk_operator.inputs.placement_constraints import UnusableJobError
from hulk_operator.inputs.quantity import parse
from hulk_operator.inputs.stage_constraints import first_command

_TORCHRUN: Final = re.compile(r"(?:^|[\s/])torchrun\s|\btorch\.distributed\.(?:run|launch)\b")
_IS_TORCHRUN: Final = re.compile(r"^(?:\S*/)?torchrun\s|^\S*python[\d.]*\s+(?:-u\s+)?-m\s+torch\.distributed\.run\s")
_LAUNCHERS: Final = re.compile(r"\b(?:hulk-launch|accelerate\s+launch|deepspeed|mpirun|hulk_runtime)\b")
_PYTHON: Final = re.compile(r"(?:^|[\s/;&(])python[\d.]*\s")
_PLACE_OPTIONS: Final = re.compile(
    r"\s(--(?:nnodes|nproc[-_]per[-_]node|node[-_]rank|master[-_]addr|master[-_]port|rdzv[-_]endpoint))\b"
)


_STANDALONE: Final = (
    "torchrun --standalone waits for the other workers at its own address, or trains without them: leave it out"
)
_ONE_NODE: Final = re.compile(r"\s--nnodes[=\s](?:1:)?1\s")
_ALONE: Final = "torchrun --nnodes=1 trains a model of its own on each worker: leave it out"


def launch_notes(spec: HulkJobSpec) -> tuple[str, ...]:
    """Sentences on a command that finds another world than the plan's.

    >>> from hulk_operator.api import HulkJobSpec
    >>> def notes(command, accelerators=1):
    ...     template = {"spec": {"containers": [{"name": "worker", "command": command.split()}]}}
    ...     workers = {"max": 2, "acceleratorsPerWorker": accelerators}
    ...     return launch_notes(HulkJobSpec.model_validate({"workers": workers, "template": template}))
    >>> notes("torchrun train.py"), notes("python train.py")
    ((), ())
    >>> notes("torchrun --standalone train.py")[0]
    'torchrun --standalone waits for the other workers at its own address, or trains without them: leave it out'
    """
    return tuple(_notes(spec, first_command(spec)))


def _notes(spec: HulkJobSpec, command: str) -> Iterator[str]:
    num_accelerators = spec.workers.accelerators_per_worker
    if _TORCHRUN.search(command):
        if "--standalone" in command:
            yield _STANDALONE
        if options := list(dict.fromkeys(_PLACE_OPTIONS.findall(command))):
            yield f"torchrun's {', '.join(options)} win over what Hulk sets by the plan: leave them out"
    elif num_accelerators > 1 and _PYTHON.search(command) and not _LAUNCHERS.search(command):
        yield (
            f"the command starts one process for a worker's {num_accelerators} accelerators: "
            "start it by hulk-launch or torchrun"
        )


def refuse_standalone(spec: HulkJobSpec) -> None:
    """UnusableJobError where the command is a torchrun that does not find the other workers.

    With --standalone and PET_NNODES each would wait ten minutes for the others at its own address, attempt after
    attempt; with --nnodes=1 each would train a model of its own, and succeed. What a shell runs is only reported: it
    may not be what trains.
    """
    command = first_command(spec)
    options = f"{command.partition('.py')[0]} "
    if spec.workers.max < 2 or not _IS_TORCHRUN.match(command):
        return
    told = _STANDALONE if "--standalone" in options.split() else _ALONE if _ONE_NODE.search(options) else None
    if told is not None:
        message = f"The command does not find the other workers: {told}. Hulk sets what torchrun needs."
        raise UnusableJobError("CommandStandsAlone", message)


def refuse_other_accelerators(spec: HulkJobSpec) -> None:
    """UnusableJobError where the template asks for another number of accelerators than the worker gets."""
    resource, given = spec.workers.resource_name, spec.workers.accelerators_per_worker
    resources = spec.template.pod_spec()["containers"][0].get("resources") or {}
    for kind in ("limits", "requests"):
        asked = (resources.get(kind) or {}).get(resource)
        if asked is not None and parse(asked) != given:
            raise UnusableJobError(
                "AcceleratorsDiffer",
                f"The template's resources.{kind} ask for {asked} {resource}; a worker gets "
                f"workers.acceleratorsPerWorker = {given}. Make them equal, or leave {resource} out of the template.",
            )
