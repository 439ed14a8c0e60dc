"""Orders to all ranks and their answers, over a unix socket: nothing of it crosses the emulated WAN.

Network namespaces share the machine's files and its clock. So every rank begins at the same moment without a barrier
that would itself cost a round trip, and an all-reduce takes from that moment until its last rank has the sum.
"""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any, TextIO

from hulk_lab.paths import RUN_DIR

LEAD_S = 0.05
"""Between an order and its beginning: all ranks must have read it."""
CONNECT_TIMEOUT_S = 120.0
_PATH = "CONDUCTOR"

Answer = dict[str, Any]


class NoAnswerError(RuntimeError):
    """A rank did not answer in time, or ended."""


class Conductor:
    """The harness's side."""

    def __init__(self, name: str) -> None:
        self.path = RUN_DIR / f"conductor-{name}.sock"
        RUN_DIR.mkdir(parents=True, exist_ok=True)  # no lab may have been up before
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._ranks: dict[int, tuple[socket.socket, TextIO]] = {}
        self._last_start_s = 0.0

    @property
    def env(self) -> dict[str, str]:
        """What a rank's environment needs to find this conductor."""
        return {_PATH: str(self.path)}

    def await_ranks(self, num_ranks: int) -> None:
        """Until all ranks have come and are ready; NoAnswerError when they do not."""
        self._listener.settimeout(CONNECT_TIMEOUT_S)
        while len(self._ranks) < num_ranks:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                raise NoAnswerError(f"{len(self._ranks)} of {num_ranks} ranks came") from None
            stream = connection.makefile("r")
            self._ranks[json.loads(stream.readline())["rank"]] = (connection, stream)
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        for rank in self._ranks:
            self._answer(rank, deadline)

    @property
    def last_start_s(self) -> float:
        """When the ranks began with the last order, on the machine's monotonic clock."""
        return self._last_start_s

    def ask(self, op: str, *, timeout_s: float, **order: Any) -> list[Answer]:
        """The order carried out by all ranks at the same moment; their answers by rank."""
        self._last_start_s = time.monotonic() + LEAD_S
        line = json.dumps({"op": op, "start": self._last_start_s, **order}).encode() + b"\n"
        for connection, _ in self._ranks.values():
            connection.sendall(line)
        deadline = time.monotonic() + timeout_s
        return [self._answer(rank, deadline) for rank in sorted(self._ranks)]

    def _answer(self, rank: int, deadline: float) -> Answer:
        connection, stream = self._ranks[rank]
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            line = stream.readline()
        except TimeoutError:
            raise NoAnswerError(f"rank {rank} gave no answer in time") from None
        if not line:
            raise NoAnswerError(f"rank {rank} has ended")
        answer: Answer = json.loads(line)
        return answer

    def close(self) -> None:
        """Ranks see the end of their orders."""
        for connection, stream in self._ranks.values():
            stream.close()
            connection.close()
        self._listener.close()
        self.path.unlink(missing_ok=True)


class Player:
    """A rank's side."""

    def __init__(self, rank: int) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(os.environ[_PATH])
        self._stream = self._connection.makefile("r")
        self.answer(rank=rank)

    def order(self) -> Answer | None:
        """The next order; None when there are no more."""
        line = self._stream.readline()
        return json.loads(line) if line else None

    def answer(self, **values: Any) -> None:
        """To the order just carried out."""
        self._connection.sendall(json.dumps(values).encode() + b"\n")


def sleep_until(moment_s: float) -> None:
    """The machine's monotonic clock, which all ranks share."""
    time.sleep(max(0.0, moment_s - time.monotonic()))
