"""The state of replicas of several ranks as an ordinary checkpoint: rank 0 gathers what its replica's ranks have.

So any other layout goes on from it, and this one from what any other has saved. One tensor at a time is whole on a rank
that resumes, and on rank 0, which has all of the state in its host's memory, where it saves.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from hulk_runtime.checkpoints.fenced_checkpoints import Checkpoints, Entry
from hulk_runtime.collective.process_group import Group
from hulk_runtime.errors import CheckpointError
from hulk_runtime.training import state
from hulk_runtime.training.sharded_stepper import ShardedStepper
from hulk_runtime.training.state import Content, Joined, Saved


@dataclass(frozen=True, slots=True)
class ShardKeeper:
    """Saves together with the ranks of replica 0."""

    group: Group
    stepper: ShardedStepper
    optimizer: str

    def save(self, step: int, *, is_last: bool) -> Saved | None:
        """What rank 0 is to commit; None on all others. Raises PeerLostError."""
        self.stepper.wait_for_a_save()
        if self.stepper.groups.between.rank:
            return None
        whole = b"".join(values.float().numpy().tobytes() for values in _gathered(self.stepper))
        return Saved(whole, content(self.stepper, self.optimizer)) if self.group.is_first else None


def content(stepper: ShardedStepper, optimizer: str) -> Content:
    """What the state means."""
    return {"parameters": stepper.num_parameters, "optimizer": optimizer, "lossScale": stepper.scale.value}


def resume(
    group: Group, stepper: ShardedStepper, optimizer: str, checkpoints: Checkpoints | None, joined: Joined
) -> int:
    """As `state.resume`: bring all ranks to the newest checkpoint; its step, 0 when there is none."""
    found = checkpoints.begin() if checkpoints else None
    head, saved = torch.zeros(2, dtype=torch.float64), torch.zeros(0)
    if found:
        entry, whole = found
        whole = joined(whole) if "stages" in entry.content else whole
        saved = _checked(entry, stepper, optimizer, whole)
        head = torch.tensor([entry.step, float(entry.content["lossScale"])], dtype=torch.float64)
    group.broadcast(head)
    step, scale = round(float(head[0])), float(head[1])
    if step:
        _spread(group, stepper, saved)
        stepper.scale.restart(scale)
    _require_agreement(group, stepper, step)
    return step


def _gathered(stepper: ShardedStepper) -> Iterator[torch.Tensor]:
    """Vectors of the whole model, backwards as ordinary checkpoints have them, on the replica's first rank."""
    for number in range(stepper.optimizer.num_vectors):
        yield from stepper.divided.gathered(stepper.optimizer.vector(number), reversed(list(stepper.divided.whole)))


def _spread(group: Group, stepper: ShardedStepper, saved: torch.Tensor) -> None:
    """Rank 0's state to all: each tensor to the first rank of each replica, from there to the others."""
    between, inside = stepper.groups.between, stepper.groups.inside
    first = 0
    for number in range(stepper.optimizer.num_vectors):
        own = stepper.optimizer.vector(number)
        for name in reversed(list(stepper.divided.whole)):
            num = stepper.divided.num_values(name)
            values = saved[first : first + num].clone() if group.is_first else torch.empty(num)
            first += num
            if inside.is_first:
                between.broadcast(values)
            inside.broadcast(values)
            stepper.divided.take(own, name, values)


def _checked(entry: Entry, stepper: ShardedStepper, optimizer: str, whole: bytes) -> torch.Tensor:
    """A whole state as one vector; of local SGD there may be one more than needed."""
    state.require_same_model(entry, content(stepper, optimizer))
    vector_bytes = 4 * stepper.num_parameters
    expected_bytes = vector_bytes * stepper.optimizer.num_vectors
    if len(whole) not in (expected_bytes, expected_bytes + vector_bytes):
        raise CheckpointError(f"checkpoint {entry.key} has {len(whole)} bytes, the model needs {expected_bytes}")
    return torch.frombuffer(bytearray(whole), dtype=torch.float32)


def _require_agreement(group: Group, stepper: ShardedStepper, step: int) -> None:
    """Likes of several replicas hold the same bits."""
    rows = group.gather(torch.frombuffer(bytearray(stepper.optimizer.digest(step)), dtype=torch.uint8))
    width = stepper.groups.inside.world_size
    differing = [rank for rank, row in enumerate(rows) if not torch.equal(row, rows[rank % width])]
    if differing:
        raise CheckpointError(f"ranks {differing} do not hold replica 0's state of step {step}")
