"""torch.distributed.checkpoint's storage over a folder of a `Store`, with a digest of each piece in the metadata.

Torch's own FsspecReader and FileSystemReader read what is written, without Hulk: files, metadata and their format are
those of torch's writers, and digests are one more attribute of each piece.
"""

import hashlib
import io
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, Final

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from hulk_runtime.checkpoints.object_store import Store
from hulk_runtime.errors import CheckpointError
from hulk_runtime.sharded_checkpoints.safe_pickle import unpacked

MAX_READ_BYTES: Final = 32 << 20
"""Neighbouring pieces are read together up to so many bytes: an object store answers in tens of milliseconds."""
MAX_GAP_BYTES: Final = 1 << 20
"""Of what lies between them and is read for nothing."""
NUM_READS: Final = 4
"""At a time."""


def file_name(number: int) -> str:
    """Of the rank with this number in its copy, as torch names it."""
    return f"__{number}_0.distcp"


class Writer(StorageWriter):
    """One rank's file in `folder`, which is opened as it is written.

    `prepare` is called on the copy's first rank before any of them writes, `commit` after all have written, with the
    metadata and how many bytes they describe.
    """

    def __init__(
        self,
        folder: Callable[[], Store],
        number: int,
        prepare: Callable[[], object],
        commit: Callable[[bytes, int], object],
    ) -> None:
        self._folder, self._key = folder, file_name(number)
        self._prepare, self._commit = prepare, commit

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Each instance is of one checkpoint."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Everything is there."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """As it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """As they are, on the copy's first rank."""
        self._prepare()
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> "Future[list[WriteResult]]":
        """All pieces in one file, one after the other; none without pieces."""
        written: list[WriteResult] = []
        if plan.items:
            with self._folder().writing(self._key) as file:
                start = 0
                for item in plan.items:
                    written.append(self._write(file, start, item, planner))
                    start += written[-1].size_in_bytes
        done: Future[list[WriteResult]] = Future()
        done.set_result(written)
        return done

    def _write(self, file: Any, start: int, item: WriteItem, planner: SavePlanner) -> WriteResult:
        data: Any = planner.resolve_data(item)
        digested: Any = _Digested(file)
        if item.type == WriteItemType.BYTE_IO:
            digested.write(data.getbuffer())
        else:
            torch.save(_alone(data.detach().cpu()), digested)
        info: Any = _StorageInfo(self._key, start, digested.num_bytes)
        info.sha256 = digested.digest.hexdigest()
        return WriteResult(index=item.index, size_in_bytes=digested.num_bytes, storage_data=info)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the copy's first rank, after all have written."""
        written = [one for each in results for one in each]
        metadata.storage_data = {one.index: one.storage_data for one in written}
        self._commit(pickle.dumps(metadata), sum(one.size_in_bytes for one in written))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """It takes none."""
        return False


class _Digested:
    """A file to write into, and the digest of what was written."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.digest, self.num_bytes = hashlib.sha256(), 0

    def write(self, content: Any) -> int:
        view = memoryview(content).cast("B")
        self._file.write(view)
        self.digest.update(view)
        self.num_bytes += len(view)
        return len(view)

    def flush(self) -> None:
        """The file's owner flushes it."""


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """Not a part of a larger storage, which torch would save as a whole."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


class Reader(StorageReader):
    """What metadata describe; `folder_of` answers where a file is. Raises CheckpointError for what is damaged."""

    def __init__(self, metadata: Metadata, folder_of: Callable[[str], Store]) -> None:
        self._metadata, self._folder_of = metadata, folder_of

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Each instance is of one checkpoint."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """As they were given."""
        return self._metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Everything is there."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """As it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """As they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> "Future[None]":
        """Each piece once, however many parts of it are asked for."""
        pieces: dict[_Piece, list[ReadItem]] = {}
        for item in plan.items:
            pieces.setdefault(self._piece(item), []).append(item)
        spans = iter(_spans(sorted(pieces)))
        with ThreadPoolExecutor(NUM_READS, "hulk-read") as pool:
            while batch := list(islice(spans, NUM_READS)):
                for span, content in zip(batch, pool.map(self._read, batch), strict=True):
                    for piece in span:
                        start = piece.start - span[0].start
                        self._take(piece, content[start : start + piece.num_bytes], pieces[piece], planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _piece(self, item: ReadItem) -> "_Piece":
        info = self._metadata.storage_data[item.storage_index]
        return _Piece(info.relative_path, info.offset, info.length, getattr(info, "sha256", ""))

    def _read(self, span: "Sequence[_Piece]") -> memoryview:
        first, last = span[0], span[-1]
        return memoryview(self._folder_of(first.path).read_range(first.path, first.start, last.start + last.num_bytes))

    def _take(self, piece: "_Piece", content: memoryview, items: Sequence[ReadItem], planner: LoadPlanner) -> None:
        if hashlib.sha256(content).hexdigest() != piece.sha256:
            where = f"{self._folder_of(piece.path).url}/{piece.path}"
            raise CheckpointError(f"{where} is not as it was written, from byte {piece.start} on")
        if items[0].type == LoadItemType.BYTE_IO:
            for item in items:
                planner.load_bytes(item, io.BytesIO(content))
            return
        held = unpacked(piece.path, content)
        for item in items:
            part = held
            for dimension, (start, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                part = part.narrow(dimension, start, length)
            target = planner.resolve_tensor(item).detach()
            target.copy_(part)
            planner.commit_tensor(item, target)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """It takes none."""
        return False


@dataclass(frozen=True, slots=True, order=True)
class _Piece:
    """Some bytes of a file, and their digest."""

    path: str
    start: int
    num_bytes: int
    sha256: str


def _spans(pieces: Sequence[_Piece]) -> Iterator[list[_Piece]]:
    """Sorted pieces by what is read at once: of one file, with small gaps, up to MAX_READ_BYTES or one piece.

    >>> [len(span) for span in _spans([_Piece("a", 0, 9, ""), _Piece("a", 9, 9, ""), _Piece("b", 0, 9, "")])]
    [2, 1]
    """
    for _, of_file in groupby(pieces, attrgetter("path")):
        span: list[_Piece] = []
        for piece in of_file:
            end = span[-1].start + span[-1].num_bytes if span else 0
            is_far = bool(span) and piece.start - end > MAX_GAP_BYTES
            if span and (is_far or piece.start + piece.num_bytes - span[0].start > MAX_READ_BYTES):
                yield span
                span = []
            span.append(piece)
        yield span
