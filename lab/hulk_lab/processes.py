"""Start the lab's processes so that they can always be found again, and stop exactly those.

Each process records its pid and start time (field 22 of /proc/PID/stat) itself, before it becomes the program: not even
a SIGKILL of the lab between the two leaves a process nobody knows of. A pid that was reused has another start time and
is left alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hulk_lab.errors import LabError

# $0: the record file, $1: the cgroup's process lists separated by colons, then the command.
_RECORD_THEN_EXEC = """
read -r stat < /proc/$$/stat && printf '%s\\n' "$stat" > "$0.new" && mv "$0.new" "$0" || exit 125
IFS=:; for procs in $1; do echo $$ > "$procs" || exit 125; done; unset IFS; shift
exec "$@"
"""


class NotReadyError(LabError):
    """A condition did not come true in time; the message names it and the log that may say why."""


@dataclass(frozen=True, slots=True)
class Process:
    """A recorded process: its pid means this process only as long as the start time agrees."""

    name: str
    pid: int
    start_ticks: int

    @property
    def alive(self) -> bool:
        """Whether any of its threads is left: the first one ends before the last one has closed files and sockets."""
        stat = _read_stat(self.pid)
        if stat is None or stat.start_ticks != self.start_ticks:
            return False
        return stat.state not in "ZX" or stat.num_threads > 1


@dataclass(frozen=True, slots=True)
class _Stat:
    pid: int
    state: str
    num_threads: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """The processes of one lab, kept as files: `processes/NAME` and `logs/NAME.log` below the lab's state folder."""

    state: Path

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cgroup_procs: Sequence[Path] = (),
    ) -> Process:
        """Start a command in its own session with a log file of its own and return it once it is recorded."""
        running = self.find(name)
        if running is not None and running.alive:
            raise ValueError(f"process {name} runs already with pid {running.pid}")
        record = self._record(name)
        record.parent.mkdir(parents=True, exist_ok=True)
        record.unlink(missing_ok=True)
        log = self.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        lists = ":".join(map(str, cgroup_procs))
        with log.open("ab") as output:
            subprocess.run(  # setsid --fork: init becomes its parent, so that it outlives the lab and leaves no zombie
                ["setsid", "--fork", "/bin/sh", "-c", _RECORD_THEN_EXEC, record, lists, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(env or {})},
                check=True,
            )
        wait_until(record.exists, f"start of {name}", timeout_s=10, log=log, interval_s=0.002)
        process = self.find(name)
        assert process is not None
        return process

    def ensure(self, name: str, command: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> None:
        """Start a command unless the process of that name runs."""
        running = self.find(name)
        if running is None or not running.alive:
            self.start(name, command, env=env)

    def find(self, name: str) -> Process | None:
        """The recorded process of that name, alive or not."""
        try:
            stat = _parse_stat(self._record(name).read_text())
        except FileNotFoundError:
            return None
        return Process(name, stat.pid, stat.start_ticks)

    def all(self, prefix: str = "") -> list[Process]:
        """Every recorded process whose name begins with the prefix."""
        folder = self.state / "processes"
        names = sorted(path.name for path in folder.glob(f"{prefix}*")) if folder.is_dir() else []
        found = (self.find(name) for name in names if not name.endswith(".new"))
        return [process for process in found if process is not None]

    def stop(self, processes: Sequence[Process], *, grace_s: float = 5.0) -> None:
        """SIGTERM all, wait, SIGKILL what is left; returns when none of them runs and forgets them."""
        for process in processes:
            send_signal(process, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while any(process.alive for process in processes) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.kill(processes)

    def kill(self, processes: Sequence[Process]) -> None:
        """SIGKILL at once, as a power cut does; returns when none of them runs and forgets them."""
        for process in processes:
            send_signal(process, signal.SIGKILL)
        for process in processes:
            wait_until(partial(_ended, process), f"end of {process.name}", timeout_s=10)
            self._record(process.name).unlink(missing_ok=True)

    def log(self, name: str) -> Path:
        """Where the process of that name writes."""
        return self.state / "logs" / f"{name}.log"

    def _record(self, name: str) -> Path:
        return self.state / "processes" / name


def send_signal(process: Process, number: signal.Signals) -> None:
    """Signal a recorded process if it is still that process."""
    if process.alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _ended(process: Process) -> bool:
    return not process.alive


def wait_until(
    condition: Callable[[], object], what: str, *, timeout_s: float, log: Path | None = None, interval_s: float = 0.05
) -> None:
    """Poll a condition; NotReadyError with the log's last lines when it does not come true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            words = f"\n{log}:\n{tail(log)}" if log is not None else ""
            raise NotReadyError(f"{what}: not within {timeout_s:g} s{words}")
        time.sleep(interval_s)


def tail(log: Path, num_lines: int = 15) -> str:
    """The last lines of a log, empty when there is none."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-num_lines:]) if log.exists() else ""


def _parse_stat(text: str) -> _Stat:
    head, _, rest = text.rpartition(")")
    fields = rest.split()
    return _Stat(int(head.split()[0]), fields[0], int(fields[17]), int(fields[19]))


def _read_stat(pid: int) -> _Stat | None:
    try:
        return _parse_stat(Path(f"/proc/{pid}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None
