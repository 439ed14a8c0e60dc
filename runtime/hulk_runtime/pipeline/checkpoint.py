"""Checkpoints of pipelines through torch.distributed.checkpoint, so that a job resumes on another layout.

Every tensor is saved once, by its name in the model, whichever ranks have it: a stage's layers by their numbers in the
list, so that another cut into stages, another number of replicas or another tensor degree finds the same names. What a
function has made of a stage has the stage's name in front, and needs the same stages again.

    folder/step-0000000020/    .metadata is written last: without it the checkpoint is not complete, and passed over
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import torch
from torch import nn

from hulk_runtime.errors import CheckpointError

Named = Iterable[tuple[str, nn.Parameter]]
Slots = Mapping[str, Sequence[torch.Tensor]]
"""What an optimizer keeps of every parameter, by what it is, such as a velocity."""
Views = Callable[[str, torch.Tensor], Mapping[str, torch.Tensor]]
"""A parameter's name and a tensor of its shape -> parts of the tensor by the names under which they are saved."""

_COMPLETE: Final = ".metadata"
_FOLDER: Final = re.compile(r"step-(\d{10})")


def as_it_is(name: str, values: torch.Tensor) -> Mapping[str, torch.Tensor]:
    """Saved whole, under its own name."""
    return {name: values}


def save(folder: Path, step: int, parameters: Named, slots: Slots, views: Views = as_it_is) -> Path:
    """Write the state after a step, together with all ranks; all must see the same folder. Raises CheckpointError.

    `slots` are in the order of the parameters.
    """
    # It imports the compiler, which takes seconds.
    from torch.distributed.checkpoint.state_dict_saver import save as write

    place = folder / f"step-{step:010d}"
    _told(lambda: write(_tensors(parameters, slots, views), checkpoint_id=place), f"cannot write {place}")
    return place


def newest(folder: Path) -> int | None:
    """The step of the newest checkpoint that is complete; None where there is none."""
    steps = [int(match[1]) for path in folder.glob(f"*/{_COMPLETE}") if (match := _FOLDER.fullmatch(path.parent.name))]
    return max(steps, default=None)


def load(folder: Path, step: int, parameters: Named, slots: Slots, views: Views = as_it_is) -> None:
    """Make the state after a step that of these parameters and slots, in place. Raises CheckpointError."""
    from torch.distributed.checkpoint.state_dict_loader import load as read

    from hulk_runtime.pipeline.checkpoint_reader import TensorReader

    place = folder / f"step-{step:010d}"
    tensors = _tensors(parameters, slots, views)
    _told(lambda: read(tensors, storage_reader=TensorReader(place)), f"cannot read {place}")


def _tensors(parameters: Named, slots: Slots, views: Views) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for number, (name, parameter) in enumerate(parameters):
        found.update(views(name, parameter.detach()))
        for slot, values in slots.items():
            found.update({f"{slot} {key}": view for key, view in views(name, values[number]).items()})
    return found


def _told(do: Callable[[], object], what: str) -> None:
    """torch says what is wrong on each rank in an exception that is no Exception."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        do()
    except CheckpointException as error:
        causes = {rank: str(failure[0]).partition("\n")[0] for rank, failure in error.failures.items()}
        first = min(causes)
        raise CheckpointError(f"{what}: rank {first} of {len(causes)} that failed: {causes[first]}") from error
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{what}: {error}") from error


def name_of(stage: str, shard: int, num_shards: int, name: str, is_of_list: bool) -> str:
    """Under which a parameter is saved.

    >>> name_of("1", 0, 1, "3.weight", is_of_list=True), name_of("all", 1, 4, "weight", is_of_list=False)
    ('3.weight', 'all#1/4/weight')
    """
    if is_of_list:
        return name
    return f"{stage}/{name}" if num_shards == 1 else f"{stage}#{shard}/{num_shards}/{name}"
