"""Checkpoints that many ranks have written, in one of the stores that a job names.

    begun-A              attempt A exists: the fence, as of checkpoints in one object (`fenced_checkpoints`)
    sharded-A-S-C        a folder: copy C of the state after step S, written by attempt A, as torch writes it
    sharded-A-S-C.json   its manifest, written last and signed by the job: without it the folder is no checkpoint

A manifest has the digest of the folder's metadata, and those have the digest of each piece, so that nothing that
somebody else wrote is believed, or even unpickled. A copy is whole in itself: each region writes one. A newer attempt
writes `begun` before it looks what is there, and an older one looks for it before it commits or deletes: what
a newer one resumes from stays.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Annotated, Final

from hulk_runtime.checkpoints.object_store import Store
from hulk_runtime.checkpoints.signing import Owner
from hulk_runtime.errors import CheckpointError, FencedError
from hulk_runtime.plan.document import DocumentError, Must, Natural, Positive, key_of, read

FORMAT: Final = 1
METADATA: Final = ".metadata"
"""torch's own name."""
MAX_SIGNED_BYTES: Final = 4 << 20
MAX_SAID: Final = 1000
"""Lines about what is not the job's own, which somebody may make up by the thousand."""
_NAME: Final = re.compile(r"sharded-(\d{8})-(\d{10})-(\d{4})(\.json)?")
_BEGUN: Final = re.compile(r"begun-(\d{8})(?:\.\d{4})?")
_FENCE: Final = b'{"format":1}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One copy of a state. `files`: which store each file is in, by its URL, where these are several: all have this."""

    format: Annotated[int, Must(f"be {FORMAT}", lambda found: found == FORMAT)] = FORMAT
    job: str
    attempt: Positive
    step: Natural
    copy: Natural
    num_copies: Positive
    num_bytes: Natural
    metadata_sha256: str
    files: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """Of its folder."""
        return folder_name(self.attempt, self.step, self.copy)

    @property
    def age(self) -> tuple[int, int]:
        """What a newer attempt has written is newer, whatever step it is at: it went on from what it accepted."""
        return self.attempt, self.step


def folder_name(attempt: int, step: int, copy: int) -> str:
    """
    >>> folder_name(2, 30, 0)
    'sharded-00000002-0000000030-0000'
    """
    return f"sharded-{attempt:08d}-{step:010d}-{copy:04d}"


class ShardedCheckpoints:
    """One attempt's view of one store; only one rank of a copy commits, and one of a store sweeps."""

    def __init__(self, store: Store, attempt: int, num_kept: int, owner: Owner) -> None:
        self.store = store
        self.attempt, self.owner, self._num_kept = attempt, owner, num_kept
        self._said: set[str] = set()

    def begin(self) -> list[Manifest]:
        """Fence off older attempts, and list what is complete, newest first. Raises FencedError where this is older."""
        self.require_newest()
        name = f"begun-{self.attempt:08d}"
        self.store.write(name, self.owner.signed(name, _FENCE))
        names = (match[0] for key in self.store.list_keys() if (match := _NAME.fullmatch(key)) and match[4])
        found = [manifest for name in names if (manifest := self._read(name)) is not None]
        return sorted(found, key=lambda manifest: (manifest.age, -manifest.copy), reverse=True)

    def prepare(self, step: int, copy: int) -> None:
        """Delete what an earlier run by the same number left where a copy is to be written."""
        name = folder_name(self.attempt, step, copy)
        self.store.delete(f"{name}.json")
        self.store.delete_folder(name)

    def folder(self, step: int, copy: int) -> Store:
        """Where a copy of this attempt is written."""
        return self.store.folder(folder_name(self.attempt, step, copy))

    def commit(self, manifest: Manifest) -> None:
        """From here on the copy counts; older ones that are too many are deleted. Raises FencedError."""
        self.require_newest()
        key = f"{manifest.name}.json"
        body = json.dumps({key_of(name): value for name, value in asdict(manifest).items()}, separators=(",", ":"))
        self.store.write(key, self.owner.signed(key, body.encode()))
        self.require_newest()
        self._sweep(manifest.copy)

    def metadata(self, manifest: Manifest) -> bytes:
        """What a copy's pieces are, as it was written. Raises CheckpointError."""
        held = self.store.folder(manifest.name).read(METADATA)
        if held is None or hashlib.sha256(held).hexdigest() != manifest.metadata_sha256:
            fault = "missing" if held is None else "not as it was written"
            raise CheckpointError(f"{self.store.url}/{manifest.name}/{METADATA} is {fault}")
        return held

    def require_newest(self) -> None:
        """Raises FencedError where a newer attempt has begun: a fence that the job did not sign is none."""
        begun = ((int(match[1]), key) for key in self.store.list_keys() if (match := _BEGUN.fullmatch(key)))
        for attempt, key in sorted(begun, reverse=True):
            if attempt <= self.attempt:
                return
            if self._is_own(key, self.store.read(key) or b""):
                raise FencedError(
                    f"attempt {attempt} has begun in {self.store.url}; attempt {self.attempt} may not commit"
                )

    def sweep_unfinished(self) -> None:
        """Delete what earlier attempts have not finished, before anything of this one is written."""
        self._delete_unfinished(lambda attempt, step, copy: attempt <= self.attempt)

    def _sweep(self, copy: int) -> None:
        """What is more than is kept of each copy, or older where there were others; what this copy's ranks gave up."""
        complete = _complete(self.store.list_keys())
        kept = {each: sorted((age for age, of, _ in complete if of == each), reverse=True) for _, each, _ in complete}
        oldest = {each: ages[: self._num_kept][-1] for each, ages in kept.items()}
        is_full = len(kept[copy]) >= self._num_kept
        for age, of, name in complete:
            if age < oldest[of] or (is_full and age[0] < self.attempt and age < oldest[copy]):
                self.store.delete(f"{name}.json")
                self.store.delete_folder(name)
        newest = kept[copy][0]
        self._delete_unfinished(
            lambda attempt, step, of: attempt < self.attempt or (of == copy and (attempt, step) < newest)
        )

    def _delete_unfinished(self, is_given_up: Callable[[int, int, int], bool]) -> None:
        keys = self.store.list_keys()
        complete = {name for _, _, name in _complete(keys)}
        for match in filter(None, map(_NAME.fullmatch, keys)):
            if match[0] not in complete and not match[4] and is_given_up(int(match[1]), int(match[2]), int(match[3])):
                self.store.delete_folder(match[0])

    def _read(self, key: str) -> Manifest | None:
        """None, and a line that says why, where it is not to be believed."""
        content = self.store.read(key) or b""
        if len(content) > MAX_SIGNED_BYTES or not self._is_own(key, content):
            return None
        try:
            found = read(Manifest, json.loads(content))
        except (DocumentError, ValueError, RecursionError) as error:
            self._say(key, f"is damaged: {error}")
            return None
        if f"{found.name}.json" != key:
            self._say(key, f"is the manifest of {found.name}")
            return None
        return found

    def _is_own(self, key: str, content: bytes) -> bool:
        fault = self.owner.fault(key, content)
        if fault:
            self._say(key, f"{fault}{', and is believed' if self.owner.trusts_store else ''}")
        return not fault or self.owner.trusts_store

    def _say(self, key: str, fault: str) -> None:
        """Once: fences are looked at in every commit."""
        line = f"{key} {fault}"
        if line not in self._said and len(self._said) < MAX_SAID:
            self._said.add(line)
            print(f"checkpoint {self.store.url}/{line}\n", end="", flush=True)


def _complete(keys: Iterable[str]) -> list[tuple[tuple[int, int], int, str]]:
    """Age, number and name of each copy that has a manifest.

    >>> _complete(["sharded-00000001-0000000005-0000", "sharded-00000001-0000000005-0000.json"])
    [((1, 5), 0, 'sharded-00000001-0000000005-0000')]
    """
    matches = (match for match in map(_NAME.fullmatch, keys) if match and match[4])
    return [((int(match[1]), int(match[2])), int(match[3]), match[0].removesuffix(".json")) for match in matches]
