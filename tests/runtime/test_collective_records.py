"""Records: made by the formulas of docs/reference/collective-wire.md, opened in their order by the other end alone."""

import hashlib
import hmac
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from hulk_runtime.collective.wire import records
from hulk_runtime.collective.wire.frames import HEADER_BYTES, Header, Kind
from hulk_runtime.collective.wire.handshake import Identity
from hulk_runtime.collective.wire.records import TAG_BYTES, Keys, Sealed, TamperedError
from hypothesis import given
from hypothesis import strategies as st

SECRET, SCOPE, DIGEST = bytes(range(32)), "team/demo/1", bytes(32)
BEAT = Header(Kind.BEAT).pack()
PAYLOAD = memoryview(bytes(range(200)))


def ends(nonce: bytes = b"", *, is_aes: bool = True) -> tuple[Sealed, Sealed]:
    """Client and server."""
    client, server = (Keys.derive(SECRET, b"hellos" + nonce, is_client=mine, is_aes=is_aes) for mine in (True, False))
    return Sealed(client), Sealed(server)


def sealed(by: Sealed, head: bytes, payload: memoryview | None = None) -> bytearray:
    return bytearray(b"".join(by.seal(head, payload)))


def opened(by: Sealed, frame: bytearray) -> bytes:
    """Header and payload."""
    split = HEADER_BYTES + TAG_BYTES
    found, rest = bytes(by.open_head(memoryview(frame)[:split])), frame[split:]
    if not rest:
        return found
    place = memoryview(bytearray(len(rest) - TAG_BYTES))
    room = by.room(place)
    room[:] = rest
    by.open_payload(room, place)
    return found + bytes(place)


def expand(key: bytes, info: bytes, num_blocks: int) -> bytes:
    """HKDF-Expand of RFC 5869, by hand."""
    found, block = b"", b""
    for number in range(num_blocks):
        block = hmac.digest(key, block + info + bytes([number + 1]), "sha256")
        found += block
    return found


def test_keys_are_made_of_the_secret_and_both_hellos_as_the_document_says() -> None:
    who = Identity(SECRET, SCOPE, DIGEST, has_aes=True)
    client_hello, server_hello = who.hello(0, 1, 0), who.hello(0, 0, 1)
    key = hmac.digest(SECRET, SCOPE.encode(), hashlib.sha256)
    found = expand(hmac.digest(client_hello + server_hello, key, "sha256"), b"hulk-records", 2)
    client = who.keys(client_hello, server_hello, is_client=True)
    server = who.keys(client_hello, server_hello, is_client=False)
    assert (client.send, client.receive) == (server.receive, server.send) == (found[:32], found[32:])
    assert found.hex() not in repr(client)


@pytest.mark.parametrize(("is_aes", "cipher"), [(True, AESGCM), (False, ChaCha20Poly1305)])
def test_a_frame_is_two_records_numbered_by_their_nonces(is_aes: bool, cipher: type[AESGCM | ChaCha20Poly1305]) -> None:
    keys = Keys.derive(SECRET, b"hellos", is_client=True, is_aes=is_aes)
    by_hand, mine = cipher(keys.send), Sealed(keys)
    head = Header(Kind.WARM, len(PAYLOAD)).pack()
    for number in (0, 2):
        nonces = [(number + each).to_bytes(12, "big") for each in range(2)]
        wanted = by_hand.encrypt(nonces[0], head, None) + by_hand.encrypt(nonces[1], bytes(PAYLOAD), None)
        assert sealed(mine, head, PAYLOAD) == wanted


@pytest.mark.parametrize(
    ("client", "server", "is_aes"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_aes_is_taken_where_both_processors_have_it(client: bool, server: bool, is_aes: bool) -> None:
    hellos = [Identity(SECRET, SCOPE, DIGEST, has_aes=has).hello(0, 1, 0) for has in (client, server)]
    for is_client in (True, False):
        assert Identity(SECRET, SCOPE, DIGEST).keys(*hellos, is_client=is_client).is_aes is is_aes


@pytest.mark.parametrize(
    ("listed", "has"),
    [
        ("flags\t\t: fpu sse4_2 aes avx\n", True),
        ("Features\t: fp asimd aes pmull\n", True),
        ("flags\t\t: fpu vaes_like\nmodel name : aes\n", False),
        ("", False),
    ],
)
def test_what_linux_says_of_the_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listed: str, has: bool
) -> None:
    told = tmp_path / "cpuinfo"
    told.write_text(listed)
    monkeypatch.setattr(records, "_CPUINFO", told)
    assert records.has_aes.__wrapped__() is has
    monkeypatch.setattr(records, "_CPUINFO", tmp_path / "nothing")
    assert not records.has_aes.__wrapped__()


@pytest.mark.parametrize("is_aes", [True, False])
def test_keys_follow_each_other(monkeypatch: pytest.MonkeyPatch, is_aes: bool) -> None:
    """Also where the last record before a new key, or the first with it, is taken back."""
    monkeypatch.setattr(records, "RECORDS_PER_KEY", 4)
    client, server = ends(is_aes=is_aes)
    head, seen = Header(Kind.WARM, len(PAYLOAD)).pack(), set[bytes]()
    for number in range(30):
        for _ in range(number % 3):
            client.seal(BEAT, None)
            client.take_back()
        frame = sealed(client, BEAT) if number % 2 else sealed(client, head, PAYLOAD)
        assert bytes(frame) not in seen
        seen.add(bytes(frame))
        assert opened(server, frame) == (BEAT if number % 2 else head + bytes(PAYLOAD))
    first, _ = ends(is_aes=is_aes)
    assert first._out._key != client._out._key


def test_another_key_begins_where_the_document_says(monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = ends()
    key = client._out._key
    client._out.number = records.RECORDS_PER_KEY
    frame = sealed(client, BEAT)
    by_hand = AESGCM(expand(key, b"hulk-next-key", 1))
    assert frame == by_hand.encrypt(records.RECORDS_PER_KEY.to_bytes(12, "big"), BEAT, None)


@pytest.mark.parametrize("is_aes", [True, False])
@given(st.data())
def test_no_changed_byte_is_opened(is_aes: bool, data: st.DataObject) -> None:
    client, server = ends(is_aes=is_aes)
    payload = memoryview(data.draw(st.binary(min_size=1, max_size=300)))
    frame = sealed(client, Header(Kind.WARM, len(payload)).pack(), payload)
    place, bit = data.draw(st.integers(0, len(frame) - 1)), data.draw(st.integers(0, 7))
    frame[place] ^= 1 << bit
    with pytest.raises(TamperedError, match=f"record {int(place >= HEADER_BYTES + TAG_BYTES)} of it was changed"):
        opened(server, frame)


def test_nobody_sees_what_was_made_of_a_payload() -> None:
    client, server = ends()
    frame = sealed(client, Header(Kind.WARM, len(PAYLOAD)).pack(), PAYLOAD)
    frame[-1] ^= 1
    server.open_head(memoryview(frame)[: HEADER_BYTES + TAG_BYTES])
    place = memoryview(bytearray(b"x" * len(PAYLOAD)))
    with pytest.raises(TamperedError):
        server.open_payload(memoryview(frame)[HEADER_BYTES + TAG_BYTES :], place)
    assert bytes(place) == bytes(len(PAYLOAD))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=9))
def test_records_open_in_their_order_alone(order: list[int]) -> None:
    client, server = ends()
    frames = [sealed(client, Header(Kind.BEAT, operation=number).pack()) for number in range(6)]
    num_opened = 0
    for number in order:
        if number == num_opened:
            assert opened(server, frames[number])
            num_opened += 1
        else:
            with pytest.raises(TamperedError):
                opened(server, frames[number])
            break


def test_a_record_is_of_one_direction_of_one_connection() -> None:
    client, server = ends()
    _, other = ends(b"another nonce")
    frame = sealed(client, BEAT)
    for stranger in (client, other):
        with pytest.raises(TamperedError):
            opened(stranger, frame)
    assert opened(server, frame) == BEAT
