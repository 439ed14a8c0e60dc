"""Threads beside a process's own. One that breaks is never only a traceback: it is counted under its name, and then

    restarted     soon at first, later each time; broken too often in a row, it is
    told          to whoever began it (`broke`), who ends the group or does without; where nobody is there to be told,
    ends the rank with BackgroundError, so that the attempt is over and says why.

/metrics serves the counts as `hulk_worker_background_failures_total`. The agent's tasks are counted here too.
"""

import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, ParamSpec, TypeVar

from hulk_runtime import errors

log = logging.getLogger(__name__)

MAX_RESTARTS: Final = 5
"""In a row."""
FIRST_PAUSE_S: Final = 0.1
WELL_S: Final = 60.0
"""A thread that ran so long before it broke begins to count anew."""

P = ParamSpec("P")
T = TypeVar("T")

_failures: Counter[str] = Counter()
_lock = threading.Lock()


def failures() -> Mapping[str, int]:
    """How often each thread that this process has begun has broken."""
    with _lock:
        return dict(_failures)


def announce(name: str) -> None:
    """A thread or task of this name is begun: it has a count from now on."""
    with _lock:
        _failures.setdefault(name, 0)


def end_rank(name: str, error: BaseException) -> None:
    """The process ends at once with BackgroundError's line and code: the rank's own thread may wait for ever."""
    if not sys.is_finalizing():
        code = errors.report(defect(name, error))
        sys.stdout.flush()
        os._exit(code)


class Thread(threading.Thread):
    """A daemon that runs `body` to its end; with `restarts`, again after a break as long as that says it is wanted."""

    def __init__(
        self,
        name: str,
        body: Callable[[], object],
        *,
        broke: Callable[[str, BaseException], object] = end_rank,
        restarts: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._body, self._broke, self._restarts = body, broke, restarts
        announce(name)

    def run(self) -> None:
        """The thread's own."""
        num_failures = 0
        while num_failures == 0 or self._is_wanted:
            begun_s = time.monotonic()
            try:
                self._body()
                return
            except BaseException as error:  # noqa: BLE001  # whatever it is, the thread would be gone
                if not self._is_wanted:
                    return
                num_failures = 1 if time.monotonic() - begun_s > WELL_S else num_failures + 1
                is_restarted = self._restarts is not None and num_failures <= MAX_RESTARTS
                count(self.name, error, "and is started again" if is_restarted else "and has ended")
                if not is_restarted:
                    self._broke(self.name, error)
                    return
            time.sleep(FIRST_PAUSE_S * 2 ** (num_failures - 1))

    @property
    def _is_wanted(self) -> bool:
        return self._restarts is None or self._restarts()


def count(name: str, error: BaseException, so: str) -> None:
    """Something unexpected happened under this name; `so` says what follows. Of many breaks ever fewer are logged."""
    with _lock:
        _failures[name] += 1
        number = _failures[name]
    if number & (number - 1) == 0:
        trace = error if number == 1 else None
        log.error("%s broke (%d so far) %s: %r", name, number, so, error, exc_info=trace)


def named(name: str, error: BaseException) -> errors.HulkError:
    """What whoever waits for a thread's work is to raise: one of Hulk's errors as it is, another one counted."""
    if isinstance(error, errors.HulkError):
        return error
    count(name, error, "at its work")
    return defect(name, error)


def work_of(name: str, work: Callable[P, T]) -> Callable[P, T]:
    """The same work for a pool's thread: it raises HulkErrors only."""

    def run(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return work(*arguments, **options)
        except Exception as error:
            raise named(name, error) from error

    return run


def defect(name: str, error: BaseException) -> errors.BackgroundError:
    """What its break is to the process that cannot do without it."""
    return errors.BackgroundError(f"{name} broke, which is a defect of Hulk or of torch: {error!r}")
