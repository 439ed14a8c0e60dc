"""The operator as a process that is started again when it ends, as Kubernetes does; its memory, its metrics."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.scale.jobs import SYSTEM
from bench.scale.prometheus import Scrapes
from bench.simulated import Process, free_port, resident_mib

COMMAND: Final = [sys.executable, "-m", "hulk_operator"]
LOOK_S: Final = 0.2
STANDS_S: Final = 2.0
"""Who looks for so long not at all was stopped, or had no processor: nothing that is timed then counts."""
SCRAPE_S: Final = 15.0
MAX_END_S: Final = 30.0
LIMIT_MIB: Final = 2048.0
"""With its planner: twice the chart's limit. Above it the operator is killed, as the kernel does it in a container."""


@dataclass(frozen=True, slots=True)
class Processor:
    """Seconds that a process had of the processors, and that its first thread, the event loop's, waited for one."""

    cpu_s: float = 0.0
    waited_s: float = 0.0

    def __add__(self, other: Processor) -> Processor:
        return Processor(self.cpu_s + other.cpu_s, self.waited_s + other.waited_s)

    def __sub__(self, other: Processor) -> Processor:
        return Processor(self.cpu_s - other.cpu_s, self.waited_s - other.waited_s)


def processor(process: Process) -> Processor:
    """Since the process began, without its children."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    waited_ns = int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[1])
    return Processor(ticks / os.sysconf("SC_CLK_TCK"), waited_ns / 1e9)


@dataclass(slots=True)
class Supervised:
    """One operator, whatever number its process has. MiB are the most since `forget`.

    `num_ends`: how often it ended, `num_too_large`: how often of these it was killed for its memory. `stood_s`: for how
    long nobody looked after it, because the bench itself stood still.
    """

    kubeconfig: Path
    log: Path
    port: int = field(default_factory=free_port)
    num_ends: int = 0
    num_too_large: int = 0
    stood_s: float = 0.0
    own_mib: float = 0.0
    with_planner_mib: float = 0.0
    _ended: Processor = Processor()
    _own: Processor = Processor()
    scrapes: Scrapes = field(init=False)
    _process: Process = field(init=False)
    _stops: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scrapes = Scrapes(self.port)
        self._process = self._start()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._watch, self._scrape)]
        for thread in self._threads:
            thread.start()

    @property
    def processor(self) -> Processor:
        """Of all its processes in turn, without the planner's."""
        return self._ended + self._own

    def stop(self) -> None:
        """End it for good."""
        self._stops.set()
        for thread in self._threads:
            thread.join()
        self._process.terminate()
        try:
            self._process.wait(MAX_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """Begin to look for the most memory anew."""
        self.own_mib = self.with_planner_mib = 0.0

    def _start(self) -> Process:
        """In a session of its own: the kernel gives each its share of the processors, as it does with a pod."""
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "HULK_LEASE_NAMESPACE": SYSTEM,
            "HULK_METRICS_PORT": str(self.port),
        }
        with self.log.open("ab") as output:
            return subprocess.Popen(COMMAND, env=environment, stdout=output, stderr=output, start_new_session=True)

    def _watch(self) -> None:
        looked_s = time.monotonic()
        while not self._stops.wait(LOOK_S):
            before_s, looked_s = looked_s, time.monotonic()
            self.stood_s += looked_s - before_s if looked_s - before_s > STANDS_S else 0.0
            if self._process.poll() is not None:
                self.num_ends += 1
                self._ended, self._own = self.processor, Processor()
                self.scrapes.restarted()
                self._process = self._start()
            with suppress(OSError, IndexError):  # a process that ends while it is looked at
                self._look()

    def _look(self) -> None:
        self._own = processor(self._process)
        self.own_mib = max(self.own_mib, own_mib(self._process))
        mib = resident_mib(self._process)
        self.with_planner_mib = max(self.with_planner_mib, mib)
        if mib > LIMIT_MIB and self._process.poll() is None:
            self.num_too_large += 1
            self._process.kill()
            self._process.wait()

    def _scrape(self) -> None:
        """Now and then, as Prometheus does."""
        while not self._stops.wait(SCRAPE_S):
            self.scrapes.look()


def own_mib(process: Process) -> float:
    """Resident memory of one process without its children."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def supervised(kubeconfig: Path, log: Path) -> Iterator[Supervised]:
    """Running until the block ends."""
    operator = Supervised(kubeconfig, log)
    try:
        yield operator
    finally:
        operator.stop()
