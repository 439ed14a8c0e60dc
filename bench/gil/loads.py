"""One end of a stream of all-reduces at a rate: Hulk's, paced by the kernel, or gloo's, begun in time."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist
from hulk_runtime.collective.group import Collective, Settings
from hulk_runtime.collective.wire.rendezvous import Address
from hulk_runtime.errors import PeerLostError
from hulk_runtime.plan.flows import CollectivePlan, Flow, LinkFigures, SizeClass

LOOPBACK = "127.0.0.1"
SECRET = b"0123456789abcdef"
IN_FLIGHT = 2
LONGEST = 1 << 62
SETTINGS = Settings(hold_s=0, pace=1.0)


@dataclass(frozen=True, slots=True)
class Load:
    """`count` all-reduces of `num_bytes` by two ranks: each sends and receives so many bytes, at most at the rate."""

    kind: str
    num_bytes: int
    count: int
    bytes_per_s: float = math.inf
    chunk_bytes: int = 128 << 10
    ports: tuple[int, int] = (0, 0)

    def mb_per_s(self, seconds: float) -> float:
        """The rate of all its bytes in so many seconds.

        >>> Load("hulk", num_bytes=4_000_000, count=5).mb_per_s(2.0)
        10.0
        """
        return self.count * self.num_bytes / seconds / 1e6


class Stream(Protocol):
    """One rank's end."""

    def start(self) -> None:
        """Begin; returns at once."""

    def wait(self) -> None:
        """Until all are done; then nothing of it is left."""

    @property
    def is_done(self) -> bool:
        """Whether the last all-reduce has ended here."""


class Ours:
    """Hulk's: whenever one all-reduce ends the next is begun, from the engine's own thread."""

    def __init__(self, load: Load, rank: int) -> None:
        links = {}
        if math.isfinite(load.bytes_per_s):
            links = {link: LinkFigures(load.bytes_per_s, 0.0) for link in ((0, 1), (1, 0))}
        plan = CollectivePlan(((0,), (1,)), links, (SizeClass(LONGEST, load.chunk_bytes, (Flow(1.0, (0, 1)),)),))
        addresses = [Address(LOOPBACK, port) for port in load.ports]
        self._collective = Collective.connect(rank, addresses, plan, SECRET, "bench/gil", SETTINGS)
        self._vectors = [torch.zeros(load.num_bytes // 4) for _ in range(min(IN_FLIGHT, load.count))]
        self._num_left = load.count - len(self._vectors)
        self._num_running = len(self._vectors)
        self._ended = threading.Event()

    def start(self) -> None:
        for vector in self._vectors:
            self._begin(vector)

    def _begin(self, vector: torch.Tensor) -> None:
        self._collective.all_reduce(vector).on_end(lambda error: self._go_on(vector, error))

    def _go_on(self, vector: torch.Tensor, error: PeerLostError | None) -> None:
        if self._num_left and error is None:
            self._num_left -= 1
            self._begin(vector)
            return
        self._num_running -= 1
        if error is not None or not self._num_running:
            self._ended.set()

    def wait(self) -> None:
        self._ended.wait()
        self._collective.close()

    @property
    def is_done(self) -> bool:
        return self._ended.is_set()


class Gloos:
    """gloo's, which nothing paces: a thread begins each all-reduce when the rate says so."""

    def __init__(self, load: Load, _: int) -> None:
        self._load = load
        self._vectors = [torch.zeros(load.num_bytes // 4) for _ in range(IN_FLIGHT)]
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        works: list[dist.Work] = []
        began_s = time.monotonic()
        for number in range(self._load.count):
            if number >= IN_FLIGHT:
                works[number - IN_FLIGHT].wait()
            due_s = began_s + number * self._load.num_bytes / self._load.bytes_per_s
            time.sleep(max(0.0, due_s - time.monotonic()))
            work = dist.all_reduce(self._vectors[number % IN_FLIGHT], async_op=True)
            assert work is not None
            works.append(work)
        for work in works:
            work.wait()

    def wait(self) -> None:
        self._thread.join()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()


def stream(load: Load, rank: int) -> Stream:
    """Connected; returns when the other end has called it too."""
    return Ours(load, rank) if load.kind == "hulk" else Gloos(load, rank)
