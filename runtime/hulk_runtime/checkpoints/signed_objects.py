"""A folder that others may write to -> the fences, seals and manifests in it that the job itself has signed.

What the job did not sign is read once as long as it is the same, never when it is larger than what the job signs, and
named once. Their names say which term wrote them: a newer term of the job stops an older one.
"""

import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

from hulk_runtime.checkpoints.object_store import Listed, Store
from hulk_runtime.checkpoints.signing import Owner
from hulk_runtime.errors import FencedError

MAX_NAMED: Final = 8
"""Faults in one message, which is bounded; the log has more."""
MAX_REFUSED: Final = 1000
MAX_SIGNED_BYTES: Final = 4 << 20
"""Of a fence, seal or manifest: thousands of times what one has."""
TERM: Final = r"(\d{8}(?:\.\d{4})?)"
_TERM_KEY: Final = re.compile(rf"(?:begun|resume|latest)-{TERM}")


class SignedObjects:
    """One folder's, as one owner sees it."""

    def __init__(self, store: Store, owner: Owner) -> None:
        self.refused: dict[str, None] = {}
        """Objects that are not as this job wrote them, and what is wrong with each, in order: the first MAX_REFUSED."""
        self.num_refused = 0
        self._store, self._owner = store, owner
        self._foreign: dict[str, tuple[tuple[object, ...], str]] = {}

    def write(self, key: str, body: bytes) -> None:
        """A JSON object, with a signature."""
        self._store.write(key, self._owner.signed(key, body))

    def fence(self, of: str) -> None:
        """Say that a term has begun: older ones commit nothing any more."""
        self.write(f"begun-{of}", b'{"format":1}')

    def require_newest(self, own: str) -> None:
        """No object of a newer term is the job's own; anybody else who writes to the store can make one up.

        Raises FencedError.
        """
        there = self._store.list_objects()
        newer = ((of, key) for key, of in by_term(there).items() if of > own)
        for of, key in sorted(newer, reverse=True):
            if not self.read(key, there[key])[1]:
                raise FencedError(f"{_name(of)} has begun in {self._store.url}; {_name(own)} may not commit")

    def read(self, key: str, listed: Listed) -> tuple[bytes, str]:
        """An object, and why it is not to be believed; empty where it is."""
        version, fault = self._foreign.get(key, ((), ""))
        if listed.version and listed.version == version:
            return b"", fault
        content, fault = b"", f"has {listed.num_bytes} bytes, more than any that this job signs"
        is_read = listed.num_bytes <= MAX_SIGNED_BYTES
        if is_read:
            content = self._store.read(key) or b""
            fault = self._owner.fault(key, content)
        if fault:
            self.refuse(key, fault)
        if is_read and self._owner.trusts_store:
            return content, ""
        if fault:
            self._foreign[key] = listed.version, fault
        return content, fault

    def refuse(self, key: str, fault: str) -> None:
        """One line in the log for what was found, once; none any more where somebody makes up thousands."""
        line = f"{key} {fault}"
        if line in self.refused:
            return
        self.num_refused += 1
        if len(self.refused) < MAX_REFUSED:
            self.refused[line] = None
            more = "; what is found from here on is only counted" if len(self.refused) == MAX_REFUSED else ""
            print(f"checkpoint {self._store.url}/{line}{more}\n", end="", flush=True)

    def why(self) -> str:
        """What was found first, for a message."""
        more = self.num_refused - MAX_NAMED
        named = "".join(f"; {line}" for line in islice(self.refused, MAX_NAMED))
        return named + (f"; {more} more" if more > 0 else "")


def term(attempt: int, epoch: int = 0) -> str:
    """Who writes, as a text that is larger for whoever is newer.

    >>> term(2), term(2, epoch=1)
    ('00000002', '00000002.0001')
    """
    return f"{attempt:08d}.{epoch:04d}" if epoch else f"{attempt:08d}"


def by_term(keys: Iterable[str]) -> dict[str, str]:
    """The term of each fence, seal and manifest."""
    return {key: match[1] for key in keys if (match := _TERM_KEY.fullmatch(key))}


def _name(of: str) -> str:
    """A term in words."""
    attempt, _, epoch = of.partition(".")
    return f"attempt {int(attempt)}" + (f", membership epoch {int(epoch)}," if epoch else "")
