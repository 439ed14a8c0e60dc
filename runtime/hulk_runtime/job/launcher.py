"""Starts one worker's ranks in parallel from its own slice of the plan: `hulk-launch train.py --any --arguments`.

No worker waits for another: each reads from the plan which ranks are its own and starts them at once (LE-DAnCE's
locality manager). The ranks get what torchrun would give them, and the interface by which this pod reaches rank 0, so a
script needs no Hulk import. With one accelerator per worker, or with torchrun and the PET_ variables, scripts run
without this launcher as well.

Signals are passed on to the ranks. The first rank that fails ends the others, and its exit code is the launcher's; a
rank that was stopped (143) is no failure: the others stop by agreement at the same step. The launcher may be a
container's first process.

In a Hulk pod the launcher outlives an attempt (HULK_GANG): when its ranks lost a peer or were stopped by agreement, and
nobody told the launcher itself to end, it waits for the next attempt (HULK_STAY_SECONDS) and starts its ranks with that
one's plan. So a change of the gang costs only the pods that it takes away or adds. Ranks get a copy of the plan they
were started with: the file it came from may change under them.

The launcher counts the steps of torch's optimizers in its ranks and serves them at the metrics port, unless the program
does so itself. Ranks run as under plain python all the same (`observed`).
"""

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hulk_runtime import errors, names
from hulk_runtime.errors import (
    EXIT_DONE,
    EXIT_STOPPED,
    ConfigurationError,
    FencedError,
    HulkError,
    PeerLostError,
)
from hulk_runtime.job import cpu_threads, environment, gang, interface
from hulk_runtime.job.gang import Gang
from hulk_runtime.job.step_server import Served, WorkerSteps
from hulk_runtime.plan import wire

FORWARDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
GRACE_S: Final = environment.DEFAULT_GRACE_S
POLL_S: Final = 1.0
SIGNAL_BASE: Final = 128
INTERRUPTED: Final = frozenset({PeerLostError.exit_code, FencedError.exit_code, EXIT_STOPPED})
"""Codes of ranks that can go on in another attempt: the cause of their end is elsewhere."""
OBSERVED: Final = str(Path(__file__).with_name("observed.py"))
INSTRUMENTATION: Final = str(Path(__file__).parent.with_name("instrumentation"))
USAGE: Final = "usage: hulk-launch script.py [arguments] | hulk-launch -m module [arguments]"


@dataclass(frozen=True, slots=True)
class Slice:
    """The ranks that this worker runs."""

    worker: int
    ranks: range
    world_size: int


@dataclass(slots=True)
class Ranks:
    """The running ranks by process id, and the code to end with.

    `told`: the launcher itself was told to end. `superseded`: the ranks were, because a newer attempt has begun.
    """

    running: set[int]
    steps: WorkerSteps
    grace_s: float = GRACE_S
    kill_at: float | None = None
    stopped: bool = False
    told: bool = False
    superseded: bool = False
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
            self.end(now)

    def end(self, now: float, within_s: float = math.inf) -> None:
        """Ask the ranks that still run to stop, and have them killed when they do not within their grace period.

        Nor within `within_s`: ranks that wait for a peer whose node is lost have nothing to save.
        """
        self.kill_at = now + min(self.grace_s, within_s)
        self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        """Send a signal to every rank that still runs."""
        for pid in self.running:
            os.kill(pid, number)


def main() -> None:
    """Console entry point."""
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(USAGE)
        return
    try:
        code = launch(sys.argv[1:], os.environ)
    except HulkError as error:
        code = errors.report(error)
    sys.exit(code)


def launch(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the script once per rank of this worker; returns the exit code."""
    if not arguments:
        raise ConfigurationError(USAGE)
    # Blocked here and taken one by one with sigwait: no handler runs at an awkward moment. Ranks start unblocked.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *FORWARDED})
    if names.ENV_GANG in environ:
        return _stay(arguments, environ)
    ranks = _start_all(arguments, environ)
    _attend(ranks)
    return ranks.exit_code


def _stay(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the ranks of one attempt after the other; the code of the last one that no other follows."""
    folder = Path(environ[names.ENV_GANG])
    stay_s = environment.number(environ, names.ENV_STAY_SECONDS, environment.DEFAULT_STAY_S)
    attempt, code = 0, EXIT_STOPPED
    while True:
        now = _await_gang(folder, attempt, stay_s)
        if now is None:
            return code
        attempt = now.attempt
        errors.clear_termination_message()
        ranks = _run(arguments, environ, now, folder)
        code = ranks.exit_code
        if ranks.told or (code not in INTERRUPTED and not ranks.superseded):
            return code
        if not ranks.superseded:
            _say(f"attempt {attempt} ended with {code}; waiting up to {stay_s:g} s for the next one")


def _run(arguments: Sequence[str], environ: Mapping[str, str], now: Gang, folder: Path) -> Ranks:
    """Run one attempt's ranks to their end, which a newer attempt brings about as well."""
    with _plan_file(now) as path:
        own = {**environ, **now.environment, names.ENV_PLAN: path, names.ENV_WORKER: str(now.worker)}
        own[names.ENV_PET_NODE_RANK] = str(now.worker)
        ranks = _start_all(arguments, own)
        num_ranks = len(ranks.running)
        _say(f"attempt {now.attempt}: worker {now.worker}, {num_ranks} rank{'' if num_ranks == 1 else 's'}")
        _attend(ranks, lambda: gang.read(folder, now.attempt))
    return ranks


@contextmanager
def _plan_file(now: Gang) -> Iterator[str]:
    """The path, for processes of this user, of a file in memory that holds the plan: a disk may be read-only."""
    descriptor = os.memfd_create("hulk-plan")
    try:
        os.write(descriptor, now.plan)
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _await_gang(folder: Path, attempt: int, stay_s: float) -> Gang | None:
    """The next attempt's gang; None when the launcher is told to end, or no attempt follows in time."""
    deadline = time.monotonic() + stay_s
    while (found := gang.read(folder, attempt)) is None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            _say(f"no attempt after {attempt} came within {stay_s:g} s")
            return None
        number = _next_signal(min(POLL_S, left_s))
        if number in (signal.SIGTERM, signal.SIGINT):
            return None
    return found


def _start_all(arguments: Sequence[str], environ: Mapping[str, str]) -> Ranks:
    mine = slice_of(environ)
    environ = _instrumented(environ)
    interface.choose(
        environ, environment.number(environ, names.ENV_RENDEZVOUS_SECONDS, environment.DEFAULT_RENDEZVOUS_S)
    )
    grace_s = environment.number(environ, names.ENV_GRACE_SECONDS, GRACE_S)
    served = Served(
        attempt=environment.integer(environ, names.ENV_ATTEMPT, 1),
        port=environment.integer(environ, names.ENV_METRICS_PORT, names.WORKER_METRICS_PORT),
        speaks=0 in mine.ranks,
    )
    steps = WorkerSteps(len(mine.ranks), served)
    ranks = zip(steps.paths, rank_variables(mine, environ), strict=True)
    pids = {_start(observed(arguments, path), {**environ, **variables}) for path, variables in ranks}
    return Ranks(pids, steps, grace_s)


def _instrumented(environ: Mapping[str, str]) -> dict[str, str]:
    """With the folder on Python's path whose sitecustomize lets programs sum as planned, where that is wanted."""
    if environ.get(names.ENV_INSTRUMENTATION) != names.INSTRUMENTATION_AUTO:
        return dict(environ)
    path = environ.get(names.ENV_PYTHON_PATH)
    return {**environ, names.ENV_PYTHON_PATH: os.pathsep.join(filter(None, [INSTRUMENTATION, path]))}


def observed(arguments: Sequence[str], record: str) -> list[str]:
    """Python's arguments for a program whose steps are counted in `record`; options of python's own are left alone.

    >>> observed(["train.py", "--lr", "1"], "/proc/1/fd/5")[1:]
    ['/proc/1/fd/5', 'train.py', '--lr', '1']
    >>> observed(["-O", "train.py"], "/proc/1/fd/5")
    ['-O', 'train.py']
    """
    is_program = arguments[0] == "-m" or not arguments[0].startswith("-")
    return [OBSERVED, record, *arguments] if is_program else list(arguments)


def _say(text: str) -> None:
    print(f"hulk-launch: {text}", flush=True)


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
        if num_local < 1 or not 0 <= worker < num_workers:
            raise ConfigurationError(
                f"{names.ENV_PET_NODE_RANK}={worker} of {names.ENV_PET_NNODES}={num_workers} workers with "
                f"{names.ENV_PET_NPROC_PER_NODE}={num_local} ranks: there is no such worker"
            )
        return Slice(worker, range(worker * num_local, (worker + 1) * num_local), num_workers * num_local)
    rank = environment.integer(environ, names.ENV_RANK, 0)
    world_size = environment.integer(environ, names.ENV_WORLD_SIZE, 1)
    if not 0 <= rank < world_size:
        raise ConfigurationError(f"{names.ENV_RANK}={rank} is not in a world of {names.ENV_WORLD_SIZE}={world_size}")
    return Slice(rank, range(rank, rank + 1), world_size)


def rank_variables(mine: Slice, environ: Mapping[str, str]) -> list[dict[str, str]]:
    """What each rank finds in its environment beside the worker's own."""
    cores = cpu_threads.quota_cores() or os.cpu_count() or 1
    shared = {
        names.ENV_WORLD_SIZE: str(mine.world_size),
        names.ENV_LOCAL_WORLD_SIZE: str(len(mine.ranks)),
        names.ENV_GROUP_RANK: str(mine.worker),
        names.ENV_NODE_RANK: str(mine.worker),
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


def _attend(ranks: Ranks, superseded: Callable[[], Gang | None] | None = None) -> None:
    """Reap ranks and pass signals on until no rank runs; look every second whether a newer attempt has begun."""
    with ranks.steps.serving():
        _attend_all(ranks, superseded)
    if ranks.exit_code in (EXIT_DONE, EXIT_STOPPED) and (words := ranks.steps.last_words()):
        errors.add_termination_message(words)


def _attend_all(ranks: Ranks, superseded: Callable[[], Gang | None] | None) -> None:
    while ranks.running:
        number = _next_signal(_patience_s(ranks, superseded is not None))
        now = time.monotonic()
        if number == signal.SIGCHLD:
            _reap(ranks)
        elif number is not None:
            ranks.told = ranks.told or number in (signal.SIGTERM, signal.SIGINT)
            ranks.signal(number)
        elif ranks.kill_at is not None and now >= ranks.kill_at:
            ranks.signal(signal.SIGKILL)
            ranks.kill_at = None
        elif not ranks.told and not ranks.superseded and superseded is not None and (newer := superseded()):
            _say("a newer attempt has begun: the ranks stop")
            ranks.superseded = True
            ranks.end(now, environment.number(newer.environment, names.ENV_END_SECONDS, ranks.grace_s))


def _patience_s(ranks: Ranks, polls: bool) -> float | None:
    """How long to wait for a signal; None: for ever."""
    until_kill = [] if ranks.kill_at is None else [max(0.0, ranks.kill_at - time.monotonic())]
    return min([*until_kill, *([POLL_S] if polls else [])], default=None)


def _next_signal(timeout_s: float | None) -> int | None:
    """The next signal; None when there is none within `timeout_s`."""
    awaited = {signal.SIGCHLD, *FORWARDED}
    if timeout_s is None:
        return signal.sigwait(awaited)
    received = signal.sigtimedwait(awaited, timeout_s)
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
