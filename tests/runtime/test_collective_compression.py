"""Compressed payloads: exact sizes, bounded errors, nothing lost over many steps, the same bytes each time."""

import math

import pytest
import torch
from hulk_runtime.collective.reduction.compression import BLOCK, CODECS
from hypothesis import given
from hypothesis import strategies as st

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)
TAME = st.floats(-(2.0**100), 2.0**100, width=32).filter(lambda value: value == 0 or abs(value) > 2.0**-100)
both = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


def vectors(values, max_size=2 * BLOCK + 3):
    """Vectors around the edges of blocks too: a few drawn values, repeated to a drawn length."""
    return st.builds(
        lambda some, length: torch.tensor((some * (length // len(some) + 1))[:length], dtype=torch.float32),
        st.lists(values, min_size=1, max_size=20),
        st.integers(0, max_size) | st.sampled_from([BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK]),
    )


def largest_error(name, sent):
    """What a value may differ by after a hop: half of its last bf16 digit, half a step of its block's scale."""
    if name == "bf16":
        return sent.abs() * 2.0**-8
    padded = torch.nn.functional.pad(sent, (0, -len(sent) % BLOCK)).view(-1, BLOCK)
    steps = {"int8": 127, "int4": 7}[name]
    return (padded.abs().amax(1, keepdim=True) * (0.5 / steps * (1 + 1e-5))).expand(-1, BLOCK).reshape(-1)[: len(sent)]


@both
@given(vectors(FLOATS))
def test_a_payload_has_the_size_it_is_said_to_have(codec, sent):
    payload = codec.encode(sent, None)
    assert payload.nbytes == codec.encoded_bytes(len(sent))
    assert codec.decode(payload, len(sent)).shape == sent.shape


@pytest.mark.parametrize("name", CODECS)
@given(sent=vectors(TAME))
def test_the_error_of_a_hop_is_bounded(name, sent):
    codec = CODECS[name]
    got = codec.decode(codec.encode(sent, None), len(sent))
    assert ((got - sent).abs() <= largest_error(name, sent)).all()


@both
@given(vectors(TAME))
def test_what_a_hop_loses_is_the_residual(codec, sent):
    residual = torch.zeros_like(sent)
    got = codec.decode(codec.encode(sent, residual), len(sent))
    assert ((got.double() + residual.double() - sent.double()).abs() <= 1e-6 * sent.abs()).all()


@both
@given(vectors(FLOATS))
def test_what_is_not_finite_arrives_as_not_finite_and_leaves_no_trace(codec, sent):
    residual = torch.zeros_like(sent)
    got = codec.decode(codec.encode(sent, residual), len(sent))
    assert not got[~sent.isfinite()].isfinite().any()
    assert residual.isfinite().all()


@both
@given(vectors(FLOATS), vectors(TAME))
def test_the_same_values_give_the_same_bytes(codec, sent, other):
    """Whatever the process has encoded before, and wherever the buffer lies."""
    first = bytes(codec.encode(sent, None))
    codec.encode(other, None)
    assert bytes(codec.encode(sent.clone(), None)) == first
    shifted = memoryview(bytearray(b"x" + first))[1:]
    assert torch.equal(codec.decode(first, len(sent)).nan_to_num(), codec.decode(shifted, len(sent)).nan_to_num())


@pytest.mark.parametrize(("name", "late"), [("bf16", 0.02), ("int8", 0.02), ("int4", 0.08)])
def test_over_many_steps_everything_arrives(name, late):
    """A value far below its block's scale is sent some day; without a residual int8 never would."""
    codec = CODECS[name]
    generator = torch.Generator().manual_seed(1)
    sent = torch.randn(1000, generator=generator) * 10.0 ** torch.randint(-4, 1, (1000,), generator=generator)
    residual, arrived = torch.zeros(1000), torch.zeros(1000, dtype=torch.float64)
    num_steps = 200
    for _ in range(num_steps):
        arrived += codec.decode(codec.encode(sent, residual), 1000).double()
    missing = sent.double() * num_steps - arrived
    assert ((missing - residual.double()).abs() < 1e-3).all()
    assert missing.abs().max() < late * sent.abs().max()


def test_int8_keeps_the_largest_of_a_block_and_forgets_a_block_with_a_nan():
    codec = CODECS["int8"]
    sent = torch.cat([torch.full((BLOCK,), 127.0), torch.full((BLOCK,), 2.0), torch.zeros(3)])
    sent[1], sent[BLOCK] = 1.4, math.nan
    residual = torch.zeros_like(sent)
    got = codec.decode(codec.encode(sent, residual), len(sent))
    assert got[:3].tolist() == [127.0, 1.0, 127.0]
    assert residual[1].item() == pytest.approx(0.4)
    assert got[BLOCK : 2 * BLOCK].isnan().all()
    assert got[2 * BLOCK :].tolist() == [0.0, 0.0, 0.0]


def test_int4_keeps_two_values_in_a_byte():
    codec, sent = CODECS["int4"], torch.tensor([7.0, -7.0, 2.6, -0.4, 1.0])
    residual = torch.zeros_like(sent)
    payload = codec.encode(sent, residual)
    assert payload.nbytes == 4 + 3
    assert codec.decode(payload, 5).tolist() == [7.0, -7.0, 3.0, 0.0, 1.0]
    assert residual.tolist() == pytest.approx([0.0, 0.0, -0.4, -0.4, 0.0])


@both
def test_a_payload_of_another_size_is_refused(codec):
    payload = bytes(codec.encode(torch.ones(300), None))
    with pytest.raises(ValueError, match=f"300 values has {len(payload) - 1} bytes instead of {len(payload)}"):
        codec.decode(payload[:-1], 300)
