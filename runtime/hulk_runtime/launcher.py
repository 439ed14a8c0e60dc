"""Starts one worker's ranks in parallel from its own slice of the plan: `hulk-launch train.py --any --arguments`.

No worker waits for another: each reads from the plan which ranks are its own and starts them at once (LE-DAnCE's
locality manager). The ranks get what torchrun would give them, so a script needs no Hulk import. With one accelerator
per worker, or with torchrun and the PET_ variables, scripts run without this launcher as well.

Signals are passed on to the ranks. The first rank that fails ends the others, and its exit code is the launcher's; a
rank that was stopped (143) is no failure: the others stop by agreement at the same step. The launcher may be a
container's first process.
"""

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hulk_runtime import environment, errors, names, processor, wire
from hulk_runtime.errors import EXIT_DONE, EXIT_STOPPED, ConfigurationError, HulkError

FORWARDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
GRACE_S: Final = 30.0
SIGNAL_BASE: Final = 128
USAGE: Final = "usage: hulk-launch script.py [arguments] | hulk-launch -m module [arguments]"


@dataclass(frozen=True, slots=True)
class Slice:
    """The ranks that this worker runs."""

    worker: int
    ranks: range
    world_size: int


@dataclass(slots=True)
class Ranks:
    """The running ranks by process id, and the code to end with."""

    running: set[int]
    kill_at: float | None = None
    stopped: bool = False
    failure: int = EXIT_DONE

    @property
    def exit_code(self) -> int:
        """The first failure's code, else 143 when any rank was stopped, else 0."""
        return self.failure or (EXIT_STOPPED if self.stopped else EXIT_DONE)

    def ended(self, pid: int, code: int, now: float) -> None:
        """Note the end of one process; the first failure ends the others."""
        if pid not in self.running:
            return  # an orphan of a rank that the first process of a container inherits
        self.running.discard(pid)
        if code == EXIT_STOPPED:
            self.stopped = True
        elif code != EXIT_DONE and self.failure == EXIT_DONE:
            self.failure = code
            self.kill_at = now + GRACE_S
            self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        """Send a signal to every rank that still runs."""
        for pid in self.running:
            os.kill(pid, number)


def main() -> None:
    """Console entry point."""
    try:
        code = launch(sys.argv[1:], os.environ)
    except HulkError as error:
        code = errors.report(error)
    sys.exit(code)


def launch(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the script once per rank of this worker; returns the exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        raise ConfigurationError(USAGE)
    mine = slice_of(environ)
    # Blocked here and taken one by one with sigwait: no handler runs at an awkward moment. Ranks start unblocked.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *FORWARDED})
    ranks = Ranks({_start(arguments, {**environ, **variables}) for variables in rank_variables(mine, environ)})
    return _attend(ranks)


def slice_of(environ: Mapping[str, str]) -> Slice:
    """This worker's ranks: from the plan where there is one, else from torchrun's PET_ variables, else from RANK.

    >>> slice_of({"PET_NNODES": "3", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": "1"})
    Slice(worker=1, ranks=range(2, 4), world_size=6)
    >>> slice_of({"RANK": "1", "WORLD_SIZE": "2"})
    Slice(worker=1, ranks=range(1, 2), world_size=2)
    """
    if names.ENV_PLAN in environ:
        plan = wire.load(environ[names.ENV_PLAN])
        worker = environment.integer(environ, names.ENV_WORKER, 0)
        if not 0 <= worker < len(plan.workers):
            raise ConfigurationError(f"{names.ENV_WORKER}={worker}, the plan has {len(plan.workers)} workers")
        return Slice(worker, plan.ranks_of(worker), plan.num_ranks)
    if names.ENV_PET_NNODES in environ:
        num_local = environment.integer(environ, names.ENV_PET_NPROC_PER_NODE, 1)
        worker = environment.integer(environ, names.ENV_PET_NODE_RANK, 0)
        num_workers = environment.integer(environ, names.ENV_PET_NNODES, 1)
        return Slice(worker, range(worker * num_local, (worker + 1) * num_local), num_workers * num_local)
    rank = environment.integer(environ, names.ENV_RANK, 0)
    return Slice(rank, range(rank, rank + 1), environment.integer(environ, names.ENV_WORLD_SIZE, 1))


def rank_variables(mine: Slice, environ: Mapping[str, str]) -> list[dict[str, str]]:
    """What each rank finds in its environment beside the worker's own."""
    cores = processor.quota_cores() or os.cpu_count() or 1
    shared = {
        names.ENV_WORLD_SIZE: str(mine.world_size),
        names.ENV_LOCAL_WORLD_SIZE: str(len(mine.ranks)),
        names.ENV_GROUP_RANK: str(mine.worker),
        names.ENV_MASTER_ADDR: _either(environ, names.ENV_MASTER_ADDR, names.ENV_PET_MASTER_ADDR, "127.0.0.1"),
        names.ENV_MASTER_PORT: _either(
            environ, names.ENV_MASTER_PORT, names.ENV_PET_MASTER_PORT, str(names.MASTER_PORT)
        ),
        names.ENV_OMP_THREADS: environ.get(names.ENV_OMP_THREADS, str(max(1, int(cores / len(mine.ranks))))),
    }
    return [
        {**shared, names.ENV_RANK: str(rank), names.ENV_LOCAL_RANK: str(index)} for index, rank in enumerate(mine.ranks)
    ]


def _either(environ: Mapping[str, str], name: str, other: str, default: str) -> str:
    return environ.get(name) or environ.get(other) or default


def _start(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    command = [sys.executable, "-u", *arguments]
    return os.posix_spawn(sys.executable, command, environ, setsigmask=(), setsigdef=(signal.SIGCHLD, *FORWARDED))


def _attend(ranks: Ranks) -> int:
    """Reap ranks and pass signals on until no rank runs."""
    while ranks.running:
        number = _next_signal(ranks.kill_at)
        if number is None:
            ranks.signal(signal.SIGKILL)
            ranks.kill_at = None
        elif number == signal.SIGCHLD:
            _reap(ranks)
        else:
            ranks.signal(number)
    return ranks.exit_code


def _next_signal(deadline: float | None) -> int | None:
    """The next signal; None when `deadline` passes first."""
    awaited = {signal.SIGCHLD, *FORWARDED}
    if deadline is None:
        return signal.sigwait(awaited)
    received = signal.sigtimedwait(awaited, max(0.0, deadline - time.monotonic()))
    return received.si_signo if received else None


def _reap(ranks: Ranks) -> None:
    """Take every process that has ended; one SIGCHLD may stand for several."""
    while ranks.running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        code = os.waitstatus_to_exitcode(status)
        ranks.ended(pid, code if code >= 0 else SIGNAL_BASE - code, time.monotonic())


if __name__ == "__main__":
    main()
