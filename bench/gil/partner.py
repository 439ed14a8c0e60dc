"""A process that plays one end of whatever load it is told, and says when it is ready and what it cost."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from bench.gil.loads import LOOPBACK, Load, stream
from bench.processor import cpu_s

PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Ended:
    """What one end took from its beginning to its end: processor seconds, and seconds."""

    cpu_s: float
    seconds: float


class Partner:
    """The end of this process; `rank` of two."""

    def __init__(self, pipe: Connection, rank: int) -> None:
        self._pipe, self._rank = pipe, rank

    def connect(self, load: Load) -> None:
        """Have it connect; returns at once, because that needs the other end too."""
        self._pipe.send((load, self._rank))

    def start(self) -> None:
        """Begin, once it is connected."""
        self._pipe.recv()
        self._pipe.send(None)

    @property
    def is_done(self) -> bool:
        """Whether its end has ended: `wait` would return at once."""
        return self._pipe.poll()

    def wait(self) -> Ended:
        """What its end took."""
        if not self._pipe.poll(PATIENCE_S):
            raise RuntimeError(f"the partner did not end within {PATIENCE_S:g} s")
        ended = self._pipe.recv()
        assert isinstance(ended, Ended)
        return ended


@contextmanager
def partners(ranks: list[int], gloo_port: int) -> Iterator[list[Partner]]:
    """One process each; the first one is also rank 1 of a gloo group of which this process is rank 0."""
    spawn: Any = multiprocessing.get_context("spawn")
    processes, found = [], []
    for number, rank in enumerate(ranks):
        mine, theirs = spawn.Pipe()
        process = spawn.Process(target=_play, args=(theirs, gloo_port if number == 0 else None), daemon=True)
        process.start()
        processes.append(process)
        found.append(Partner(mine, rank))
    _join_gloo(0, gloo_port)
    try:
        yield found
    finally:
        dist.destroy_process_group()
        for process in processes:
            process.terminate()
            process.join()


def _join_gloo(rank: int, port: int) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://{LOOPBACK}:{port}", rank=rank, world_size=2)


def _play(pipe: Connection, gloo_port: int | None) -> None:
    torch.set_num_threads(1)
    if gloo_port is not None:
        _join_gloo(1, gloo_port)
    while True:
        load, rank = pipe.recv()
        end = stream(load, rank)
        pipe.send("connected")
        pipe.recv()
        began_s, before_s = time.monotonic(), cpu_s()
        end.start()
        end.wait()
        pipe.send(Ended(cpu_s() - before_s, time.monotonic() - began_s))
