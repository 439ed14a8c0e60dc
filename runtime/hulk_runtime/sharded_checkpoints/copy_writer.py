"""A staged state -> one copy of it in the stores of those who write it together, which rank 0 reports.

Rank 0 speaks for the job. Where it is in no copy, as its store's ranks hold only a part of what others hold whole, the
first copy's first rank tells it what has become of that copy.
"""

import contextlib
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save

from hulk_runtime.checkpoints.sharded import METADATA, Manifest, ShardedCheckpoints
from hulk_runtime.errors import CheckpointError, ConfigurationError, FencedError, HulkError, PeerLostError
from hulk_runtime.job import step_record
from hulk_runtime.sharded_checkpoints.ranks import Ranks
from hulk_runtime.sharded_checkpoints.storage import Writer, file_name


@dataclass(frozen=True, slots=True)
class Saved:
    """A complete copy. `folders`: their URLs."""

    step: int
    num_bytes: int
    seconds: float
    folders: Sequence[str]

    def report(self) -> None:
        """To the log, and to the operator."""
        step_record.saved(self.step, self.num_bytes, self.folders[0])
        where = ", ".join(self.folders)
        say(f"checkpoint step={self.step} bytes={self.num_bytes} seconds={self.seconds:.3g} where={where}")


@dataclass(frozen=True, slots=True)
class CopyWatcher:
    """Rank 0 without a part in any copy. `first`: the first rank of the first copy, of all `members`."""

    first: int
    members: Ranks

    def write(self, step: int, state: dict[str, Any]) -> None:
        """Learn what has become of the copy. Raises what was raised there, or PeerLostError."""
        found = self.members.receive(self.first)
        if isinstance(found, HulkError):
            raise found
        found.report()


@dataclass(frozen=True, slots=True)
class CopyWriter:
    """This rank's part in one copy. `urls`: the store of each of its `ranks`, whose first one commits.

    `at` opens a store, as late as something is written: one that cannot be opened costs a checkpoint. `watched`: all
    ranks, of which rank 0 is in no copy and learns of this one.
    """

    number: int
    num_copies: int
    ranks: Sequence[int]
    urls: Sequence[str]
    at: Callable[[str], ShardedCheckpoints]
    members: Ranks
    watched: Ranks | None = None

    def write(self, step: int, state: dict[str, Any]) -> None:
        """All ranks together.

        Raises CheckpointError, ConfigurationError or FencedError, the same on all of them, or PeerLostError.
        """
        try:
            found = self._written(step, state)
        except HulkError as error:
            self._tell(error)
            raise
        self._tell(found)

    def _tell(self, found: Saved | HulkError | None) -> None:
        with contextlib.suppress(PeerLostError):  # which the training's next sum raises, too
            if self.watched is not None and self.members.number == 0:
                self.watched.send(0, found)

    def _written(self, step: int, state: dict[str, Any]) -> Saved | None:
        """On the first rank, what was."""
        begun_s, saved = time.monotonic(), None

        def prepare() -> None:
            for place in self._places():
                place.prepare(step, self.number)

        def commit(metadata: bytes, num_bytes: int) -> None:
            nonlocal saved
            stores = self._places()
            manifest = self._manifest(step, metadata, num_bytes)
            for place in stores:
                place.folder(step, self.number).write(METADATA, metadata)
            for place in stores:
                place.commit(manifest)
            for place in stores:
                _sweep(place, manifest)
            folders = [place.folder(step, self.number).url for place in stores]
            saved = Saved(step, num_bytes, time.monotonic() - begun_s, folders)
            saved.report()

        own = self.urls[self.members.number]
        writer = Writer(lambda: self.at(own).folder(step, self.number), self.members.number, prepare, commit)
        try:
            save(state, storage_writer=writer, process_group=self.members.group)
        except CheckpointException as error:
            raise self._named(error) from error
        except RuntimeError as error:  # gloo's
            first = str(error).partition("\n")[0]
            raise PeerLostError(f"ranks {list(self.ranks)} do not all answer: {first}") from error
        return saved

    def _places(self) -> list[ShardedCheckpoints]:
        """Of the copy, each once."""
        return [self.at(url) for url in dict.fromkeys(self.urls)]

    def _manifest(self, step: int, metadata: bytes, num_bytes: int) -> Manifest:
        files = tuple((file_name(number), url) for number, url in enumerate(self.urls))
        first = self.at(self.urls[0])
        return Manifest(
            job=first.owner.job,
            attempt=first.attempt,
            step=step,
            copy=self.number,
            num_copies=self.num_copies,
            num_bytes=num_bytes,
            metadata_sha256=hashlib.sha256(metadata).hexdigest(),
            num_metadata_bytes=len(metadata),
            files=files if len({url for _, url in files}) > 1 else (),
        )

    def _named(self, error: CheckpointException) -> HulkError:
        """What went wrong on which rank, without torch's traces."""
        found = {self.ranks[place]: failure[0] for place, failure in error.failures.items()}
        final = next((cause for cause in found.values() if isinstance(cause, FencedError | ConfigurationError)), None)
        words = [
            f"rank {rank}: {cause if isinstance(cause, HulkError) else repr(cause)}"
            for rank, cause in sorted(found.items())
        ]
        return final or CheckpointError("; ".join(words[:4]))


def _sweep(place: ShardedCheckpoints, written: Manifest) -> None:
    try:
        place.sweep(written)
    except CheckpointError as error:  # what is written is complete
        say(f"older checkpoints are left: {error}")


def say(line: str) -> None:
    """One line, at once and whole: several threads print."""
    print(f"hulk: {line}\n", end="", flush=True)
