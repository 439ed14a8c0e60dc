"""Checkpoints that an older attempt of the job can neither overwrite nor commit behind a newer one's back.

Everything is a whole object in one folder; attempt numbers only grow, and so do the membership epochs within an attempt
(ranks that go on without a region that was cut off). What is said of attempts here holds for epochs as well: epoch E of
attempt A writes as `A.E`, which is newer than A and older than A+1.

    begun-A      attempt A exists: the fence
    resume-A     the checkpoints that A accepted when it began, sealed
    latest-A     the checkpoints that A stands on now, newest first: its manifest
    state-A-S    the state after step S, written by A, unreferenced until `latest-A` names it
    part-A-S-P   of a model in stages: the part of stage P, which `state-A-S` names

An attempt writes only its own objects, so it cannot overwrite another's. A reader looks at the highest attempt that has
a manifest or, failing that, a seal: whatever an older attempt writes after a newer one has sealed is never read again,
unless all that the newer ones wrote is damaged.
A commit writes state, then manifest, then looks for a higher `begun`; only when there is none does it delete states
that the manifest no longer names. So a state named in a newer attempt's seal is never deleted: the newer attempt wrote
`begun` before it read the manifest.

| attempt 1            | attempt 2                     | what is read then    |
|----------------------|-------------------------------|----------------------|
| begun, commit step 5 |                               | step 5 of attempt 1  |
|                      | begun, seal (1, 5)            | step 5 of attempt 1  |
| writes latest-1 at 9 |                               | step 5 of attempt 1  |
| FencedError          | commit step 8                 | step 8 of attempt 2  |
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hulk_runtime.checkpoints import stage_parts
from hulk_runtime.checkpoints.object_store import Store
from hulk_runtime.errors import CheckpointError, FencedError

FORMAT: Final = 1
_TERM: Final = r"(\d{8}(?:\.\d{4})?)"
_TERM_KEY: Final = re.compile(rf"(begun|resume|latest)-{_TERM}")
_STATE_KEY: Final = re.compile(rf"state-{_TERM}-\d{{10}}")
_PART_KEY: Final = re.compile(rf"part-{_TERM}-(\d{{10}})-\d{{4}}")
_WRITTEN_BY: Final = re.compile(rf"(?:begun|resume|latest|state)-{_TERM}")
_PART_WRITTEN_BY: Final = re.compile(rf"part-{_TERM}")


class Entry(BaseModel):
    """One complete checkpoint. `content` says what its bytes mean (see `training.State`)."""

    model_config = ConfigDict(frozen=True)

    attempt: Annotated[int, Field(ge=1)]
    step: Annotated[int, Field(ge=0)]
    key: str
    num_bytes: Annotated[int, Field(ge=0)]
    sha256: str
    content: dict[str, str | int | float]


class Manifest(BaseModel):
    """The checkpoints that one attempt stands on, newest first."""

    model_config = ConfigDict(frozen=True)

    format: int = FORMAT
    attempt: int
    entries: tuple[Entry, ...]


class Checkpoints:
    """One attempt's view of the folder. Only rank 0 makes one, or the lowest rank that is left."""

    def __init__(self, store: Store, attempt: int, num_kept: int) -> None:
        self.where = store.url
        self.store = store
        self._attempt = attempt
        self._term = term(attempt)
        self._num_kept = num_kept
        self._entries: tuple[Entry, ...] = ()

    def begin(self) -> tuple[Entry, bytes] | None:
        """Fence off older attempts and read the newest complete checkpoint; None when there is none.

        A damaged manifest or state is passed over for the next older one. Raises CheckpointError when all are damaged:
        to start from nothing in silence would lose the run. Raises FencedError when a newer attempt has begun.
        """
        self._require_newest()
        self._sweep_unfinished()  # before the first write: they may have filled the volume
        inherited = self._fence()
        for index, entry in enumerate(inherited):
            state = self._intact(entry)
            if state is not None:
                self._entries = inherited[index:]
                return entry, state
        if inherited:
            tried = ", ".join(f"step {entry.step} of attempt {entry.attempt}" for entry in inherited)
            raise CheckpointError(f"no checkpoint in {self.where} is intact: {tried}")
        return None

    def take_over(self, epoch: int) -> None:
        """Go on in another membership epoch, with the state in memory: whoever was left out commits nothing any more.

        Raises FencedError when a newer attempt or epoch has begun.
        """
        self._require_newest()
        self._term = term(self._attempt, epoch)
        self._entries = self._fence()

    def commit(self, step: int, state: bytes, content: dict[str, str | int | float]) -> Entry:
        """Write the state after `step` and make it the one to resume from. Raises FencedError."""
        self._require_newest()
        self._sweep_unfinished()
        key = f"state-{self._term}-{step:010d}"
        digest = hashlib.sha256(state).hexdigest()
        entry = Entry(attempt=self._attempt, step=step, key=key, num_bytes=len(state), sha256=digest, content=content)
        self.store.write(key, state)
        kept = (entry, *self._entries)[: self._num_kept]
        self._write_manifest("latest", kept)
        self._require_newest()
        self._entries = kept
        self._sweep()
        return entry

    def _fence(self) -> tuple[Entry, ...]:
        """Say that this term has begun, and seal what it accepts of the older ones."""
        self.store.write(f"begun-{self._term}", b"{}")
        inherited = self._inherited()
        self._write_manifest("resume", inherited)
        return inherited

    def _require_newest(self) -> None:
        newest = max(_terms(self.store.list_keys()), default="")
        if newest > self._term:
            raise FencedError(f"{_name(newest)} has begun in {self.where}; {_name(self._term)} may not commit")

    def _inherited(self) -> tuple[Entry, ...]:
        """What the newest intact manifest names; after a damaged one, an empty seal does not prove a new run."""
        damaged = []
        for key in _manifests(self.store.list_keys()):
            manifest = self._read_manifest(key)
            if manifest is None:
                damaged.append(key)
            elif manifest.entries or not damaged:
                return manifest.entries
        if damaged:
            found = ", ".join(damaged)
            raise CheckpointError(f"no intact manifest in {self.where} names a checkpoint; damaged: {found}")
        return ()

    def _intact(self, entry: Entry) -> bytes | None:
        content = self.store.read(entry.key)
        if content is not None and hashlib.sha256(content).hexdigest() == entry.sha256:
            found = stage_parts.wrong(content, self.store) if "stages" in entry.content else ""
            if not found:
                return content
        else:
            found = (
                "is missing" if content is None else f"has {len(content)} of {entry.num_bytes} bytes or other content"
            )
        print(f"checkpoint {self.where}/{entry.key} {found}", flush=True)
        return None

    def _read_manifest(self, key: str) -> Manifest | None:
        """None when it is damaged. Raises CheckpointError when it is of another format."""
        try:
            manifest = Manifest.model_validate_json(self.store.read(key) or b"")
        except ValidationError as error:
            print(f"checkpoint manifest {self.where}/{key} is damaged: {error.errors()[0]['msg']}", flush=True)
            return None
        if manifest.format != FORMAT:
            raise CheckpointError(f"{self.where}/{key} has format {manifest.format}, this runtime reads {FORMAT}")
        return manifest

    def _write_manifest(self, kind: str, entries: tuple[Entry, ...]) -> None:
        manifest = Manifest(attempt=self._attempt, entries=entries)
        self.store.write(f"{kind}-{self._term}", manifest.model_dump_json().encode())

    def _sweep(self) -> None:
        """Delete states that this attempt's manifest does not name; those of newer attempts are not ours to judge.

        Parts of a later step are being written by other ranks.
        """
        kept = {entry.key for entry in self._entries}
        last = (self._term, self._entries[0].step)
        for key in self.store.list_keys():
            match, part = _STATE_KEY.fullmatch(key), _PART_KEY.fullmatch(key)
            is_old_state = match and key not in kept and match[1] <= self._term
            is_old_part = part and f"state-{part[1]}-{part[2]}" not in kept and (part[1], int(part[2])) < last
            if is_old_state or is_old_part:
                self.store.delete(key)

    def _sweep_unfinished(self) -> None:
        """Delete what writes that failed or were killed have left: a state's leftover is as large as the state.

        Parts of this attempt are being written by other ranks.
        """
        for name in self.store.list_unfinished():
            match, part = _WRITTEN_BY.match(name), _PART_WRITTEN_BY.match(name)
            if (match and match[1] <= self._term) or (part and part[1] < self._term):
                self.store.delete(name)


def term(attempt: int, epoch: int = 0) -> str:
    """Who writes, as a text that is larger for whoever is newer.

    >>> term(2), term(2, epoch=1)
    ('00000002', '00000002.0001')
    """
    return f"{attempt:08d}.{epoch:04d}" if epoch else f"{attempt:08d}"


def part_key(attempt: int, step: int, stage: int) -> str:
    """Of one stage's part of the state after a step.

    >>> part_key(2, 30, 1)
    'part-00000002-0000000030-0001'
    """
    return f"part-{term(attempt)}-{step:010d}-{stage:04d}"


def _name(of: str) -> str:
    """A term in words."""
    attempt, _, epoch = of.partition(".")
    return f"attempt {int(attempt)}" + (f", membership epoch {int(epoch)}," if epoch else "")


def _manifests(keys: Iterable[str]) -> list[str]:
    """Manifests and seals, newest first: each term's manifest before its seal."""
    found = set(keys)
    terms = sorted(_terms(found), reverse=True)
    return [key for of in terms for kind in ("latest", "resume") if (key := f"{kind}-{of}") in found]


def _terms(keys: Iterable[str]) -> set[str]:
    return {match[2] for key in keys if (match := _TERM_KEY.fullmatch(key))}
