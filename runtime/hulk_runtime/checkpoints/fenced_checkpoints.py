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
`begun`, seal and manifest are signed by the job (`signed_objects`), and a manifest has the digest of each state that it
names, a state in stages those of its parts: what somebody else has written or changed is never loaded. It is said and
passed over like damage, and a fence that the job did not sign stops nobody.
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
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hulk_runtime.checkpoints import stage_parts
from hulk_runtime.checkpoints.object_store import Listed, Store
from hulk_runtime.checkpoints.signed_objects import TERM, SignedObjects, by_term, term
from hulk_runtime.checkpoints.signing import Owner
from hulk_runtime.errors import CheckpointError

FORMAT: Final = 1
_STATE_KEY: Final = re.compile(rf"state-{TERM}-(\d{{10}})")
_PART_KEY: Final = re.compile(rf"part-{TERM}-(\d{{10}})-\d{{4}}")
_WRITTEN_BY: Final = re.compile(rf"(?:begun|resume|latest|state)-{TERM}")
_PART_WRITTEN_BY: Final = re.compile(rf"part-{TERM}")


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
    job: str = ""
    job_uid: str = ""
    attempt: int
    entries: tuple[Entry, ...]


class Checkpoints:
    """One attempt's view of the folder. Only rank 0 makes one, or the lowest rank that is left."""

    def __init__(self, store: Store, attempt: int, num_kept: int, owner: Owner) -> None:
        self.where = store.url
        self.store = store
        self.signed = SignedObjects(store, owner)
        self._owner = owner
        self._attempt = attempt
        self._term = term(attempt)
        self._num_kept = num_kept
        self._entries: tuple[Entry, ...] = ()

    def begin(self) -> tuple[Entry, bytes] | None:
        """Fence off older attempts and read the newest complete checkpoint; None when there is none.

        A damaged or foreign manifest or state is passed over for the next older one. Raises CheckpointError when none
        is left, or the store has lost what was committed: to start from nothing in silence would lose the run. Raises
        FencedError when a newer attempt has begun.
        """
        self.signed.require_newest(self._term)
        self._sweep_unfinished()  # before the first write: they may have filled the volume
        owner = self._owner
        inherited = self._fence(0 if owner.trusts_store else owner.committed_step)
        there = self.store.list_objects()
        for index, entry in enumerate(inherited):
            state = self._intact(entry, there)
            if state is not None:
                self._entries = inherited[index:]
                self._note_rollback(entry)
                return entry, state
        if inherited:
            tried = ", ".join(f"step {entry.step} of attempt {entry.attempt}" for entry in inherited)
            raise CheckpointError(f"no checkpoint in {self.where} is intact: {tried}{self.signed.why()}")
        return None

    def take_over(self, epoch: int) -> None:
        """Go on in another membership epoch, with the state in memory: whoever was left out commits nothing any more.

        Raises FencedError when a newer attempt or epoch has begun.
        """
        self.signed.require_newest(self._term)
        self._term = term(self._attempt, epoch)
        self._entries = self._fence(committed_step=0)

    def commit(self, step: int, state: bytes, content: dict[str, str | int | float]) -> Entry:
        """Write the state after `step` and make it the one to resume from. Raises FencedError."""
        self.signed.require_newest(self._term)
        self._sweep_unfinished()
        key = f"state-{self._term}-{step:010d}"
        digest = hashlib.sha256(state).hexdigest()
        entry = Entry(attempt=self._attempt, step=step, key=key, num_bytes=len(state), sha256=digest, content=content)
        self.store.write(key, state)
        kept = (entry, *self._entries)[: self._num_kept]
        self._write_manifest("latest", kept)
        self.signed.require_newest(self._term)
        self._entries = kept
        self._sweep()
        return entry

    def _fence(self, committed_step: int) -> tuple[Entry, ...]:
        """Say that this term has begun, and seal what it accepts of the older ones."""
        self.signed.fence(self._term)
        inherited = self._inherited(committed_step)
        self._write_manifest("resume", inherited)
        return inherited

    def _inherited(self, committed_step: int) -> tuple[Entry, ...]:
        """What the newest intact manifest names.

        An empty seal does not prove a new run after a damaged one, nor where a step was committed.
        """
        there = self.store.list_objects()
        unsealed = {key: of for key, of in _unsealed(there).items() if of < self._term}
        damaged = bool(unsealed or committed_step)
        found: tuple[Entry, ...] = ()
        for key in _manifests(there):
            manifest = self._read_manifest(key, there[key])
            if manifest is None:
                damaged = True
            elif manifest.entries or not damaged:
                found = manifest.entries
                break
        for of in sorted({unsealed[key] for key in unsealed.keys() - {entry.key for entry in found}}):
            self.signed.refuse(f"resume-{of}", "is missing, and there are states of that attempt")
        if damaged and not found:
            committed = f", and step {committed_step} was committed" if committed_step else ""
            raise CheckpointError(
                f"no intact manifest in {self.where} names a checkpoint{committed}{self.signed.why()}"
            )
        return found

    def _intact(self, entry: Entry, there: Mapping[str, Listed]) -> bytes | None:
        content = None
        fault = stage_parts.fault_of_size(there.get(entry.key), entry.num_bytes)
        if not fault:
            content = self.store.read(entry.key)
            fault = stage_parts.fault(content, entry.sha256)
        if not fault and content and "stages" in entry.content:
            fault = stage_parts.fault_of_parts(content, self.store, there)
        if not fault:
            return content
        self.signed.refuse(entry.key, fault)
        return None

    def _read_manifest(self, key: str, listed: Listed) -> Manifest | None:
        """None when it is damaged or not the job's own. Raises CheckpointError when it is of another format."""
        content, fault = self.signed.read(key, listed)
        if fault:
            return None
        try:
            manifest = Manifest.model_validate_json(content)
        except ValidationError as error:
            self.signed.refuse(key, f"is damaged: {error.errors()[0]['msg']}")
            return None
        if manifest.format != FORMAT:
            raise CheckpointError(f"{self.where}/{key} has format {manifest.format}, this runtime reads {FORMAT}")
        return manifest

    def _note_rollback(self, entry: Entry) -> None:
        if entry.step < self._owner.committed_step:
            self.signed.refuse(
                entry.key, f"is the newest that is left, and step {self._owner.committed_step} was committed"
            )

    def _write_manifest(self, kind: str, entries: tuple[Entry, ...]) -> None:
        owner = self._owner
        manifest = Manifest(job=owner.job, job_uid=owner.job_uid, attempt=self._attempt, entries=entries)
        self.signed.write(f"{kind}-{self._term}", manifest.model_dump_json().encode())

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


def part_key(attempt: int, step: int, stage: int) -> str:
    """Of one stage's part of the state after a step.

    >>> part_key(2, 30, 1)
    'part-00000002-0000000030-0001'
    """
    return f"part-{term(attempt)}-{step:010d}-{stage:04d}"


def _manifests(keys: Iterable[str]) -> list[str]:
    """Manifests and seals, newest first: each term's manifest before its seal."""
    found = set(keys)
    terms = sorted(set(by_term(found).values()), reverse=True)
    return [key for of in terms for kind in ("latest", "resume") if (key := f"{kind}-{of}") in found]


def _unsealed(keys: Collection[str]) -> dict[str, str]:
    """States whose term has no manifest, and the term: a seal is written before the first of them and never deleted.

    >>> _unsealed(["resume-00000001", "state-00000001-0000000005", "part-00000002-0000000009-0001"])
    {'state-00000002-0000000009': '00000002'}
    """
    sealed = set(by_term(_manifests(keys)).values())
    matches = (_STATE_KEY.fullmatch(key) or _PART_KEY.fullmatch(key) for key in keys)
    return {f"state-{match[1]}-{match[2]}": match[1] for match in matches if match and match[1] not in sealed}
