"""fp32 values as fewer bytes for one hop over a WAN, and back; what a hop loses is kept and sent with the next values.

    codec  bytes for N values              largest error of a value
    bf16   2 N                             2^-8 of itself
    int8   N + 4 ceil(N / 256)             1/254 of the largest in its block of 256

Error feedback (Karimireddy et al., arXiv 1901.09847): `residual_N` belongs to the caller, one per hop and segment.
`encode` sends values + residual and leaves in it what the payload does not hold, so that over many steps nothing is
lost but time:

    int8 of [127, 1.4], scale 1:   sent [127, 1], residual [0, 0.4]
    then of [127, 1.4]:            sent [127, 2], residual [0, -0.2]

A sender that goes on to use the values itself must use `decode` of its own payload, and whoever passes them on passes
the payload on: ranks then hold the same bits.

What is not finite arrives as not finite: in bf16 the value, in int8 the whole block as NaN. Its residual is 0, so that
one bad step does not outlive itself. int8 takes blocks below 3e-37 for zeros; bf16 rounds beyond 3.39e38 to infinity.
"""

from typing import Final, Protocol

import torch

from hulk_runtime.collective.reduction import memory

BLOCK: Final = 256
LARGEST: Final = 127

Buffer = bytes | bytearray | memoryview


class Codec(Protocol):
    """One way to write fp32 values down. The same values and residual give the same bytes."""

    def encoded_bytes(self, num_values: int) -> int:
        """Exact size of a payload."""

    def encode(self, x_N: torch.Tensor, residual_N: torch.Tensor | None) -> memoryview:
        """The payload of x_N (contiguous fp32 on the CPU) + residual_N, which is updated in place."""

    def decode(self, buffer: Buffer, num_values: int) -> torch.Tensor:
        """A payload's values, (num_values,) fp32. Raises ValueError when the buffer has another size."""


class Bf16:
    """The upper half of each fp32, rounded to nearest even."""

    def encoded_bytes(self, num_values: int) -> int:
        """Two for each value."""
        return 2 * num_values

    def encode(self, x_N: torch.Tensor, residual_N: torch.Tensor | None) -> memoryview:
        """One bf16 for each value, in the machine's byte order."""
        wanted_N = x_N if residual_N is None else x_N + residual_N
        sent_N = wanted_N.bfloat16()
        if residual_N is not None:
            torch.sub(wanted_N, sent_N, out=residual_N)
            _finite(residual_N)
        return memory.view(sent_N.view(torch.uint8))

    def decode(self, buffer: Buffer, num_values: int) -> torch.Tensor:
        """Exact: every bf16 is an fp32."""
        _require_size(buffer, self.encoded_bytes(num_values), num_values)
        return _read(buffer, torch.bfloat16, num_values).float()


class Int8:
    """Whole numbers from -127 to 127, times a scale for each block: all scales (fp32) first, then all numbers."""

    def encoded_bytes(self, num_values: int) -> int:
        """One for each value, four for each block that is begun."""
        return num_values + 4 * _num_blocks(num_values)

    def encode(self, x_N: torch.Tensor, residual_N: torch.Tensor | None) -> memoryview:
        """Each block's largest magnitude becomes 127; the others are rounded to nearest even."""
        num_values, num_blocks = len(x_N), _num_blocks(len(x_N))
        wanted = _blocks(x_N if residual_N is None else x_N + residual_N)
        scale = wanted.abs().amax(1, keepdim=True).div_(LARGEST)
        inverse = _finite(scale.reciprocal())
        numbers = (wanted * inverse).round_().nan_to_num_(0.0)
        payload = torch.empty(self.encoded_bytes(num_values), dtype=torch.uint8)
        payload[: 4 * num_blocks].view(torch.float32).copy_(scale.view(-1))
        payload[4 * num_blocks :].view(torch.int8).copy_(numbers.view(-1)[:num_values])
        if residual_N is not None:
            lost = torch.addcmul(wanted, numbers, scale, value=-1)
            _finite(residual_N.copy_(lost.view(-1)[:num_values]))
        return memory.view(payload)

    def decode(self, buffer: Buffer, num_values: int) -> torch.Tensor:
        """Number times scale."""
        _require_size(buffer, self.encoded_bytes(num_values), num_values)
        num_blocks = _num_blocks(num_values)
        scale = _read(buffer, torch.float32, num_blocks)
        values = torch.zeros(num_blocks, BLOCK)
        values.view(-1)[:num_values] = _read(buffer, torch.int8, num_values, offset=4 * num_blocks)
        return values.mul_(scale.view(-1, 1)).view(-1)[:num_values]


CODECS: Final[dict[str, Codec]] = {"bf16": Bf16(), "int8": Int8()}


def _num_blocks(num_values: int) -> int:
    return -(-num_values // BLOCK)


def _blocks(values_N: torch.Tensor) -> torch.Tensor:
    """As rows of BLOCK, the last one filled up with zeros."""
    missing = -len(values_N) % BLOCK
    return (torch.nn.functional.pad(values_N, (0, missing)) if missing else values_N).view(-1, BLOCK)


def _finite(values: torch.Tensor) -> torch.Tensor:
    """In place: 0 for what is not."""
    return values.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


def _read(buffer: Buffer, kind: torch.dtype, count: int, offset: int = 0) -> torch.Tensor:
    """Torch warns of buffers that it may not write to; it only reads here, but cannot be told so."""
    if not count:
        return torch.empty(0, dtype=kind)
    writable = bytearray(buffer) if memoryview(buffer).readonly else buffer
    return torch.frombuffer(writable, dtype=kind, count=count, offset=offset)


def _require_size(buffer: Buffer, expected: int, num_values: int) -> None:
    found = memoryview(buffer).nbytes
    if found != expected:
        raise ValueError(f"payload of {num_values} values has {found} bytes instead of {expected}")
