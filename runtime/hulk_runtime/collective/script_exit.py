"""How a script ends whose group loses a rank: with a line that says so, and the exit code of Hulk's own programs.

The operator tells by it the rank that failed from those that only lost it.
"""

import atexit
import functools
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Final

import torch.distributed as dist

from hulk_runtime import background, errors
from hulk_runtime.collective.group import Collective
from hulk_runtime.job.shutdown import exit_now

GLOO: Final = "gloo/transport"
"""In what gloo says of a connection that broke, or timed out."""
TORCH: Final = ("torch.distributed.distributed_c10d", "torch.distributed._functional_collectives")
STUCK_S: Final = 5.0
"""Who waits for so long in one collective of torch's, after a rank was lost, waits in vain."""
LOOK_S: Final = 0.5


@functools.cache
def end_with_its_code() -> None:
    """A script that one of Hulk's errors ends, or a collective of torch's that lost a peer, leaves with that code."""
    usual = sys.excepthook
    codes: list[int] = []
    atexit.register(lambda: exit_now(codes[0]) if codes else None)  # runs after what is registered later

    def said(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        usual(kind, error, trace)
        if isinstance(error, errors.HulkError):
            codes.append(errors.report(error))
        elif dist.is_initialized() and (isinstance(error, dist.DistError) or GLOO in str(error)):
            codes.append(errors.report(errors.PeerLostError(str(error).partition("\n")[0])))

    sys.excepthook = said


def end_where_stuck(collective: Collective, leaving: threading.Event) -> None:
    """A script that waits in a collective of torch's for a rank that the group has lost ends.

    torch would wait for half an hour where the connection did not break. Elsewhere the script goes on: perhaps it
    saves. `leaving`: it has come to its end itself.
    """

    def watch() -> None:
        collective.engine.join()
        error = None if leaving.is_set() else collective.loss()
        if error is not None:
            end_if_stuck(error)

    background.Thread("hulk-loss", watch).start()


def end_if_stuck(error: errors.HulkError) -> None:
    """Ends the process by it once the script waits in vain; until then this returns not."""
    _await_stuck()
    exit_now(errors.report(error))


def _await_stuck() -> None:
    """Until the script's own thread has stood in one call of torch's collectives for long."""
    main = threading.main_thread().ident
    since_s, where = time.monotonic(), None
    while True:
        frame = sys._current_frames().get(main or 0)
        found = (id(frame), frame.f_lasti) if frame is not None and _is_in_torch(frame) else None
        if found is None or found != where:
            since_s, where = time.monotonic(), found
        elif time.monotonic() - since_s > STUCK_S:
            return
        time.sleep(LOOK_S)


def _is_in_torch(frame: FrameType) -> bool:
    """In a collective's own function, or in what it has called last: a checkpoint's own work is no collective."""
    callers = (frame, frame.f_back)
    return any(caller is not None and caller.f_globals.get("__name__") in TORCH for caller in callers)
