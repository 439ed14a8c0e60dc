"""An all-reduce as whoever began it sees it: something to wait for, and afterwards what it took."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hulk_runtime import background
from hulk_runtime.errors import PeerLostError


class Work:
    """An all-reduce that was begun. `overdue` is told when somebody waited for it too long.

    Within twice `patience_s` the engine ends it then, with an error that all ranks agree on.
    """

    def __init__(self, overdue: Callable[[float], None], patience_s: float) -> None:
        self._overdue, self._patience_s = overdue, patience_s
        self._ended = threading.Event()
        self._error: PeerLostError | None = None
        self._callbacks: list[Callable[[PeerLostError | None], None]] = []
        self._lock = threading.Lock()

    def wait(self, timeout_s: float | None = None) -> None:
        """Return when the sum is in the tensor. Raises PeerLostError (RankLostError names the lost rank).

        A rank that is there but does not take part is lost after `timeout_s`. So is this one, some time later, when
        all take part and it does not end.
        """
        if not self._ended.wait(timeout_s):
            assert timeout_s is not None
            self._overdue(timeout_s)
            if not self._ended.wait(2 * self._patience_s):
                raise PeerLostError(f"an all-reduce did not end within {timeout_s:g} s, no rank says why")
        if self._error is not None:
            raise self._error

    @property
    def is_done(self) -> bool:
        """Whether it ended, well or not."""
        return self._ended.is_set()

    def await_end(self, timeout_s: float) -> None:
        """Return when it ended, well or not, or the time is up."""
        self._ended.wait(timeout_s)

    def on_end(self, callback: Callable[[PeerLostError | None], None]) -> None:
        """Call back from the engine's thread when it ends, or now when it has. What it raises there is logged."""
        with self._lock:
            if not self._ended.is_set():
                self._callbacks.append(callback)
                return
        callback(self._error)

    def end(self, error: PeerLostError | None = None) -> None:
        """Ended by the engine."""
        with self._lock:
            self._error = error
            self._ended.set()
        for callback in self._callbacks:
            try:
                callback(error)
            except Exception as broken:  # noqa: BLE001  # others are called back all the same
                background.count("hulk-collective", broken, "at what was to follow an all-reduce")


class Both:
    """Two all-reduces that were begun together."""

    def __init__(self, first: Work, second: Work) -> None:
        self._first, self._second = first, second

    def wait(self, timeout_s: float | None = None) -> None:
        """Until both sums are there. Raises PeerLostError."""
        self._first.wait(timeout_s)
        self._second.wait(timeout_s)

    def on_end(self, callback: Callable[[PeerLostError | None], None]) -> None:
        """Call back when both have ended: a group fails as a whole, so the second knows of the first's error."""
        self._first.on_end(lambda _: self._second.on_end(callback))


@dataclass(frozen=True, slots=True)
class LinkReport:
    """What one operation got from a peer: bytes, and seconds from the operation's begin to the last of them.

    `bytes_per_s` is what came from it lately while more waited to be sent; 0 where nothing waited.
    """

    num_bytes: int
    last_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Report:
    """One all-reduce as this rank saw it; `links` by the sending rank."""

    number: int
    num_bytes: int
    seconds: float
    links: Mapping[int, LinkReport]
