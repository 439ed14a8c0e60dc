"""docs/reference/collective-wire.md: its tables are what the code sends."""

import hashlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hulk_runtime.collective.wire import frames, handshake
from hulk_runtime.collective.wire.frames import GarbageError, Header, Kind, Phase, parse
from hulk_runtime.collective.wire.handshake import Identity

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "collective-wire.md").read_text()
PLAN_DIGEST = bytes(range(100, 132))


def table(first: str) -> Iterator[list[str]]:
    """The cells of each row of the table whose head begins with these columns, without backquotes."""
    (body,) = re.findall(rf"^\| {re.escape(first)} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    for line in body.splitlines():
        yield [cell.strip().strip("`") for cell in line.strip("|").split("|")]


def layout(section: str) -> dict[str, tuple[int, int]]:
    """Offset and size of every field of a layout's table, the only one of its section."""
    rows = re.findall(r"^\| (\d+) \| (\d+) \| `(\w+)` \|", section, re.MULTILINE)
    return {name: (int(offset), int(size)) for offset, size, name in rows}


HELLO = layout(TEXT.partition("## Frames")[0])
HEADER = layout(TEXT.partition("## Frames")[2])


@pytest.mark.parametrize(("fields", "num_bytes"), [(HELLO, handshake._HELLO.size), (HEADER, frames.HEADER_BYTES)])
def test_fields_follow_each_other_to_the_end(fields: dict[str, tuple[int, int]], num_bytes: int) -> None:
    at = 0
    for offset, size in fields.values():
        assert offset == at
        at += size
    assert at == num_bytes


def test_a_header_has_its_fields_where_the_table_says() -> None:
    header = Header(Kind.CHUNK, num_bytes=40_000, epoch=2, operation=70_000, part=513, chunk=66_000, phase=Phase.RESULT)
    packed = frames.steady(header.pack())
    found = {name: int.from_bytes(packed[at : at + size], "little") for name, (at, size) in HEADER.items()}
    assert found == {
        "magic": 0x4B48,
        "kind": Kind.CHUNK,
        "phase": Phase.RESULT,
        "epoch": 2,
        "operation": 70_000,
        "part": 513,
        "flags": frames.STEADY,
        "chunk": 66_000,
        "length": 40_000,
    }
    assert packed[:2] == b"HK"


def test_a_hello_has_its_fields_where_the_table_says() -> None:
    hello = Identity(bytes(32), "team/demo/1", PLAN_DIGEST, has_aes=True).hello(stream=3, source=70_000, target=66_000)
    found = {name: hello[at : at + size] for name, (at, size) in HELLO.items()}
    assert found.pop("magic") == b"HULKWAN\0"
    assert found.pop("plan") == PLAN_DIGEST
    assert len(found.pop("nonce")) == 32
    assert found.pop("scope").hex() == hashlib.sha256(b"team/demo/1").hexdigest()[:32]
    numbers = {name: int.from_bytes(field, "little") for name, field in found.items()}
    assert numbers == {"version": frames.WIRE_VERSION, "stream": 3, "aes": 1, "source": 70_000, "target": 66_000}


def test_the_handshake_has_the_steps_of_the_table() -> None:
    steps = [(who, int(num_bytes)) for _, who, num_bytes, _ in table("step")]
    hello, proof = handshake._HELLO.size, len(Identity(bytes(32), "", PLAN_DIGEST).proof(b"client", b"", b""))
    assert steps == [("client", hello), ("server", hello), ("client", proof), ("server", proof)]


def test_kinds_and_phases_are_those_of_the_tables() -> None:
    assert {name: int(number) for number, name, *_ in table("kind")} == {kind.name: kind.value for kind in Kind}
    assert {name: int(number) for number, name, *_ in table("phase")} == {phase.name: phase.value for phase in Phase}


@pytest.mark.parametrize(("kind", "payload"), [(name, payload) for _, name, payload, _ in table("kind")])
def test_a_payload_is_where_the_table_says(kind: str, payload: str) -> None:
    wrong = Header(Kind[kind], num_bytes=0 if payload != "none" else 1)
    with pytest.raises(GarbageError):
        parse(wrong.pack())
    right = Header(Kind[kind], num_bytes=1 if payload != "none" else 0)
    assert parse(right.pack()) == right


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, value, _ in table("constant")])
def test_limits_are_those_of_the_table(name: str, value: str) -> None:
    where, _, last = name.rpartition(".")
    owner = pkgutil.resolve_name(f"hulk_runtime.collective.{where}")
    fields = getattr(owner, "__dataclass_fields__", None)
    assert (fields[last].default if fields else getattr(owner, last)) == float(value)
