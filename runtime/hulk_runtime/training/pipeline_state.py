"""The state of a model in stages as checkpoints: every stage writes its own part, the checkpoint is the list of them.

    part-A-S-0002    stage 2's parameters, then each of its optimizer's vectors, as little-endian fp32
    state-A-S        the list: each part's tensors by their names in the whole model

So another cut into stages, another number of replicas, or ranks that hold the whole model go on from it, and stages go
on from what such ranks have saved. A checkpoint with a damaged part is passed over for an older one; a part that none
names is swept away like a state.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from hulk_runtime.checkpoints.fenced_checkpoints import Checkpoints, part_key
from hulk_runtime.checkpoints.object_store import Store
from hulk_runtime.checkpoints.stage_parts import Index, Part
from hulk_runtime.collective.process_group import Group
from hulk_runtime.errors import CheckpointError
from hulk_runtime.pipeline.grid import Place
from hulk_runtime.training.pipeline_stepper import StageStepper
from hulk_runtime.training.state import SAVING_S, Content, Saved, require_same_model

_DIGEST_BYTES: Final = 32

Names = Sequence[tuple[str, int]]
"""Parameters and how many values each has."""


@dataclass(frozen=True, slots=True)
class Keeper:
    """Saves one attempt's states, together with the keepers of all ranks. Only replica 0 needs the store."""

    group: Group
    stepper: StageStepper
    optimizer: str
    attempt: int
    store: Store | None
    silence_s: float

    def save(self, step: int, *, is_last: bool) -> Saved | None:
        """What rank 0 is to commit: None where a part could not be written, which costs time but at the last step.

        Raises CheckpointError.
        """
        if self.store is None:
            return None
        self.group.set_timeout(SAVING_S)
        try:
            listed = save(self.group, self.stepper, self.store, self.attempt, step)
            return Saved(listed, content(self.stepper, self.optimizer))
        except CheckpointError as error:
            if is_last:
                raise
            print(f"checkpoint not written, training goes on: {error}", flush=True)
            return None
        finally:
            self.group.set_timeout(self.silence_s)
            self.stepper.pipeline.met()


def content(stepper: StageStepper, optimizer: str) -> Content:
    """What the list of parts means."""
    stages = len(stepper.own.of_stages)
    return {"parameters": stepper.num_parameters, "optimizer": optimizer, "lossScale": 1.0, "stages": stages}


def save(group: Group, stepper: StageStepper, store: Store | None, attempt: int, step: int) -> bytes:
    """The list of parts, on all ranks, once each of them is in the store. Raises CheckpointError on all ranks.

    The first rank of each stage of replica 0 writes; only that replica's ranks need the store.
    """
    place, wrong = stepper.pipeline.place, ""
    row = bytearray(1 + _DIGEST_BYTES)
    whole = _stage(stepper) if place.replica == 0 and store is not None else b""
    if place.replica == 0 and stepper.divided.group.is_first and store is not None:
        row[1:] = hashlib.sha256(whole).digest()
        try:
            store.write(part_key(attempt, step, place.device), whole)
        except CheckpointError as error:  # training goes on, as with a store that fails elsewhere
            row[0], wrong = 1, str(error)
    rows = group.exchange(torch.frombuffer(row, dtype=torch.uint8))
    stages, grid = range(len(stepper.own.of_stages)), stepper.pipeline.grid
    writers = [grid.rank(Place(0, stage)) for stage in stages]
    failed = [rank for rank in writers if rows[rank][0]]
    if failed:
        raise CheckpointError(wrong or f"ranks {failed} could not write their parts of step {step}")
    if group.is_first and store is not None:
        missing = {part_key(attempt, step, stage) for stage in stages} - set(store.list_keys())
        if missing:
            raise CheckpointError(f"{store.url} does not have {min(missing)}: all workers must see one folder")
    parts = tuple(
        Part(
            key=part_key(attempt, step, stage),
            sha256=bytes(rows[writer][1:].tolist()).hex(),
            tensors=stepper.own.of_stages[stage],
        )
        for stage, writer in zip(stages, writers, strict=True)
    )
    return Index(num_vectors=stepper.optimizer.num_vectors, parts=parts).model_dump_json().encode()


def resume(
    group: Group, stepper: StageStepper, optimizer: str, checkpoints: Checkpoints | None, store: Store | None
) -> int:
    """Bring all ranks to the newest checkpoint; returns its step, 0 when there is none.

    Rank 0 finds it and tells the others; each reads what its own stage needs. Raises ConfigurationError when the
    checkpoint is of another model or optimizer, CheckpointError when a part is damaged or replicas differ.
    """
    group.set_timeout(SAVING_S)
    found = checkpoints.begin() if checkpoints else None
    head = torch.zeros(3, dtype=torch.float64)
    told = torch.zeros(0, dtype=torch.uint8)
    if found:
        entry, saved = found
        require_same_model(entry, content(stepper, optimizer))
        told = torch.frombuffer(bytearray(saved), dtype=torch.uint8)
        head = torch.tensor([entry.step, "stages" in entry.content, len(saved)], dtype=torch.float64)
    group.broadcast(head)
    step, is_index, num_bytes = (round(float(value)) for value in head)
    if step:
        told = told if found else torch.zeros(num_bytes, dtype=torch.uint8)
        group.broadcast(told)
        whole = bytes(told.numpy())
        own = stepper.own.of_stages[stepper.pipeline.place.device]
        values = _of_parts(whole, own, store) if is_index else _of_whole(whole, stepper.own.of_model, own)
        for number in range(stepper.optimizer.num_vectors):
            vector = stepper.optimizer.vector(number)
            found_N = torch.split(values[number], [num for _, num in own])
            for name, one in zip(stepper.names, found_N, strict=True):
                stepper.divided.take(vector, name, one)
    _require_agreement(group, stepper, step)
    return step


def _stage(stepper: StageStepper) -> bytes:
    """The vectors of a stage, on the first of its ranks."""
    vectors = map(stepper.optimizer.vector, range(stepper.optimizer.num_vectors))
    return b"".join(
        values.float().numpy().tobytes()
        for vector in vectors
        for values in stepper.divided.gathered(vector, stepper.names)
    )


def joined(index: bytes, of_model: Names, store: Store) -> bytes:
    """The state as ranks write it that hold the whole model: `of_model` backwards, vector after vector."""
    return torch.cat(_of_parts(index, of_model[::-1], store)).numpy().tobytes()


def _of_parts(index: bytes, wanted: Names, store: Store | None) -> list[torch.Tensor]:
    """Vectors of these parameters, read from the parts that have them."""
    if store is None:
        raise CheckpointError("no store to read the parts of a checkpoint from")
    listed, names = Index.model_validate_json(index), dict(wanted)
    pieces: list[dict[str, torch.Tensor]] = [{} for _ in range(listed.num_vectors)]
    for part in listed.parts:
        if names.keys() & {name for name, _ in part.tensors}:
            for vector, named in zip(pieces, _read(part, listed.num_vectors, store), strict=True):
                vector.update(named)
    return [_in_order(vector, wanted) for vector in pieces]


def _read(part: Part, num_vectors: int, store: Store) -> Iterable[Mapping[str, torch.Tensor]]:
    values = torch.frombuffer(bytearray(part.read(store)), dtype=torch.float32)
    return [_named(vector, part.tensors) for vector in values.chunk(num_vectors)]


def _of_whole(saved: bytes, of_model: Names, wanted: Names) -> list[torch.Tensor]:
    """Vectors of these parameters, of a state with all: of local SGD there may be one vector more than needed."""
    values, length = torch.frombuffer(bytearray(saved), dtype=torch.float32), sum(num for _, num in of_model)
    return [_in_order(_named(vector, of_model[::-1]), wanted) for vector in torch.split(values, length)]


def _named(vector: torch.Tensor, names: Names) -> dict[str, torch.Tensor]:
    return {name: part for (name, _), part in zip(names, torch.split(vector, [num for _, num in names]), strict=True)}


def _in_order(named: Mapping[str, torch.Tensor], wanted: Names) -> torch.Tensor:
    for name, num in wanted:
        if name not in named or len(named[name]) != num:
            found = len(named.get(name, ()))
            raise CheckpointError(f"the checkpoint has {found} values of {name}, the model has {num}")
    return torch.cat([named[name] for name, _ in wanted])


def _require_agreement(group: Group, stepper: StageStepper, step: int) -> None:
    """Replicas of a stage, and of what each of its ranks has, hold the same bits."""
    digest = stepper.optimizer.digest(step)
    rows = group.exchange(torch.frombuffer(bytearray(digest), dtype=torch.uint8))
    each = stepper.pipeline.grid.num_ranks // stepper.pipeline.grid.num_replicas
    differing = [rank for rank in range(len(rows)) if not torch.equal(rows[rank], rows[rank % each])]
    if differing:
        raise CheckpointError(f"ranks {differing} do not hold replica 0's state of step {step}")
