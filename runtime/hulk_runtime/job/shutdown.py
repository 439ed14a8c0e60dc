"""SIGTERM becomes a wish to stop, which all ranks grant at the same step.

Kubernetes sends SIGTERM to each pod at its own moment (suspend, drain, move). A rank that simply left would break the
others in the middle of an all-reduce. So the signal only raises a flag; the flag travels with the next gradients
(`data_parallel.Tail`), every rank sees it after the same step, rank 0 commits a checkpoint, and all exit with 143.

Before the first step there is nothing to save and a rank may be blocked in rendezvous inside C, where Python runs no
signal handler. There the signal ends the process at once.
"""

import os
import signal
import socket
import sys
import threading
from types import FrameType
from typing import NoReturn

from hulk_runtime import background
from hulk_runtime.errors import EXIT_STOPPED


class Stop:
    """The wish to stop of one rank. Make it in the main thread, as early as possible.

    A container's first process has no default action for SIGTERM: without this object it would be ignored until the
    grace period is over.
    """

    def __init__(self) -> None:
        self._wanted = threading.Event()
        self._training = threading.Event()
        self._reader, writer = socket.socketpair()
        writer.setblocking(False)
        self._writer = writer
        signal.signal(signal.SIGTERM, self._ignore)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        background.Thread("hulk-stop", self._watch, restarts=lambda: True).start()

    @property
    def wanted(self) -> bool:
        """Whether this rank was told to stop."""
        return self._wanted.is_set()

    def training_begins(self) -> None:
        """From here on a signal no longer ends the process: the caller promises to look at `wanted` after each step."""
        self._training.set()
        if self.wanted:
            self._leave()

    def _watch(self) -> None:
        """Reads the number that the C-level handler writes even while the main thread is blocked."""
        while number := self._reader.recv(1):
            if number[0] == signal.SIGTERM:
                self._wanted.set()
                if not self._training.is_set():
                    self._leave()

    @staticmethod
    def _leave() -> None:
        print("SIGTERM before the first step: nothing to save", flush=True)
        os._exit(EXIT_STOPPED)

    @staticmethod
    def _ignore(number: int, frame: FrameType | None) -> None:
        """The wake-up descriptor needs a Python handler to exist; the watching thread does the work."""


def exit_now(code: int) -> NoReturn:
    """End the process at once: the destructors of torch's threads may wait for lost peers."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
