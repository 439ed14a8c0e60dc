"""fp32 values as fewer bytes for one hop over a WAN, and back; what a hop loses is kept and sent with the next values.

    codec  bytes for N values                     largest error of a value
    bf16   2 N                                    2^-8 of itself
    int8   N + 4 ceil(N / 256)                    1/254 of the largest in its block of 256
    int4   ceil(N / 2) + 4 ceil(N / 256)          1/14 of the same

Error feedback (Karimireddy et al., arXiv 1901.09847): `residual_N` belongs to the caller, one per hop and segment.
`encode` sends values + residual and leaves in it what the payload does not hold, so that over many steps nothing is
lost but time:

    int8 of [127, 1.4], scale 1:   sent [127, 1], residual [0, 0.4]
    then of [127, 1.4]:            sent [127, 2], residual [0, -0.2]

A sender that goes on to use the values itself must use `decode` of its own payload, and whoever passes them on passes
the payload on: ranks then hold the same bits.

What is not finite arrives as not finite: in bf16 the value, in int8 and int4 the whole block as NaN. Its residual is 0,
so that one bad step does not outlive itself. Whole numbers take blocks below 3e-37 for zeros; bf16 rounds beyond
3.39e38 to infinity.
"""

from typing import Final

import torch

from hulk_runtime.collective.reduction import memory

BLOCK: Final = 256

Buffer = bytes | bytearray | memoryview


class Codec:
    """One way to write fp32 values down. The same values and residual give the same bytes."""

    def encoded_bytes(self, num_values: int) -> int:
        """Exact size of a payload."""
        raise NotImplementedError

    def pack(self, x_N: torch.Tensor, residual_N: torch.Tensor | None) -> torch.Tensor:
        """The payload of x_N (contiguous fp32) + residual_N, which is updated in place: uint8, on their device."""
        raise NotImplementedError

    def unpack(self, payload: torch.Tensor, num_values: int) -> torch.Tensor:
        """A payload's values, (num_values,) fp32, on its device."""
        raise NotImplementedError

    def encode(self, x_N: torch.Tensor, residual_N: torch.Tensor | None) -> memoryview:
        """`pack` of what is on the CPU, as bytes."""
        return memory.view(self.pack(x_N, residual_N))

    def decode(self, buffer: Buffer, num_values: int) -> torch.Tensor:
        """`unpack` of bytes. Raises ValueError when the buffer has another size."""
        found, expected = memoryview(buffer).nbytes, self.encoded_bytes(num_values)
        if found != expected:
            raise ValueError(f"payload of {num_values} values has {found} bytes instead of {expected}")
        return self.unpack(_read(buffer), num_values)


class Bf16(Codec):
    """The upper half of each fp32, rounded to nearest even, in the machine's byte order."""

    def encoded_bytes(self, num_values: int) -> int:
        """Two for each value."""
        return 2 * num_values

    def pack(self, x_N: torch.Tensor, residual_N: torch.Tensor | None) -> torch.Tensor:
        """One bf16 for each value."""
        wanted_N = x_N if residual_N is None else x_N + residual_N
        sent_N = wanted_N.bfloat16()
        if residual_N is not None:
            torch.sub(wanted_N, sent_N, out=residual_N)
            _finite(residual_N)
        return sent_N.view(torch.uint8)

    def unpack(self, payload: torch.Tensor, num_values: int) -> torch.Tensor:
        """Exact: every bf16 is an fp32."""
        return payload.view(torch.bfloat16).float()


class WholeNumbers(Codec):
    """Whole numbers from -`largest` to `largest`, times a scale for each block: all scales (fp32), then all numbers."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._per_byte = 1 if largest > 7 else 2

    def encoded_bytes(self, num_values: int) -> int:
        """One for each value, or for two, and four for each block that is begun."""
        return -(-num_values // self._per_byte) + 4 * _num_blocks(num_values)

    def pack(self, x_N: torch.Tensor, residual_N: torch.Tensor | None) -> torch.Tensor:
        """Each block's largest magnitude becomes `largest`; the others are rounded to nearest even."""
        num_values, num_blocks = len(x_N), _num_blocks(len(x_N))
        wanted = _blocks(x_N if residual_N is None else x_N + residual_N)
        scale = wanted.abs().amax(1, keepdim=True).div_(self._largest)
        inverse = _finite(scale.reciprocal())
        numbers = (wanted * inverse).round_().nan_to_num_(0.0)
        if residual_N is not None:
            lost = torch.addcmul(wanted, numbers, scale, value=-1)
            _finite(residual_N.copy_(lost.view(-1)[:num_values]))
        whole = numbers.view(-1)[:num_values].to(torch.int8)
        payload = torch.empty(self.encoded_bytes(num_values), dtype=torch.uint8, device=x_N.device)
        payload[: 4 * num_blocks].view(torch.float32).copy_(scale.view(-1))
        payload[4 * num_blocks :].copy_(whole.view(torch.uint8) if self._per_byte == 1 else _nibbles(whole))
        return payload

    def unpack(self, payload: torch.Tensor, num_values: int) -> torch.Tensor:
        """Number times scale."""
        num_blocks = _num_blocks(num_values)
        scale = payload[: 4 * num_blocks].clone().view(torch.float32)  # which need not begin at a multiple of 4
        numbers = payload[4 * num_blocks :]
        whole = numbers.view(torch.int8) if self._per_byte == 1 else _from_nibbles(numbers)
        values = torch.zeros(num_blocks, BLOCK, dtype=torch.float32, device=payload.device)
        values.view(-1)[:num_values] = whole[:num_values]
        return values.mul_(scale.view(-1, 1)).view(-1)[:num_values]


CODECS: Final[dict[str, Codec]] = {"bf16": Bf16(), "int8": WholeNumbers(127), "int4": WholeNumbers(7)}


def _nibbles(whole_N: torch.Tensor) -> torch.Tensor:
    """Two numbers from -7 to 7 in a byte, the first in its lower half; 0 is written as 8.

    >>> _nibbles(torch.tensor([-7, 7, 0], dtype=torch.int8)).tolist()
    [241, 136]
    """
    shifted = torch.nn.functional.pad(whole_N, (0, len(whole_N) % 2)).add_(8).view(torch.uint8).view(-1, 2)
    return shifted[:, 0] | shifted[:, 1] << 4


def _from_nibbles(packed: torch.Tensor) -> torch.Tensor:
    """Back, and one more where their number was odd."""
    return torch.stack([packed & 15, packed >> 4], 1).view(-1).to(torch.int8).sub_(8)


def _num_blocks(num_values: int) -> int:
    return -(-num_values // BLOCK)


def _blocks(values_N: torch.Tensor) -> torch.Tensor:
    """As rows of BLOCK, the last one filled up with zeros."""
    missing = -len(values_N) % BLOCK
    return (torch.nn.functional.pad(values_N, (0, missing)) if missing else values_N).view(-1, BLOCK)


def _finite(values: torch.Tensor) -> torch.Tensor:
    """In place: 0 for what is not."""
    return values.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


def _read(buffer: Buffer) -> torch.Tensor:
    """Torch warns of buffers that it may not write to; it only reads here, but cannot be told so."""
    if not memoryview(buffer).nbytes:
        return torch.empty(0, dtype=torch.uint8)
    writable = bytearray(buffer) if memoryview(buffer).readonly else buffer
    return torch.frombuffer(writable, dtype=torch.uint8)
