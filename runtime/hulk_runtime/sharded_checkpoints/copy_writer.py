"""A staged state -> one copy of it in the stores of those who write it together."""

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
class CopyWriter:
    """This rank's part in one copy. `urls`: the store of each of its `ranks`, whose first one commits.

    `at` opens a store, as late as something is written: one that cannot be opened costs a checkpoint.
    """

    number: int
    num_copies: int
    ranks: Sequence[int]
    urls: Sequence[str]
    at: Callable[[str], ShardedCheckpoints]
    members: Ranks

    def write(self, step: int, state: dict[str, Any]) -> None:
        """All ranks together.

        Raises CheckpointError, ConfigurationError or FencedError, the same on all of them, or PeerLostError.
        """
        begun_s = time.monotonic()

        def prepare() -> None:
            for place in self._places():
                place.prepare(step, self.number)

        def commit(metadata: bytes, num_bytes: int) -> None:
            stores = self._places()
            manifest = self._manifest(step, metadata, num_bytes)
            for place in stores:
                place.folder(step, self.number).write(METADATA, metadata)
            for place in stores:
                place.commit(manifest)
            for place in stores:
                _sweep(place, manifest)
            step_record.saved(step, num_bytes)
            seconds = time.monotonic() - begun_s
            where = ", ".join(place.folder(step, self.number).url for place in stores)
            say(f"checkpoint step={step} bytes={num_bytes} seconds={seconds:.3g} where={where}")

        own = self.urls[self.members.number]
        writer = Writer(lambda: self.at(own).folder(step, self.number), self.members.number, prepare, commit)
        try:
            save(state, storage_writer=writer, process_group=self.members.group)
        except CheckpointException as error:
            raise self._named(error) from error
        except RuntimeError as error:  # gloo's
            first = str(error).partition("\n")[0]
            raise PeerLostError(f"ranks {list(self.ranks)} do not all answer: {first}") from error

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
