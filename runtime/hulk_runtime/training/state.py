"""The trained state as bytes and back: parameters, then the optimizer's vectors, as little-endian fp32.

Local SGD adds the outer velocity behind them. It holds nothing of ranks or shares, so a run may resume with other
machines than it stopped with, and in another mode: without a velocity the outer one begins at rest, and a synchronous
run has no use for it.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from hulk_runtime.checkpoints.fenced_checkpoints import Checkpoints, Entry
from hulk_runtime.collective.process_group import Group
from hulk_runtime.errors import CheckpointError, ConfigurationError
from hulk_runtime.training.stepper import Stepper

SAVING_S: Final = 3600.0
"""A rank may take as long to write or read its part, while the others wait; one that dies is lost at once."""

Content = dict[str, str | int | float]
Joined = Callable[[bytes], bytes]


def content(stepper: Stepper, optimizer: str) -> Content:
    """What `dump`'s bytes mean."""
    num_parameters = stepper.flat.parameters_N.numel()
    return {"parameters": num_parameters, "optimizer": optimizer, "lossScale": stepper.scale.value}


@dataclass(frozen=True, slots=True)
class Saved:
    """What a checkpoint is to hold."""

    state: bytes
    content: Content


def saved(stepper: Stepper, optimizer: str) -> Saved:
    """A copy of the state, and what it means."""
    return Saved(dump(stepper), content(stepper, optimizer))


def dump(stepper: Stepper) -> bytes:
    """A copy of the state."""
    return vector(stepper).cpu().numpy().tobytes()


def resume(group: Group, stepper: Stepper, optimizer: str, checkpoints: Checkpoints | None, joined: Joined) -> int:
    """Bring all ranks to the newest checkpoint, read by rank 0; returns its step, 0 when there is none.

    `joined` makes the state of one that was saved in stages. All ranks then prove that they hold the same step and the
    same bits. Raises ConfigurationError when the checkpoint is of another model or optimizer, CheckpointError when
    ranks differ.
    """
    found = checkpoints.begin() if checkpoints else None
    head = torch.zeros(2, dtype=torch.float64)
    whole = vector(stepper)
    if found:
        entry, state = found
        if "stages" in entry.content:
            state = joined(state)
        _require_same_state(entry, stepper, optimizer, len(state))
        head = torch.tensor([entry.step, float(entry.content["lossScale"])], dtype=torch.float64)
        whole = _fitted(torch.frombuffer(bytearray(state), dtype=torch.float32), len(whole)).to(group.device)
    group.broadcast(head)
    step, scale = round(float(head[0])), float(head[1])
    if step:
        group.broadcast(whole)
        load(stepper, whole)
        stepper.scale.restart(scale)
    _require_agreement(group, stepper, step)
    return step


def vector(stepper: Stepper) -> torch.Tensor:
    """A copy of the state as one vector."""
    return torch.cat(stepper.vectors)


def _fitted(saved: torch.Tensor, length: int) -> torch.Tensor:
    """With zeros for an outer velocity that was not saved, without one that is not used."""
    return torch.nn.functional.pad(saved, (0, length - len(saved)))


def load(stepper: Stepper, whole: torch.Tensor) -> None:
    """What `vector` made becomes the state."""
    targets = stepper.vectors
    for target, values in zip(targets, whole.chunk(len(targets)), strict=True):
        target.copy_(values)


def require_same_model(entry: Entry, expected: Content) -> None:
    """ConfigurationError where a checkpoint is of another model or optimizer."""
    for key in ("parameters", "optimizer"):
        if entry.content.get(key) != expected[key]:
            raise ConfigurationError(
                f"checkpoint {entry.key} has {key} {entry.content.get(key)}, the job has {expected[key]}"
            )


def _require_same_state(entry: Entry, stepper: Stepper, optimizer: str, num_bytes: int) -> None:
    require_same_model(entry, content(stepper, optimizer))
    vector_bytes = 4 * stepper.flat.parameters_N.numel()
    expected_bytes = vector_bytes * (1 + len(stepper.optimizer.states))
    if num_bytes not in (expected_bytes, expected_bytes + vector_bytes):
        raise CheckpointError(f"checkpoint {entry.key} has {num_bytes} bytes, the model needs {expected_bytes}")


def _require_agreement(group: Group, stepper: Stepper, step: int) -> None:
    digest = hashlib.sha256(f"{step} ".encode() + dump(stepper)).digest()
    rows = group.gather(torch.frombuffer(bytearray(digest), dtype=torch.uint8))
    differing = [rank for rank, row in enumerate(rows) if not torch.equal(row, rows[0])]
    if differing:
        raise CheckpointError(f"ranks {differing} do not hold rank 0's state of step {step}")
