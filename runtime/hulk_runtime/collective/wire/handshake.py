"""Who is at the other end of a connection: both ends prove that they know the job's secret, before anything else.

    client -> server   HELLO: magic, wire version, stream, from, to, scope, digest of plan and settings, random bytes
    server -> client   HELLO, likewise
    client -> server   HMAC-SHA256(key, "client" + both HELLOs)
    server -> client   HMAC-SHA256(key, "server" + both HELLOs), or zeros where the client's is wrong

The key is HMAC-SHA256(secret, scope), and the scope names job and attempt: what an older attempt left joins nothing,
and no proof can be used twice or for other ranks. The proofs say who connected. Key and HELLOs also make the keys of
this connection's records, by which what follows is protected (`records`).
"""

import hashlib
import hmac
import os
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Final

from hulk_runtime.collective.wire.frames import WIRE_VERSION
from hulk_runtime.collective.wire.records import Keys, has_aes
from hulk_runtime.job.peer_secret import MIN_SECRET_BYTES

MAGIC: Final = b"HULKWAN\0"
_HELLO: Final = struct.Struct("<8sBBHII16s32s32s")
_PROOF_BYTES: Final = 32
TIMEOUT_S: Final = 10.0


class RefusedError(ConnectionError):
    """The two ends do not belong together; the message says why."""


class StrangerError(RefusedError):
    """Nor will they ever: to try again is of no use."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What all ranks of one group share: the job's secret, what it is used for, the digest of plan and settings.

    `has_aes` alone is of this rank: whether its processor has AES.
    """

    secret: bytes = field(repr=False)
    scope: str
    plan_digest: bytes
    has_aes: bool = field(default_factory=has_aes)

    def __post_init__(self) -> None:
        if len(self.secret) < MIN_SECRET_BYTES:
            raise ValueError(f"a secret of {len(self.secret)} bytes: at least {MIN_SECRET_BYTES} are needed")

    def hello(self, stream: int, source: int, target: int) -> bytes:
        """What one end says first."""
        scope, nonce = hashlib.sha256(self.scope.encode()).digest()[:16], os.urandom(32)
        return _HELLO.pack(MAGIC, WIRE_VERSION, stream, self.has_aes, source, target, scope, self.plan_digest, nonce)

    def proof(self, role: bytes, client_hello: bytes, server_hello: bytes) -> bytes:
        """What only somebody with the secret can say."""
        return hmac.digest(self._key, role + client_hello + server_hello, "sha256")

    def keys(self, client_hello: bytes, server_hello: bytes, *, is_client: bool) -> Keys:
        """Of the connection whose ends have proved that they said these HELLOs: AES where both have it."""
        is_aes = _parse(client_hello).has_aes and _parse(server_hello).has_aes
        return Keys.derive(self._key, client_hello + server_hello, is_client=is_client, is_aes=is_aes)

    @property
    def _key(self) -> bytes:
        return hmac.digest(self.secret, self.scope.encode(), "sha256")


@dataclass(frozen=True, slots=True)
class Hello:
    """The other end's first words."""

    stream: int
    source: int
    target: int
    has_aes: bool


def greet(
    connection: socket.socket, identity: Identity, stream: int, rank: int, peer: int, accept_s: float = TIMEOUT_S
) -> Keys:
    """As the client: prove who we are and have `peer` prove itself, once it accepts. Raises RefusedError, OSError."""
    connection.settimeout(TIMEOUT_S)
    mine = identity.hello(stream, rank, peer)
    connection.sendall(mine)
    theirs = _read(connection, _HELLO.size, time.monotonic() + accept_s)
    deadline_s = time.monotonic() + TIMEOUT_S
    hello = _checked(theirs, mine)
    if (hello.source, hello.target) != (peer, rank):
        raise RefusedError(f"rank {hello.source} answers where rank {peer} should")
    connection.sendall(identity.proof(b"client", mine, theirs))
    _require(identity.proof(b"server", mine, theirs), _read(connection, _PROOF_BYTES, deadline_s))
    return identity.keys(mine, theirs, is_client=True)


def answer(connection: socket.socket, identity: Identity, rank: int) -> tuple[Hello, Keys]:
    """As the server: who connected, once it has proved that. Raises RefusedError, OSError."""
    connection.settimeout(TIMEOUT_S)
    deadline_s = time.monotonic() + TIMEOUT_S
    theirs = _read(connection, _HELLO.size, deadline_s)
    if not theirs.startswith(MAGIC):
        raise RefusedError("it speaks another protocol")
    claimed = _parse(theirs)
    mine = identity.hello(claimed.stream, rank, claimed.source)
    connection.sendall(mine)
    _checked(theirs, mine)
    if claimed.target != rank:
        raise RefusedError(f"it looks for rank {claimed.target}, this is rank {rank}")
    try:
        _require(identity.proof(b"client", theirs, mine), _read(connection, _PROOF_BYTES, deadline_s))
    except StrangerError:
        connection.sendall(bytes(_PROOF_BYTES))  # it is told, so that it does not take this for a broken connection
        raise
    connection.sendall(identity.proof(b"server", theirs, mine))
    return claimed, identity.keys(theirs, mine, is_client=False)


def _checked(theirs: bytes, mine: bytes) -> Hello:
    """The other's HELLO, if it is of this version, scope and plan."""
    magic, version, *_, scope, digest, _ = _HELLO.unpack(theirs)
    *_, our_scope, our_digest, _ = _HELLO.unpack(mine)
    if magic != MAGIC:
        raise RefusedError("it speaks another protocol")
    if version != WIRE_VERSION:
        raise StrangerError(f"it speaks wire version {version}, this is version {WIRE_VERSION}")
    if scope != our_scope:
        raise RefusedError("it belongs to another job or attempt")
    if digest != our_digest:
        raise RefusedError("it has another plan, or other settings")
    return _parse(theirs)


def _parse(hello: bytes) -> Hello:
    _, _, stream, aes, source, target, *_ = _HELLO.unpack(hello)
    return Hello(stream, source, target, bool(aes & 1))


def _require(expected: bytes, proof: bytes) -> None:
    if not hmac.compare_digest(expected, proof):
        raise StrangerError("it has another secret")


def _read(connection: socket.socket, count: int, deadline_s: float) -> bytes:
    found = bytearray()
    while len(found) < count:
        connection.settimeout(max(0.001, deadline_s - time.monotonic()))
        more = connection.recv(count - len(found))
        if not more:
            raise RefusedError("it closed the connection")
        found += more
    return bytes(found)
