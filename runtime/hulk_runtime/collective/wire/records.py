"""What a connection carries: frames as they are, or records that nobody on the way can read, nor change unnoticed.

A sealed frame is a record of its header and one of its payload. A record is encrypted by AES-256-GCM, or by
ChaCha20-Poly1305 where the processor of either end has no AES, and ends with a tag of 16 bytes. Each direction of a
connection has a key of its own, and its n-th record the nonce n: a record that was changed, left out, repeated, sent
back, or taken from another connection does not open, and what does not open is never a frame.
(docs/reference/collective-wire.md)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from hulk_runtime.collective.wire.ciphers import AESGCM, HKDF, SHA256, ChaCha20Poly1305, HKDFExpand, InvalidTag
from hulk_runtime.collective.wire.frames import HEADER_BYTES

if TYPE_CHECKING:
    from typing_extensions import Self

TAG_BYTES: Final = 16
RECORDS_PER_KEY: Final = 1 << 20
"""Then the next key follows from this one: GCM is only as strong as its key's blocks are few."""
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_CPUINFO: Final = Path("/proc/cpuinfo")


class TamperedError(ConnectionError):
    """A record is not the one that the other end sent next."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Of one connection, as one end uses them."""

    send: bytes = field(repr=False)
    receive: bytes = field(repr=False)
    is_aes: bool

    @classmethod
    def derive(cls, secret: bytes, hellos: bytes, *, is_client: bool, is_aes: bool) -> Self:
        """From a secret and the client's and the server's HELLO, whose random bytes never come again (RFC 5869)."""
        found = HKDF(SHA256(), 2 * _KEY_BYTES, salt=hellos, info=b"hulk-records").derive(secret)
        of_client, of_server = found[:_KEY_BYTES], found[_KEY_BYTES:]
        return cls(of_client, of_server, is_aes) if is_client else cls(of_server, of_client, is_aes)


class Records(Protocol):
    """One connection's way to write and read frames. A record is longer than what is in it by `tag_bytes`."""

    tag_bytes: int

    def seal(self, head: bytes, payload: memoryview | None) -> list[memoryview]:
        """What to send for a frame; it stays as it is until the next call."""

    def take_back(self) -> None:
        """Nothing was sent of the last frame, which had no payload."""

    def open_head(self, record: memoryview) -> memoryview:
        """The header in a record. Raises TamperedError."""

    def room(self, place: memoryview) -> memoryview:
        """Where to receive the record whose payload belongs into `place`."""

    def open_payload(self, record: memoryview, place: memoryview) -> None:
        """Put the payload into its place. Raises TamperedError."""


class Plain:
    """Frames as they are."""

    tag_bytes = 0

    def seal(self, head: bytes, payload: memoryview | None) -> list[memoryview]:
        return [memoryview(head)] if payload is None else [memoryview(head), payload]

    def take_back(self) -> None:
        pass

    def open_head(self, record: memoryview) -> memoryview:
        return record

    def room(self, place: memoryview) -> memoryview:
        return place

    def open_payload(self, record: memoryview, place: memoryview) -> None:
        pass


class Sealed:
    """Frames as encrypted records, made and received in memory that is used again."""

    tag_bytes = TAG_BYTES

    def __init__(self, keys: Keys) -> None:
        self._out, self._in = _Direction(keys.send, keys.is_aes), _Direction(keys.receive, keys.is_aes)
        self._sealed, self._room = bytearray(), bytearray()
        self._head = memoryview(bytearray(HEADER_BYTES))

    def seal(self, head: bytes, payload: memoryview | None) -> list[memoryview]:
        of_head = HEADER_BYTES + TAG_BYTES
        num_bytes = of_head if payload is None else of_head + len(payload) + TAG_BYTES
        if num_bytes > len(self._sealed):
            self._sealed = bytearray(num_bytes)
        sealed = memoryview(self._sealed)[:num_bytes]
        self._out.seal(head, sealed[:of_head])
        if payload is not None:
            self._out.seal(payload, sealed[of_head:])
        return [sealed]

    def take_back(self) -> None:
        self._out.number -= 1

    def open_head(self, record: memoryview) -> memoryview:
        self._in.open(record, self._head)
        return self._head

    def room(self, place: memoryview) -> memoryview:
        num_bytes = len(place) + TAG_BYTES
        if num_bytes > len(self._room):
            self._room = bytearray(num_bytes)
        return memoryview(self._room)[:num_bytes]

    def open_payload(self, record: memoryview, place: memoryview) -> None:
        self._in.open(record, place)


class _Direction:
    """One direction's cipher. `number` is that of the next record, and its nonce: none is ever used for two."""

    def __init__(self, key: bytes, is_aes: bool) -> None:
        self._key, self._algorithm = key, AESGCM if is_aes else ChaCha20Poly1305
        self._cipher = self._algorithm(key)
        self._num_keys = 1
        self.number = 0

    def seal(self, content: bytes | memoryview, record: memoryview) -> None:
        cipher, nonce = self._next()
        cipher.encrypt_into(nonce, content, None, record)
        self.number += 1

    def open(self, record: memoryview, content: memoryview) -> None:
        cipher, nonce = self._next()
        try:
            cipher.decrypt_into(nonce, record, None, content)
        except InvalidTag:
            content[:] = bytes(len(content))  # nobody is to see what an attacker made of it
            what = "was changed, left out, repeated or put in on its way"
            raise TamperedError(f"record {self.number} of it {what}") from None
        self.number += 1

    def _next(self) -> tuple[AESGCM | ChaCha20Poly1305, bytes]:
        """Cipher and nonce of the next record."""
        if self.number == self._num_keys * RECORDS_PER_KEY:
            self._key = HKDFExpand(SHA256(), _KEY_BYTES, b"hulk-next-key").derive(self._key)
            self._cipher = self._algorithm(self._key)
            self._num_keys += 1
        return self._cipher, self.number.to_bytes(_NONCE_BYTES, "big")


@lru_cache
def has_aes() -> bool:
    """Whether this processor has instructions for AES, as Linux says of x86 (`flags`) and Arm (`Features`)."""
    try:
        lines = _CPUINFO.read_text().splitlines()
    except OSError:
        return False
    return any("aes" in line.split() for line in lines if line.startswith(("flags", "Features")))
