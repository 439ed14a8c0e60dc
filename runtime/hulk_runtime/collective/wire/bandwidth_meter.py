"""How fast a connection is while more waits to be sent: the sender marks frames, the receiver takes the time.

A frame that is marked `STEADY` followed the former one without a pause, so the former one's bytes took the time from
one header's arrival to the next. Pauses of the program and the opening of the congestion window are left out.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hulk_runtime.collective.wire.frames import HEADER_BYTES, STEADY, Header

if TYPE_CHECKING:
    from typing_extensions import Self

_INFO_BYTES: Final = 152
STRETCH_BYTES: Final = 96 << 10
STRETCH_S: Final = 0.02
"""A stretch of steady frames is at least so long, so that wake-ups and bursts even out."""
MAX_STRETCHES: Final = 256
"""Older ones are forgotten."""
QUEUE_S: Final = 0.01
QUEUE_SHARE: Final = 0.1
"""A round trip longer than the shortest by more than both says that something waits on the way."""
ENOUGH_WINDOW: Final = 0.95
"""Of what the pace needs."""

_MSS, _RTT, _SSTHRESH, _CWND, _NOTSENT, _MIN_RTT = 16, 68, 76, 80, 144, 148
"""Offsets of u32 in struct tcp_info (linux/tcp.h)."""


@dataclass(frozen=True, slots=True)
class Path:
    """What the kernel says of a connection's way out."""

    num_unsent_bytes: int
    window_bytes: int
    is_slow_start: bool
    rtt_s: float
    min_rtt_s: float

    @classmethod
    def of(cls, connection: socket.socket) -> Self:
        """Raises OSError when it is closed."""
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES).ljust(_INFO_BYTES, b"\0")
        mss, rtt, threshold, window, unsent, least = (
            struct.unpack_from("=I", info, at)[0] for at in (_MSS, _RTT, _SSTHRESH, _CWND, _NOTSENT, _MIN_RTT)
        )
        return cls(unsent, window * mss, window < threshold, rtt / 1e6, (least if least != 0xFFFFFFFF else rtt) / 1e6)

    @property
    def has_queue(self) -> bool:
        """Whether the round trip is longer than the shortest by what is no noise: something waits on the way."""
        return self.rtt_s - self.min_rtt_s > max(QUEUE_S, QUEUE_SHARE * self.min_rtt_s)

    def is_short(self, pace_bytes_per_s: float) -> bool:
        """Whether the congestion window, not the way, keeps the connection below its pace."""
        return self.window_bytes < ENOUGH_WINDOW * pace_bytes_per_s * self.min_rtt_s and not self.has_queue


class Outlook:
    """Of a connection's sender: whether it has paused since it began the former frame, and what holds it back."""

    def __init__(self) -> None:
        self._paused, self._is_opening = True, True
        self.reset()

    def reset(self) -> None:
        """Count anew."""
        self._num_looks = self._num_queued = self._num_short = 0

    def look(self, path: Path, pace_bytes_per_s: float) -> None:
        """Before anything is given to the kernel."""
        self._paused |= path.num_unsent_bytes == 0
        is_short = path.is_short(pace_bytes_per_s)
        self._is_opening = is_short and path.is_slow_start
        if not self._paused and not self._is_opening:
            self._num_looks += 1
            self._num_queued += path.has_queue
            self._num_short += is_short

    def pause(self) -> None:
        """What the kernel still holds does not count."""
        self._paused = True

    def begin(self) -> bool:
        """A frame begins; whether it is steady."""
        paused, self._paused = self._paused, False
        return not paused and not self._is_opening

    @property
    def queued_share(self) -> float:
        """Of the looks while more waited to be sent: how often there was a queue on the way."""
        return self._num_queued / max(1, self._num_looks)

    @property
    def short_share(self) -> float:
        """How often the congestion window was too small for the pace."""
        return self._num_short / max(1, self._num_looks)


class Meter:
    """Of a connection's receiver: how fast steady frames came lately, at most since the last `reset`."""

    def __init__(self) -> None:
        self._former: tuple[int, float] | None = None
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self._stretches: deque[tuple[int, float]] = deque(maxlen=MAX_STRETCHES)
        self._num_bytes, self._seconds = 0, 0.0
        self.seconds = 0.0

    def take(self, header: Header, now_s: float) -> None:
        """A header arrived."""
        if header.flags & STEADY and self._former is not None:
            self._num_bytes += self._former[0]
            self._seconds += now_s - self._former[1]
            if self._num_bytes >= STRETCH_BYTES and self._seconds >= STRETCH_S:
                self.seconds += self._seconds
                self._stretches.append((self._num_bytes, self._seconds))
                self._num_bytes, self._seconds = 0, 0.0
        self._former = (HEADER_BYTES + header.num_bytes, now_s)

    @property
    def bytes_per_s(self) -> float:
        """Half of the bytes came as fast or faster: a machine that stood still for once does not count. 0: unknown."""
        stretches = sorted(self._stretches, key=lambda stretch: stretch[0] / stretch[1])
        rest = sum(num_bytes for num_bytes, _ in stretches) / 2
        for num_bytes, seconds in stretches:
            rest -= num_bytes
            if rest <= 0:
                return num_bytes / seconds
        return 0.0
