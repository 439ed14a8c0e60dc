"""A staged state -> one copy of it in the stores of those who write it together."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save

from hulk_runtime.checkpoints.sharded import METADATA, Manifest, ShardedCheckpoints
from hulk_runtime.errors import CheckpointError, FencedError, HulkError, PeerLostError
from hulk_runtime.job import step_record
from hulk_runtime.sharded_checkpoints.ranks import Ranks
from hulk_runtime.sharded_checkpoints.storage import Writer, file_name


@dataclass(frozen=True, slots=True)
class CopyWriter:
    """This rank's part in one copy. `places`: the store of each of its `ranks`, whose first one commits."""

    number: int
    num_copies: int
    ranks: Sequence[int]
    places: Sequence[ShardedCheckpoints]
    members: Ranks

    def write(self, step: int, state: dict[str, Any]) -> None:
        """All ranks together. Raises CheckpointError or FencedError, the same on all of them, or PeerLostError."""
        begun_s = time.monotonic()
        stores = {place.store.url: place for place in self.places}.values()

        def prepare() -> None:
            for place in stores:
                place.prepare(step, self.number)

        def commit(metadata: bytes, num_bytes: int) -> None:
            manifest = self._manifest(step, metadata, num_bytes)
            for place in stores:
                place.folder(step, self.number).write(METADATA, metadata)
            for place in stores:
                place.commit(manifest)
            step_record.saved(step, num_bytes)
            seconds = time.monotonic() - begun_s
            where = ", ".join(place.folder(step, self.number).url for place in stores)
            say(f"checkpoint step={step} bytes={num_bytes} seconds={seconds:.3g} where={where}")

        own = self.places[self.members.number]
        writer = Writer(own.folder(step, self.number), self.members.number, prepare, commit)
        try:
            save(state, storage_writer=writer, process_group=self.members.group)
        except CheckpointException as error:
            raise self._named(error) from error
        except RuntimeError as error:  # gloo's
            first = str(error).partition("\n")[0]
            raise PeerLostError(f"ranks {list(self.ranks)} do not all answer: {first}") from error

    def _manifest(self, step: int, metadata: bytes, num_bytes: int) -> Manifest:
        files = tuple((file_name(number), place.store.url) for number, place in enumerate(self.places))
        first = self.places[0]
        return Manifest(
            job=first.owner.job,
            attempt=first.attempt,
            step=step,
            copy=self.number,
            num_copies=self.num_copies,
            num_bytes=num_bytes,
            metadata_sha256=hashlib.sha256(metadata).hexdigest(),
            files=files if len({url for _, url in files}) > 1 else (),
        )

    def _named(self, error: CheckpointException) -> HulkError:
        """What went wrong on which rank, without torch's traces."""
        found = {self.ranks[place]: failure[0] for place, failure in error.failures.items()}
        fenced = next((cause for cause in found.values() if isinstance(cause, FencedError)), None)
        words = [
            f"rank {rank}: {cause if isinstance(cause, HulkError) else repr(cause)}"
            for rank, cause in sorted(found.items())
        ]
        return fenced or CheckpointError("; ".join(words[:4]))


def say(line: str) -> None:
    """One line, at once and whole: several threads print."""
    print(f"hulk: {line}\n", end="", flush=True)
