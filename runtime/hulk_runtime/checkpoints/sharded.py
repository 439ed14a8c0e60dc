"""Checkpoints that many ranks have written, in one of the stores that a job names.

    begun-A              attempt A exists: the fence (`signed_objects`)
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
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Annotated, Final

from hulk_runtime.checkpoints.object_store import Listed, Store
from hulk_runtime.checkpoints.signed_objects import MAX_NAMED, SignedObjects, by_term, term
from hulk_runtime.checkpoints.signing import Owner
from hulk_runtime.errors import CheckpointError
from hulk_runtime.plan.document import DocumentError, Must, Natural, Positive, key_of, read

FORMAT: Final = 1
METADATA: Final = ".metadata"
"""torch's own name."""
_NAME: Final = re.compile(r"sharded-(\d{8})-(\d{10})-(\d{4})(\.json)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One copy of a state.

    `num_metadata_bytes`: 0 where an older version wrote it. `files`: which store each file is in, by its URL, where
    these are several: all have this.
    """

    format: Annotated[int, Must(f"be {FORMAT}", lambda found: found == FORMAT)] = FORMAT
    job: str
    attempt: Positive
    step: Natural
    copy: Natural
    num_copies: Positive
    num_bytes: Natural
    metadata_sha256: str
    num_metadata_bytes: Natural = 0
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
    """One attempt's view of one store; only one rank of a copy commits, and one of a store sweeps.

    `believed`: the names of the copies that this attempt believes to be there, in any store, or has written. No other
    name counts when old copies are deleted: anybody who writes to the store can make one up.
    """

    def __init__(
        self, store: Store, attempt: int, num_kept: int, owner: Owner, believed: set[str] | None = None
    ) -> None:
        self.store = store
        self.attempt, self.owner, self._num_kept = attempt, owner, num_kept
        self._believed = set() if believed is None else believed
        self.signed, self._term = SignedObjects(store, owner), term(attempt)
        self.faults: list[str] = []
        """Of what `begin` has found, where the store is not trusted: manifests that are damaged, foreign or gone."""

    def begin(self) -> list[Manifest]:
        """Fence off older attempts, and list what is complete, newest first. Raises FencedError where this is older."""
        self.signed.require_newest(self._term)
        self.signed.fence(self._term)
        self.faults, there = [], self.store.list_objects()
        names = (match[0] for key in there if (match := _NAME.fullmatch(key)) and match[4])
        found = [manifest for name in names if (manifest := self._read(name, there[name])) is not None]
        if not found:
            self._note_lost(there)
        self._believed.update(manifest.name for manifest in found)
        return sorted(found, key=lambda manifest: (manifest.age, -manifest.copy), reverse=True)

    def _note_lost(self, keys: Collection[str]) -> None:
        """Folders that were complete: a save that was broken off leaves one, of an attempt with a fence."""
        begun = {int(of.partition(".")[0]) for of in by_term(keys).values()}
        whole: dict[tuple[int, int], list[str]] = {}
        for match in filter(None, map(_NAME.fullmatch, keys)):
            is_alone = not match[4] and f"{match[0]}.json" not in keys
            if is_alone and METADATA in self.store.folder(match[0]).list_keys():
                whole.setdefault((int(match[1]), int(match[3])), []).append(match[0])
        for (attempt, _), names in whole.items():
            if len(names) > 1 or attempt not in begun:
                for name in names:
                    self._refuse(name, "has lost its manifest")

    def prepare(self, step: int, copy: int) -> None:
        """Delete what an earlier run by the same number left where a copy is to be written."""
        name = folder_name(self.attempt, step, copy)
        self._believed.discard(name)
        self.store.delete(f"{name}.json")
        self.store.delete_folder(name)

    def folder(self, step: int, copy: int) -> Store:
        """Where a copy of this attempt is written."""
        return self.store.folder(folder_name(self.attempt, step, copy))

    def commit(self, manifest: Manifest) -> None:
        """From here on the copy counts. Raises FencedError."""
        self.signed.require_newest(self._term)
        body = json.dumps({key_of(name): value for name, value in asdict(manifest).items()}, separators=(",", ":"))
        self.signed.write(f"{manifest.name}.json", body.encode())
        self._believed.add(manifest.name)

    def sweep(self, written: Manifest) -> None:
        """Delete what is more than is kept of each copy, or older where there were others, and what this copy gave up.

        Called once all of the copy's stores have its manifest. Raises FencedError.
        """
        self.signed.require_newest(self._term)
        found, copy = self._believed_here(self.store.list_keys()), written.copy
        kept = {each: sorted((age for age, of, _ in found if of == each), reverse=True) for _, each, _ in found}
        oldest = {each: ages[: self._num_kept][-1] for each, ages in kept.items()}
        is_full = len(kept[copy]) >= self._num_kept
        for age, of, name in found:
            is_too_many = age < oldest[of] or (is_full and age[0] < self.attempt and age < oldest[copy])
            if is_too_many and name != written.name:
                self.store.delete(f"{name}.json")
                self.store.delete_folder(name)
        self._delete_unfinished(
            lambda attempt, step, of: attempt < self.attempt or (of == copy and (attempt, step) < written.age)
        )

    def metadata(self, manifest: Manifest) -> bytes:
        """What a copy's pieces are, as it was written. Raises CheckpointError."""
        folder, num_bytes = self.store.folder(manifest.name), manifest.num_metadata_bytes
        held = folder.read_range(METADATA, 0, num_bytes + 1) if num_bytes else folder.read(METADATA)
        if held is None or hashlib.sha256(held).hexdigest() != manifest.metadata_sha256:
            fault = "missing" if held is None else "not as it was written"
            raise CheckpointError(f"{self.store.url}/{manifest.name}/{METADATA} is {fault}")
        return held

    def sweep_unfinished(self) -> None:
        """Delete what earlier attempts have not finished, before anything of this one is written."""
        self._delete_unfinished(lambda attempt, step, copy: attempt <= self.attempt)

    def _believed_here(self, keys: Iterable[str]) -> list[tuple[tuple[int, int], int, str]]:
        """Age, number and name of each copy of which this store has something."""
        matches = {match.group(1, 2, 3): match for match in map(_NAME.fullmatch, keys) if match}
        names = ((match, match[0].removesuffix(".json")) for match in matches.values())
        return [
            ((int(match[1]), int(match[2])), int(match[3]), name) for match, name in names if name in self._believed
        ]

    def _delete_unfinished(self, is_given_up: Callable[[int, int, int], bool]) -> None:
        """Folders without a manifest, also one that is not believed: whoever looks into it has both."""
        keys = set(self.store.list_keys())
        for match in filter(None, map(_NAME.fullmatch, keys)):
            has_manifest = f"{match[0]}.json" in keys or match[0] in self._believed
            if not match[4] and not has_manifest and is_given_up(int(match[1]), int(match[2]), int(match[3])):
                self.store.delete_folder(match[0])

    def _read(self, key: str, listed: Listed) -> Manifest | None:
        """None, and a line that says why, where it is not to be believed."""
        content, fault = self.signed.read(key, listed)
        found = None
        if not fault:
            try:
                found = read(Manifest, json.loads(content))
            except (DocumentError, ValueError, RecursionError) as error:
                fault = f"is damaged: {error}"
        if found is not None and f"{found.name}.json" != key:
            fault = f"is the manifest of {found.name}"
        if fault:
            self._refuse(key, fault)
        return None if fault else found

    def _refuse(self, key: str, fault: str) -> None:
        self.signed.refuse(key, fault)
        if not self.owner.trusts_store and len(self.faults) < MAX_NAMED:
            self.faults.append(f"{self.store.url}/{key} {fault}")
