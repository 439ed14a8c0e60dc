"""What the transport itself costs: the constants of the cost model, in one place, fitted to measured all-reduces."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Transport:
    """How the runtime moves chunks.

    pace           share of a link's rate at which the runtime sends: just below it, so that routers' queues stay empty
    hop_s          software between a chunk's last byte in and its first byte out, per hop (wake up, sum, hand on)
    start_s        from the call to the first byte on the wire, and from the last byte to the caller, together
    stretch        measured seconds / simulated seconds: what TCP adds to chunks on ideal links
    min_chunk_bytes, max_chunk_bytes, chunks_per_vector
                   a chunk is the vector / chunks_per_vector within these limits, a power of two
    """

    pace: float = 0.97
    hop_s: float = 0.0006
    start_s: float = 0.001
    stretch: float = 1.0
    min_chunk_bytes: int = 8 << 10
    max_chunk_bytes: int = 128 << 10
    chunks_per_vector: int = 32

    def __post_init__(self) -> None:
        if not 0 < self.pace <= 1 or self.hop_s < 0 or self.start_s < 0 or self.stretch <= 0:
            raise ValueError(
                f"transport: pace {self.pace} must be in (0, 1], hop {self.hop_s} s and start {self.start_s} s >= 0, "
                f"stretch {self.stretch} > 0"
            )
        if not 1 <= self.min_chunk_bytes <= self.max_chunk_bytes or self.chunks_per_vector < 1:
            raise ValueError(
                f"transport: chunks of {self.min_chunk_bytes} to {self.max_chunk_bytes} bytes, "
                f"{self.chunks_per_vector} a vector: must be 1 <= least <= most, and at least one"
            )

    def chunk_bytes(self, num_bytes: int) -> int:
        """Bytes of a chunk of a vector: a power of two.

        >>> Transport().chunk_bytes(1 << 20), Transport().chunk_bytes(64 << 20), Transport().chunk_bytes(1000)
        (32768, 131072, 8192)
        """
        part = max(1, num_bytes // self.chunks_per_vector)
        return min(self.max_chunk_bytes, max(self.min_chunk_bytes, 1 << (part.bit_length() - 1)))


TRANSPORT = Transport()
