"""Show what the lab is doing, all the time: one line per stage with its seconds, and a spinner while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

_NARROW = 28


@dataclass(slots=True)
class Stage:
    """A running stage; `note` is shown beside it."""

    name: str
    note: str = ""
    start_s: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.start_s

    def line(self) -> str:
        return f"{self.name:<{_NARROW}}{self.seconds:7.1f} s  {self.note}".rstrip()


class Progress:
    """Stages on a console; several may run at once in threads."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._running: list[Stage] = []
        self._lock = threading.Lock()
        self._live: Live | None = None

    @contextmanager
    def stage(self, name: str, note: str = "") -> Iterator[Stage]:
        """Print the stage's line when it ends; a failed one is marked."""
        stage = Stage(name, note)
        self._begin(stage)
        mark = "[red]x[/red]"
        try:
            yield stage
            mark = "[green]✓[/green]"
        finally:
            self._end(stage)
            self._console.print(f"{mark} {stage.line()}", soft_wrap=True)

    def _begin(self, stage: Stage) -> None:
        with self._lock:
            self._running.append(stage)
            if self._console.is_terminal:
                if self._live is None:
                    self._live = Live(self, console=self._console, refresh_per_second=4, transient=True)
                    self._live.start()
            else:
                self._console.print(f"  {stage.name} ...", soft_wrap=True)

    def _end(self, stage: Stage) -> None:
        with self._lock:
            self._running.remove(stage)
            if self._live is not None and not self._running:
                self._live.stop()
                self._live = None

    def __rich__(self) -> Spinner:
        """What runs now (rich asks several times a second)."""
        return Spinner("dots", Text("\n  ".join(stage.line() for stage in list(self._running))))


class Silent(Progress):
    """For tests: stages are not shown."""

    def __init__(self) -> None:
        super().__init__(Console(quiet=True))
